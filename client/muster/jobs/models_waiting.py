"""The server's answers about why a job waits, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.http.model import Json, Model, each, mapping, moment, read, unchanged


@dataclass(frozen=True)
class Between(Model):
    """Two moments: with the chance of four in five it is between them."""

    earliest: datetime | None = moment()
    latest: datetime | None = moment()


@dataclass(frozen=True)
class Holder(Model):
    """A job that holds quota of the queue."""

    id: int
    name: str = ""
    user: str = ""
    slots: int = 0
    ends: Between | None = read(Between.parse)
    raw: Json = unchanged()


@dataclass(frozen=True)
class Waiting(Model):
    """Why a job waits. `numbers` is what the sentence says, for programs; `position` counts from 1 in its queue."""

    code: str = ""
    sentence: str = ""
    numbers: Mapping[str, Any] = mapping()
    position: int | None = None
    starts: Between | None = read(Between.parse)
    unknown: tuple[int, ...] = read(tuple, default=())  # jobs on which its start depends, and of which nothing is known
    holders: tuple[Holder, ...] = each(Holder)
    raw: Json = unchanged()


@dataclass(frozen=True)
class PriorityEffect(Model):
    """What another priority would do to a job and to others. `waiting`: how it would wait; None if it would not."""

    effects: tuple[str, ...] = read(tuple, default=())
    waiting: Waiting | None = read(Waiting.parse)
    raw: Json = unchanged()

"""The server's answers about secrets of teams."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from muster.http.model import Json, Model, moment, read, unchanged


@dataclass(frozen=True)
class TeamSecret(Model):
    """`kind` is env, file or registry; `keys` name its values, which are never returned."""

    name: str
    kind: str = ""
    keys: tuple[str, ...] = read(tuple, default=())
    version: int = 0
    used_by: tuple[str, ...] = read(tuple, default=())  # open jobs and queues
    created_at: datetime | None = moment()
    raw: Json = unchanged()

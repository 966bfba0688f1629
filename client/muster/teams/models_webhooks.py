"""The server's answers about webhooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from muster.http.model import Json, Model, moment, read, unchanged


@dataclass(frozen=True)
class Webhook(Model):
    """`secret` signs what is sent; the server returns it once, in the answer that makes or rotates it."""

    name: str
    host: str = ""  # of its URL, which is never returned
    format: str = ""
    events: tuple[str, ...] = read(tuple, default=())
    all_jobs: bool = True
    is_active: bool = True
    old_secret_until: datetime | None = moment()
    created_at: datetime | None = moment()
    secret: str = field(default="", repr=False)
    raw: Json = unchanged()


@dataclass(frozen=True)
class Delivery(Model):
    """`message_id` is the header webhook-id; `job` is None for a test, `status_code` without an answer."""

    id: int
    message_id: str = ""
    event: str = ""
    job: int | None = None
    attempt: int = 0
    state: str = ""  # waiting, delivered or gave_up
    tries: int = 0
    status_code: int | None = None
    error: str = ""
    created_at: datetime | None = moment()
    next_try_at: datetime | None = moment()
    delivered_at: datetime | None = moment()
    gave_up_at: datetime | None = moment()
    raw: Json = unchanged()

"""The server's answers about volumes of teams."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from muster.http.model import Json, Model, moment, read, unchanged


@dataclass(frozen=True)
class Volume(Model):
    """`free_bytes` and `written_at` are what a job that mounted it saw, at `as_of`."""

    name: str
    cluster: str = ""
    claim: str = ""
    is_adopted: bool = False
    size: str = ""
    storage_class: str = ""
    access_mode: str = ""
    mount_path: str = ""
    is_read_only: bool = False
    state: str = ""  # unused, pending, bound, lost or removing
    capacity: str = ""
    message: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    written_at: datetime | None = moment()
    as_of: datetime | None = moment()
    used_by: tuple[str, ...] = read(tuple, default=())
    created_at: datetime | None = moment()
    raw: Json = unchanged()

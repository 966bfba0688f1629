"""The server's answers about teams, tokens and the audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from muster.http.model import Json, Model, moment, unchanged


@dataclass(frozen=True)
class Team(Model):
    name: str
    role: str = ""  # the reader's own
    created_at: datetime | None = moment()
    raw: Json = unchanged()


@dataclass(frozen=True)
class AllowedObject(Model):
    """An object of a cluster that the pods of a team's jobs may name."""

    id: int
    cluster: str = ""
    kind: str = ""
    name: str = ""
    created_by: str | None = None
    raw: Json = unchanged()


@dataclass(frozen=True)
class Member(Model):
    username: str
    role: str = ""
    is_active: bool = True
    is_service_account: bool = False
    raw: Json = unchanged()


@dataclass(frozen=True)
class Token(Model):
    """`text` is what to send as a bearer token; the server returns it once, in the answer that makes the token."""

    id: int
    name: str = ""
    prefix: str = ""
    scope: str = ""
    team: str | None = None
    user: str = ""
    expires_at: datetime | None = moment()
    created_at: datetime | None = moment()
    last_used_at: datetime | None = moment()
    revoked_at: datetime | None = moment()
    text: str = field(default="", repr=False)
    raw: Json = unchanged()


@dataclass(frozen=True)
class AuditEntry(Model):
    id: int
    at: datetime | None = moment()
    actor: str = ""
    act: str = ""
    target_kind: str = ""
    target_id: str = ""
    target_name: str = ""
    team: str | None = None
    before: Any = None
    after: Any = None
    ip: str | None = None
    token_prefix: str = ""
    user_agent: str = ""
    raw: Json = unchanged()

"""Requests about webhooks and what they were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.http.call import Call, Flow, Page, ask, get, given, nothing, page, place, whole
from muster.teams.models_webhooks import Delivery, Webhook


def webhooks(team: str) -> Flow[list[Webhook]]:
    """Return a team's webhooks. Raises NotFound."""
    missing = f"no team {team} that you may see: `muster teams` lists them"
    return (yield from whole(page(place("teams", team, "webhooks"), parse=Webhook.parse, missing=missing)))


def webhook(team: str, name: str) -> Flow[Webhook]:
    """Return one webhook. Raises NotFound."""
    return (yield from ask(get(_path(team, name), parse=Webhook.parse, missing=_missing(team, name))))


def create_webhook(
    team: str, name: str, *, url: str, events: Sequence[str], format: str | None = None, all_jobs: bool | None = None
) -> Flow[Webhook]:
    """Create a webhook, as an administrator of the team; its `secret` is returned only this once.

    `events` are of start, end and failure; `format` is json or slack; without `all_jobs` only jobs that name it.
    """
    body = given(name=name, url=url, events=list(events), format=format, all_jobs=all_jobs)
    return (yield from ask(Call("POST", place("teams", team, "webhooks"), Webhook.parse, json=body)))


def set_webhook(team: str, name: str, **fields: Any) -> Flow[Webhook]:
    """Change its url, format, events, all_jobs or is_active. Raises NotFound."""
    call = Call(
        "PATCH", _path(team, name), Webhook.parse, json=given(**fields), is_repeatable=True,
        missing=_missing(team, name),
    )  # fmt: skip
    return (yield from ask(call))


def rotate_webhook(team: str, name: str) -> Flow[Webhook]:
    """Return it with a new `secret`; the one before signs as well for 24 hours. Raises NotFound."""
    return (yield from ask(Call("POST", _path(team, name, "rotate"), Webhook.parse, missing=_missing(team, name))))


def test_webhook(team: str, name: str) -> Flow[Delivery]:
    """Send a test, and return its delivery, which is yet to be sent. Raises NotFound."""
    return (yield from ask(Call("POST", _path(team, name, "test"), Delivery.parse, missing=_missing(team, name))))


def delete_webhook(team: str, name: str) -> Flow[None]:
    """Delete a webhook with its history. Raises NotFound."""
    # Not repeatable: a retry would find nothing left to delete, which would look like a failure.
    return (yield from ask(Call("DELETE", _path(team, name), nothing, missing=_missing(team, name))))


def deliveries(team: str, name: str, *, limit: int | None = None) -> Call[Page[Delivery]]:
    """List what a webhook was told, newest first."""
    path = _path(team, name, "deliveries")
    return page(path, parse=Delivery.parse, missing=_missing(team, name), limit=limit)


def send_again(team: str, name: str, delivery: int) -> Flow[Delivery]:
    """Send a delivery once more; it keeps its id. Raises NotFound."""
    missing = f"webhook {name} has no delivery {delivery}: `muster webhooks deliveries {team} {name}` lists them"
    path = _path(team, name, "deliveries", delivery, "again")
    return (yield from ask(Call("POST", path, Delivery.parse, missing=missing)))


def _path(team: str, name: str, *rest: object) -> str:
    return place("teams", team, "webhooks", name, *rest)


def _missing(team: str, name: str) -> str:
    return f"no webhook {name} of a team {team} that you may see: `muster webhooks list {team}` lists them"

"""A payload as a message for Slack's incoming webhooks, which Mattermost takes as well. Pure.

Source: https://docs.slack.dev/messaging/formatting-message-text (escaping) and /reference/block-kit/blocks (limits).
"""

import re
from collections.abc import Mapping
from typing import Any

_EVERYBODY = re.compile(r"@(?=(?:channel|all|here|everyone)\b)", re.IGNORECASE)
MOST_TEXT = 2900  # characters; a section's text may have 3000
_WORDS = {
    "job.started": ":arrow_forward:|started",
    "job.retrying": ":repeat:|failed and is tried again",
    "job.succeeded": ":white_check_mark:|succeeded",
    "job.failed": ":x:|failed",
    "job.cancelled": ":black_square_for_stop:|was cancelled",
}


def message(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for Slack: `text` for notifications, `blocks` for the channel."""
    job = payload["data"].get("job")
    if job is None:
        about = payload["data"]
        return _message(f"Webhook {escaped(about['webhook'])} of team {escaped(about['team'])} works.", [])
    icon, words = _WORDS[payload["type"]].split("|")
    name = escaped(job["name"])
    linked = f"<{escaped(job['url'])}|{name}>" if job["url"] else f"*{name}*"
    lines = [f"{icon} Job {linked} {words}"]
    if reason := _reason(payload["data"]):
        lines.append(f"> {escaped(reason)}")
    return _message(f"Job {name} {words}", lines, _context(job))


def escaped(text: str) -> str:
    """Escape what Slack gives a meaning, so that no name of a job becomes a link or a mention.

    Mattermost also takes `@channel` and `[text](address)`, and has no escapes for them: a space of no width parts them.
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return _EVERYBODY.sub("@\u200b", text).replace("](", "]\u200b(")


def _reason(data: Mapping[str, Any]) -> str:
    """Return why it failed: its headline, which names the first failing rank, and where that was; else the step."""
    failure = data.get("failure")
    if not failure or not failure["headline"]:
        return str(data["message"])
    where = f" ({failure['replica']})" if failure["rank"] is not None else ""
    return f"{failure['headline']}{where}"


def _context(job: Mapping[str, Any]) -> str:
    line = f"job {job['id']} · team {job['team']} · queue {job['queue']} · by {job['user']} · attempt {job['attempt']}"
    return escaped(line)


def _message(text: str, lines: list[str], context: str = "") -> dict[str, Any]:
    section = "\n".join(lines) or text
    blocks: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": section[:MOST_TEXT]}}]
    if context:
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": context[:MOST_TEXT]}]})
    return {"text": text, "blocks": blocks}

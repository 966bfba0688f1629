"""Tags and filters of the pages: they render values and query nothing."""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.conf import settings
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from common.client_wheel import wheel
from common.errors import bounded
from common.text import format_bytes, format_duration, format_number, plain
from jobs.analysis import traceback_view
from jobs.analysis.judging import Failure
from jobs.core.lifecycle import Phase
from jobs.scheduling.waiting import Waiting
from jobs.web import appearance, log_text

from .shapes import SHAPES

register = template.Library()
register.filter("size", format_bytes)
register.filter("measure", format_number)
register.filter("plain", plain)
register.filter("coloured", log_text.coloured)
register.filter("severity", appearance.severity)
register.filter("seconds", format_duration)
register.filter("bounded", bounded)
register.filter("shown", traceback_view.shown)


@register.filter
def spaced(word: str) -> str:
    """Return the name of a kind as words: "out of memory"."""
    return word.replace("_", " ")


@register.filter
def milliseconds(at: datetime) -> int:
    """Return a time in milliseconds since the epoch, as a browser counts."""
    return int(at.timestamp() * 1000)


# A page of a hundred jobs has thousands of these; there are some dozens of them.
@register.simple_tag
@lru_cache(256)
def icon(name: str) -> SafeString:
    """Return an inline drawing in the surrounding text's colour; it is decoration beside a word."""
    drawing = mark_safe(SHAPES[name])  # noqa: S308 - our own literals
    return format_html(
        '<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{}</svg>', drawing
    )


@register.inclusion_tag("_get_client.html", takes_context=True)
def get_client(context: Any) -> dict[str, str]:
    """Say how to get the command line of this server and how to sign in with it."""
    address = context["request"].build_absolute_uri("/")
    return {"commands": f"{_install(context)}\nmuster login {address.rstrip('/')}"}


@register.inclusion_tag("_from_terminal.html", takes_context=True)
def from_terminal(context: Any, command: str = "", lead: str = "Or from a terminal:") -> dict[str, str]:
    """Say in one line of an empty page how to get the command line of this server, and which command leads on."""
    return {"lead": lead, "install": _install(context), "command": command}


def _install(context: Any) -> str:
    return f"pip install {context['request'].build_absolute_uri('/')}client/{wheel().name}"


@register.simple_tag
def has_chart_library() -> bool:
    """Return whether charts can be drawn by uPlot; else they are the server's drawings (jobs/web/charts.py)."""
    return settings.HAS_CHART_LIBRARY


@register.simple_tag
@lru_cache(256)
def tag(phase: str, is_importing: bool = False) -> SafeString:
    """Return the state tag of a job: shape, word and colour. `is_importing`: it runs, and none of its ranks does yet."""
    shown = look(phase, is_importing)
    return format_html('<span class="tag {}">{}{}</span>', shown.tone, icon(shown.shape), shown.word)


@register.simple_tag
def look(phase: str, is_importing: bool = False) -> appearance.Look:
    """Return how a job's state looks, for the title and the icon of its page."""
    return appearance.IMPORTING if is_importing else appearance.PHASES[Phase(phase)]


@register.simple_tag
def kind(failure: Failure) -> SafeString:
    """Return the kind of a failure, and whether that is certain."""
    words = failure.kind.replace("_", " ")
    return format_html('<span class="kind">{}{}</span>', words, "" if failure.certainty == "sure" else ", likely")


@register.simple_tag
def ago(at: datetime | None) -> SafeString:
    """Return how long ago it was, updated by ui.js; the exact time is the tooltip."""
    return _ticking(at, suffix=" ago")


@register.simple_tag
def may_start(waits: Waiting | None) -> SafeString:
    """Return when a waiting job may start, or why that is not known."""
    if waits is None or (waits.starts is None and not waits.unknown):
        return mark_safe("")
    if waits.starts is not None:
        return between(waits.starts)
    first, others = waits.unknown[0], len(waits.unknown) - 1
    more = f" and {others} more" if others else ""
    title = "they have no deadline, report no progress, and too few like them have ended"
    return format_html('<span title="{}">unknown: it depends on job {}{}</span>', title, first, more)


@register.simple_tag
def between(times: tuple[datetime, datetime]) -> SafeString:
    """Return a range of moments to come: "in 10 to 40 min"."""
    now = timezone.now()
    early, late = (max(0.0, (one - now).total_seconds()) for one in times)
    title = " to ".join(one.strftime("%Y-%m-%d %H:%M") for one in times)
    if late < 60:
        words = "any moment"
    elif early < 60:
        words = f"within {format_duration(late)}"
    else:
        words = f"in {format_duration(early)} to {format_duration(late)}"
    return format_html('<span title="{} UTC">{}</span>', title, words)


@register.simple_tag
def running_for(since: datetime | None, until: datetime | None = None) -> SafeString:
    """Return a duration: fixed if `until` is known, else updated by ui.js."""
    if since is not None and until is not None:
        return mark_safe(f"<span>{format_duration((until - since).total_seconds())}</span>")  # noqa: S308 - a duration
    return _ticking(since, suffix="")


def _ticking(at: datetime | None, *, suffix: str) -> SafeString:
    if at is None:
        return mark_safe("")
    text = format_duration((timezone.now() - at).total_seconds()) + suffix
    seconds = at.isoformat(" ", "seconds")[:19]
    return mark_safe(  # noqa: S308 - times and words of our own
        f'<time datetime="{at.isoformat()}" title="{seconds} UTC" data-since="{int(at.timestamp() * 1000)}" data-suffix="{suffix}">{text}</time>'
    )


@register.simple_tag(takes_context=True)
def query(context: Any, **changes: Any) -> str:
    """Return the current query string with some values replaced; None or "" removes one."""
    values = context["request"].GET.copy()
    for name, value in changes.items():
        if value in (None, ""):
            values.pop(name, None)
        else:
            values[name] = value
    return f"?{values.urlencode()}" if values else "?"


@register.simple_tag(takes_context=True)
def sorter(context: Any, order: str, word: str) -> SafeString:
    """Return a column's heading, which sorts by it."""
    is_chosen = context["order"] == order
    mark = mark_safe(' aria-current="true"') if is_chosen else ""
    return format_html('<a href="{}"{}>{}</a>', query(context, sort=order, page=None, before=None), mark, word)


_NAMED_JOB = re.compile(r"\bjob ([1-9][0-9]{0,15})\b")


@register.filter
def linked(text: str) -> SafeString:
    """Return a reason with links to the jobs that it names ("job 12")."""
    first, *rest = _NAMED_JOB.split(text)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    links = format_html_join(
        "", '<a href="/jobs/{}">job {}</a>{}', ((number, number, after) for number, after in pairs)
    )
    return conditional_escape(first) + links


@register.filter
def of(found: Mapping[Any, Any], key: Any) -> Any:
    """Return the value of a key, None if there is none."""
    return found.get(key)


@register.filter
def grouped(value: int | None) -> str:
    """Return a count with thousands separators: 12,000."""
    return "" if value is None else f"{value:,}"


@register.filter
def percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction * 100:.0f} %"

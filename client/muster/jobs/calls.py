"""Requests about one job; for calls see `muster.http.call`."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Union

from muster.http.call import Call
from muster.http.call import get as _get
from muster.http.call import given as _given
from muster.jobs.models import Job, LogPage
from muster.jobs.models_waiting import PriorityEffect

T = TypeVar("T")
JobRef = Union[Job, int, str]

LONG_POLL_SECONDS = 10
# Operators, expansions, assignments and keywords of a shell, quoted or not: jobs/core/shell_words.py decides.
_FOR_A_SHELL = re.compile(
    r"[|&;<>()$`*~#!{}\n\r]|\A[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=|\A(?:if|for|while|until|case|select|function|time|coproc)\s"
)
PATIENCE_SECONDS = 300.0  # a server upgrade takes less


def job(job_id: int) -> Call[Job]:
    return _get(f"/jobs/{job_id}", parse=Job.parse, missing=no_job(job_id))


def act(job_id: int, *, verb: str) -> Call[Job]:
    """Act on a job; `verb` is cancel, suspend, resume, resubmit or priority."""
    return Call("POST", f"/jobs/{job_id}/{verb}", Job.parse, json={}, missing=no_job(job_id))


def priority_effect(job_id: int, priority: int) -> Call[PriorityEffect]:
    call = _get(f"/jobs/{job_id}/priority", parse=PriorityEffect.parse, missing=no_job(job_id))
    return replace(call, params={"to": priority})


def log_page(
    job_id: int,
    *,
    rank: int | None = None,
    replica: str | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    cursor: str | None = None,
    wait_seconds: int = 0,
) -> Call[LogPage]:
    """Get a page of the log; `rank` -1 is the launcher, `wait_seconds` delays an empty answer until lines come."""
    tail = None if cursor else tail
    params = _given(rank=rank, replica=replica, attempt=attempt, cursor=cursor, tail=tail, wait=wait_seconds or None)
    call = _get(f"/jobs/{job_id}/logs", parse=LogPage.parse, missing=no_job(job_id))
    return replace(call, params=params, wait_seconds=wait_seconds)


def patient(call: Call[T]) -> Call[T]:
    """Return a call that waits out a server restart, so that someone following a job does not lose their place."""
    return replace(call, patience_seconds=PATIENCE_SECONDS)


def create_job(spec: Mapping[str, Any], *, key: str) -> Call[Job]:
    return Call("POST", "/jobs", Job.parse, json=spec, headers={"Idempotency-Key": key}, is_repeatable=True)


def job_spec(command: str | Sequence[str], **options: Any) -> dict[str, Any]:
    """Return the body of a submission: only what was given, so that the server's defaults apply to the rest."""
    words = _words(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    return {"command": words, **_given(**options)}


def _words(command: str) -> list[str]:
    """Split a command given as one text. What may need a shell is left to the server, as one word, which refuses it."""
    text = command.strip()
    if not _FOR_A_SHELL.search(text):
        with contextlib.suppress(ValueError):  # of quotes that do not match: the server names them, too
            return shlex.split(text)
    return [text]


def no_job(job_id: int) -> str:
    return f"no job {job_id} that you may see: `muster jobs` lists them"

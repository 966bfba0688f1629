"""Job files: `--from-file job.yaml`. Pure: text in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from muster.errors import JobFileError

# The API's names that this client has options for, plus options for sending rather than the job itself.
FIELDS = (
    "queue", "command", "name", "framework", "nodes", "min_nodes", "nproc_per_node", "gpus", "env", "env_file",
    "secrets", "volumes", "notify", "max_retries", "priority", "deadline_seconds", "grace_seconds",
    "start_timeout_seconds", "workspace", "directory", "idempotency_key",
)  # fmt: skip
# The flags' names are accepted as well as the API's.
ALIASES = {"nproc": "nproc_per_node", "retries": "max_retries", "deadline": "deadline_seconds", "dir": "directory"}


def read_job(text: str, *, source: str) -> dict[str, Any]:
    """Return the fields of a job file, known to this client or not. Raises JobFileError if it is no mapping."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        place = f" in line {where.line + 1}" if where else ""
        raise JobFileError(f"{source} is not valid YAML{place}: {getattr(error, 'problem', error)}") from error
    if not isinstance(content, dict):
        raise JobFileError(f"{source} must contain fields such as `queue: research`, one per line")
    fields = {ALIASES.get(str(name), str(name)): value for name, value in content.items()}
    return {name: _checked(name, value, source=source) for name, value in fields.items() if value is not None}


def job_value(name: str, text: str, *, source: str) -> Any:
    """Return the value of one field from text, as a job file would have it. Raises JobFileError."""
    try:
        return _checked(name, yaml.safe_load(text), source=source)
    except yaml.YAMLError as error:
        raise JobFileError(f"{source}: the value of {name} is not valid YAML; put it in quotes") from error


def merged(file: Mapping[str, Any], *, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge both; flags win. Environments are merged variable by variable."""
    given = {name: value for name, value in flags.items() if value not in (None, (), {}, [])}
    both = {**file, **given}
    env = {**file.get("env", {}), **given.get("env", {})}
    return {**both, "env": env} if env else both


def _checked(name: str, value: Any, *, source: str) -> Any:
    """Check the shapes that the command line itself relies on; the server validates values. Raises JobFileError."""
    if name == "command":
        return _command(value, source=source)
    if name == "env":
        return _env(value, source=source)
    if name in ("secrets", "volumes", "notify", "env_file"):
        return tuple(str(item) for item in (value if isinstance(value, list) else [value]))
    return value


def _command(value: Any, *, source: str) -> str | list[str]:
    if isinstance(value, str):
        return value  # split where it is sent (jobs/calls.py)
    if not isinstance(value, list):
        raise JobFileError(f"{source}: command must be a string or a list of strings")
    return [str(word) for word in value]


def _env(value: Any, *, source: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise JobFileError(f"{source}: env must contain `KEY: value` lines")
    # YAML reads `on` and `1e3` as its own types; quoting them is up to the author, but a flag is text either way.
    return {str(key): _plain(item) for key, item in value.items()}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)

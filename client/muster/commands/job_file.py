"""Job files: `--from-file job.yaml`. Pure: text in, values out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from muster.commands.durations import seconds_of
from muster.errors import JobFileError

# The API's names that this client has options for, plus options for sending rather than the job itself.
FIELDS = (
    "queue", "command", "name", "framework", "nodes", "min_nodes", "nproc_per_node", "gpus", "env", "env_file",
    "secrets", "volumes", "notify", "max_retries", "priority", "deadline_seconds", "grace_seconds",
    "start_timeout_seconds", "workspace", "directory", "idempotency_key",
)  # fmt: skip
# The flags' names are accepted as well as the API's.
ALIASES = {
    "nproc": "nproc_per_node",
    "retries": "max_retries",
    "deadline": "deadline_seconds",
    "ttl": "ttl_seconds",
    "dir": "directory",
}


class _AsWritten(yaml.SafeLoader):
    """Reads each scalar as the text that stands there: `true`, `0.10` and `010` are words of a command, no values."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in yaml's own loaders; merge keys alone keep their meaning
        first: [one for one in found if one[0] == "tag:yaml.org,2002:merge"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


MOST_DEPTH, MOST_NUMBER = 50, 10**18
# Fields whose values are text: a program's arguments and its environment.
_TEXTS = ("command", "env", "node_selector", "labels", "annotations")


def read_job(text: str, *, source: str) -> dict[str, Any]:
    """Return the fields of a job file, known to this client or not. Raises JobFileError if it is no mapping."""
    try:
        content, written = yaml.safe_load(text), _AsWritten(text).get_single_data()
    except yaml.YAMLError as error:
        raise not_yaml(error, source) from error
    if not isinstance(content, dict):
        raise JobFileError(f"{source} must contain fields such as `queue: research`, one per line")
    content |= {name: _text(content[name], written[name]) for name in _TEXTS if name in content}
    fields = {ALIASES.get(str(name), str(name)): value for name, value in content.items()}
    return {name: _checked(name, value, source=source) for name, value in fields.items() if value is not None}


def not_yaml(error: yaml.YAMLError, source: str) -> JobFileError:
    """Return the error that says where a file is not valid YAML."""
    where = getattr(error, "problem_mark", None)
    place = f" in line {where.line + 1}" if where else ""
    return JobFileError(f"{source} is not valid YAML{place}: {getattr(error, 'problem', error)}")


def job_value(name: str, text: str, *, source: str) -> Any:
    """Return the value of one field from text, as a job file would have it. Raises JobFileError."""
    try:
        value = yaml.safe_load(text)
        value = _text(value, _AsWritten(text).get_single_data()) if name in _TEXTS else value
        return _checked(name, value, source=source)
    except yaml.YAMLError as error:
        raise JobFileError(f"{source}: the value of {name} is not valid YAML; put it in quotes") from error


def _text(value: Any, written: Any) -> Any:
    """Return a list or a mapping as it is written; what is null stays so, and anything else is as it is."""
    if isinstance(value, list) and isinstance(written, list):
        return [text if isinstance(text, str) else one for one, text in zip(value, written, strict=True)]
    if isinstance(value, dict) and isinstance(written, dict) and len(value) == len(written):
        pairs = zip(value.values(), written.items(), strict=True)
        return {name: text if one is not None and isinstance(text, str) else one for one, (name, text) in pairs}
    return value


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
    if name in ("secrets", "team_secrets", "volumes", "notify", "env_file"):
        return tuple(str(item) for item in (value if isinstance(value, list) else [value]))
    if name == "ttl_seconds" and isinstance(value, str):
        try:
            return seconds_of(value)
        except ValueError as error:
            raise JobFileError(f"{source}: {name} {error}") from error
    return _sendable(name, value, source=source)


def _sendable(name: str, value: Any, *, source: str, depth: int = 0) -> Any:
    """Return a value that can be sent. Raises JobFileError for what JSON has not: dates, NaN, a value within itself."""
    if depth > MOST_DEPTH:
        raise JobFileError(f"{source}: {name} is nested more than {MOST_DEPTH} levels deep, or within itself")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise JobFileError(f"{source}: {name} has the key {key}, which is no text; put it in quotes")
        return {key: _sendable(f"{name}.{key}", one, source=source, depth=depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_sendable(name, one, source=source, depth=depth + 1) for one in value]
    is_number = isinstance(value, (int, float)) and abs(value) < MOST_NUMBER and math.isfinite(value)
    if value is None or is_number or isinstance(value, str):
        return value
    raise JobFileError(f"{source}: {name} has a value that is neither text nor a usual number; put it in quotes")


def _command(value: Any, *, source: str) -> str | list[str]:
    if isinstance(value, str):
        return value  # split where it is sent (jobs/calls.py)
    if not isinstance(value, list):
        raise JobFileError(f"{source}: command must be a string or a list of strings")
    return [str(word) for word in value]


def _env(value: Any, *, source: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise JobFileError(f"{source}: env must contain `KEY: value` lines")
    return {str(key): _plain(item) for key, item in value.items()}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)

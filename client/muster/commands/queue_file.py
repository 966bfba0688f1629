"""What a queue says of its jobs' pods, as YAML: `defaults`, `node`, `shm_per_gpu`, `locked`, `pods`, `version`."""

from __future__ import annotations

from typing import Any

import yaml

from muster.commands.job_file import read_job
from muster.errors import JobFileError
from muster.jobs.models import Queue

PARTS = ("node", "shm_per_gpu", "locked", "pods")


def written(queue: Queue) -> str:
    """Return the file that `read_template` reads. With its version, a change in between is noticed."""
    document = {"version": queue.version, "defaults": dict(queue.defaults), **queue.template}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def read_template(text: str, *, source: str) -> dict[str, Any]:
    """Return the fields of a change. A file with fields of a job alone replaces the defaults, and no template.

    Raises JobFileError.
    """
    found = read_job(text, source=source)
    if not {"defaults", *PARTS} & set(found):
        return {"defaults": found}
    if unknown := sorted(str(name) for name in set(found) - {"defaults", "version", *PARTS}):
        raise JobFileError(f"{source}: {unknown[0]} is not known; known are version, defaults, {', '.join(PARTS)}")
    defaults = found.get("defaults") or {}
    if not isinstance(defaults, dict):
        raise JobFileError(f"{source}: defaults must map fields of a job to values")
    version = {"version": found["version"]} if found.get("version") is not None else {}
    template = {name: found[name] for name in PARTS if found.get(name) is not None}
    return {"defaults": defaults, "template": template, **version}

"""What a queue says of its jobs' pods, as YAML: `defaults`, `node`, `shm_per_gpu`, `locked`, `pods`, `version`."""

from __future__ import annotations

from typing import Any

import yaml

from muster.commands.job_file import read_job
from muster.errors import JobFileError
from muster.jobs.models import Queue

# By these a file with parts of a template is told from one with fields of a job; the server checks all of them.
PARTS = ("node", "shm_per_gpu", "storage", "topology", "egress", "locked", "pods")


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
    defaults = found.get("defaults") or {}
    if not isinstance(defaults, dict):
        raise JobFileError(f"{source}: defaults must map fields of a job to values")
    version = {"version": found["version"]} if found.get("version") is not None else {}
    template = {name: one for name, one in found.items() if name not in ("defaults", "version") and one is not None}
    return {"defaults": defaults, "template": template, **version}

"""Backups that are changed on purpose."""

import io
import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.operations.archive import Writer

Entries = list[tuple[str, bytes]]
LOAD_AT = "0019_gpu_state"  # the last migration of a release before
# Tables that it did not have.
NEWER = (
    "jobs_attempt",
    "jobs_checkpoint",
    "jobs_clustercheck",
    "jobs_clusterlook",
    "jobs_clusternode",
    "jobs_delivery",
    "jobs_nodehistory",
    "jobs_removedjob",
    "jobs_webhook",
)
NEWER_COLUMNS = {
    "jobs_replica": ["is_restored", "unjudged_at", "launch_id", "topology"], "jobs_job": ["attempt_floor", "ttl_seconds", "template_id", "wait_code"],
    "jobs_attemptfailure": ["after_end", "launch_id", "node"], "jobs_rank": ["nan_series", "nan_step", "gpu_idle_since"], "jobs_jobevent": ["launch_id"],
}  # fmt: skip


def edited(
    path: Path, folder: Path, change: Callable[[dict[str, Any], Entries], Entries], *, is_whole: bool = False
) -> Path:
    """A copy of an archive; `change` gets about.json and the list of its other entries, as (name, content).

    `is_whole`: with a right checksum.
    """
    with tarfile.open(path) as tar:
        entries = [(one.name, content.read()) for one in tar if (content := tar.extractfile(one))]
    about = json.loads(entries[0][1])
    entries = change(about, entries[1:])
    copy = folder / "edited.tar"
    if is_whole:
        counts = json.loads(entries[-1][1])
        with copy.open("wb") as out:
            writer = Writer(out)
            writer.put_json("about.json", about)
            for name, content in entries[:-1]:
                writer.put(name, content)
            writer.end(**{name: value for name, value in counts.items() if name != "sha256"})
        return copy
    with tarfile.open(copy, "w") as tar:
        for name, content in [("about.json", json.dumps(about).encode()), *entries]:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return copy


def of_release_before(about: dict[str, Any], entries: Entries) -> Entries:
    """What a release wrote that did not know the newest columns, nor webhooks."""
    about["migrations"] = [one for one in about["migrations"] if one[0] != "jobs" or one[1] <= LOAD_AT]
    places = {
        table: {about["tables"][table].index(column) for column in columns} for table, columns in NEWER_COLUMNS.items()
    }
    for table, columns in NEWER_COLUMNS.items():
        about["tables"][table] = [one for one in about["tables"][table] if one not in columns]
    end = json.loads(entries[-1][1])
    for table in NEWER:
        assert end["rows"].pop(table) == 0 or table == "jobs_attempt"
        del about["tables"][table]
        about["sequences"].pop(table, None)
    kept = [
        (name, _without(content, places.get(_table(name), set())))
        for name, content in entries[:-1]
        if _table(name) not in NEWER
    ]
    return [*kept, ("end.json", json.dumps(end).encode())]


def _table(name: str) -> str:
    """The table that an entry holds rows of: tables/NAME/000001."""
    return name.split("/")[1] if name.startswith("tables/") else ""


def _without(packed: bytes, places: set[int]) -> bytes:
    if not places:
        return packed
    rows = [line.rstrip(b"\n").split(b"\t") for line in zlib.decompress(packed).splitlines(keepends=True)]
    kept = [[value for place, value in enumerate(row) if place not in places] for row in rows]
    return zlib.compress(b"".join(b"\t".join(row) + b"\n" for row in kept))

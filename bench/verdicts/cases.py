"""The corpus of failing jobs and their labels, read strictly: an unknown key is an error, and so is a missing one.

A case is a script with its label in a comment (`corpus/NAME.py`, or a folder with `train.py` and other files), or what a
cluster does to a job's pods (`cluster/NAME.yaml`). README.md says how to add one.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CORPUS, CLUSTER = HERE / "corpus", HERE / "cluster"

KINDS = (
    "user_code", "import_error", "config", "data", "disk", "host_memory", "device_memory", "comm_timeout", "connection_lost",
    "signal", "hardware", "image", "volume", "no_place", "node_lost", "preempted", "deadline", "start_timeout", "unknown",
)  # fmt: skip
CERTAINTIES = ("sure", "likely")
NODES, PROCESSES = 2, 2  # of every case

_BLOCK = re.compile(r"(?m)^# /// label$\n(?P<lines>(?:^#(?! ///)(?: .*)?$\n)+)^# ///$\n")
_LABEL = {"kind", "rank", "replica", "headline", "matches", "without", "traceback", "certainty"}
_JOB = {"arguments", "deadline_seconds", "start_timeout_seconds"}
_POD = {"replica", "after_seconds", "spec", "status", "is_gone"}
_EVENT = {"replica", "reason", "message"}
_REPLICAS = tuple(f"worker-{index}" for index in range(NODES))


class BadLabel(ValueError):
    """A case whose label cannot be read; names the case and the field."""


@dataclass(frozen=True)
class Label:
    """What a person who reads the whole log says of a failed job. Several kinds, ranks or replicas: each of them is right.

    No ranks: the verdict names no rank. No replicas: it may name any. `headline` and `matches` (a regular expression) must be
    found in the headline, `without` (regular expressions) must not; `traceback` holds lines that the traceback has to contain.
    """

    kinds: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    replicas: tuple[str | None, ...] = ()
    headline: str = ""
    matches: str = ""
    without: tuple[str, ...] = ()
    traceback: tuple[str, ...] = ()
    certainty: str | None = None


@dataclass(frozen=True)
class PodStep:
    """A pod's state as Kubernetes writes it, from `after_seconds` after its creation on."""

    replica: str
    after_seconds: float = 0.0
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    is_gone: bool = False


@dataclass(frozen=True)
class PodEvent:
    """A warning of the cluster about a pod, there from the beginning."""

    replica: str
    reason: str
    message: str


@dataclass(frozen=True)
class Case:
    """`files` by their path in the job's workspace; none where the cluster itself is the cause."""

    name: str
    label: Label
    arguments: tuple[str, ...] = ()
    deadline_seconds: int | None = None
    start_timeout_seconds: int | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    pods: tuple[PodStep, ...] = ()
    events: tuple[PodEvent, ...] = ()

    @property
    def is_of_cluster(self) -> bool:
        return not self.files


def corpus() -> list[Case]:
    """All of them, by name."""
    scripts = [_script(path) for path in CORPUS.iterdir() if path.name != "__pycache__"]
    clusters = [_of_cluster(path) for path in CLUSTER.glob("*.yaml")]
    found = sorted([*scripts, *clusters], key=lambda case: case.name)
    names = [case.name for case in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadLabel(f"{', '.join(sorted(twice))}: two cases have this name")
    return found


def label_of(fields: Mapping[str, Any], *, case: str) -> Label:
    _only(fields, _LABEL, case=case)
    if "kind" not in fields:
        raise BadLabel(f"{case}: kind is missing; one of {', '.join(KINDS)}")
    label = Label(
        kinds=_several(fields["kind"]),
        ranks=_several(fields.get("rank", [])),
        replicas=_several(fields.get("replica", [])),
        headline=_text(fields, "headline", case=case),
        matches=_text(fields, "matches", case=case),
        without=_several(fields.get("without", [])),
        traceback=_several(fields.get("traceback", [])),
        certainty=fields.get("certainty"),
    )
    for field_name, values, allowed in (
        ("kind", label.kinds, KINDS),
        ("rank", label.ranks, range(NODES * PROCESSES)),
        ("replica", label.replicas, (*_REPLICAS, None)),
        ("certainty", (label.certainty,), (*CERTAINTIES, None)),
    ):
        for value in values:
            if value not in allowed:
                raise BadLabel(f"{case}: {field_name} {value!r} is none of {', '.join(map(str, allowed))}")
    if not (label.headline or label.matches):
        raise BadLabel(f"{case}: headline or matches is missing: a label says what the headline has to contain")
    for pattern in (label.matches, *label.without):
        re.compile(pattern)
    if any(re.search(pattern, "") for pattern in label.without):
        raise BadLabel(f"{case}: without {label.without} would forbid every headline")
    return label


def header(text: str, *, case: str) -> dict[str, Any]:
    """The TOML in the block of comments that begins with `# /// label`, in the manner of inline script metadata (PEP 723)."""
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != 1:
        raise BadLabel(f"{case}: {len(blocks)} blocks `# /// label` to `# ///`; there has to be one")
    lines = blocks[0]["lines"].splitlines()
    return tomllib.loads("\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines))


def _script(path: Path) -> Case:
    files = {"train.py": path}
    if path.is_dir():
        kept = (one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
        files = {str(one.relative_to(path)): one for one in kept}
    fields = header(files["train.py"].read_text(encoding="utf-8"), case=path.stem)
    job = fields.pop("job", {})
    return Case(path.stem, label_of(fields, case=path.stem), files=files, **_job(job, case=path.stem))


def _of_cluster(path: Path) -> Case:
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    _only(fields, {"label", "job", "pods", "events"}, case=path.stem)
    pods = [one for step in fields.get("pods", []) for one in _each(step, _POD, make=PodStep, case=path.stem)]
    events = [one for event in fields.get("events", []) for one in _each(event, _EVENT, make=PodEvent, case=path.stem)]
    return Case(
        path.stem, label_of(fields["label"], case=path.stem), pods=tuple(pods), events=tuple(events),
        **_job(fields.get("job", {}), case=path.stem),
    )  # fmt: skip


def _job(fields: Mapping[str, Any], *, case: str) -> dict[str, Any]:
    _only(fields, _JOB, case=case)
    return {**fields, "arguments": tuple(fields.get("arguments", ()))}


def _each(fields: Mapping[str, Any], allowed: set[str], *, make: Any, case: str) -> list[Any]:
    """One for each of its replicas."""
    _only(fields, allowed, case=case)
    replicas = _several(fields["replica"])
    if not set(replicas) <= set(_REPLICAS):
        raise BadLabel(f"{case}: replica {fields['replica']!r} is none of {', '.join(_REPLICAS)}")
    return [make(**{**fields, "replica": replica}) for replica in replicas]


def _only(fields: Mapping[str, Any], allowed: Iterable[str], *, case: str) -> None:
    if strange := sorted(set(fields) - set(allowed)):
        raise BadLabel(f"{case}: {', '.join(strange)} is unknown here; there are {', '.join(sorted(allowed))}")


def _text(fields: Mapping[str, Any], name: str, *, case: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise BadLabel(f"{case}: {name} {value!r} is no text")
    return value


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)

"""The names of each job's series, cached per process: a query per batch would cost more than the writes."""

from collections import OrderedDict

from . import replica_rows

MOST_JOBS = 1000
_names: "OrderedDict[int, frozenset[str]]" = OrderedDict()


def known_names(job: int) -> frozenset[str]:
    if job not in _names:
        _names[job] = replica_rows.series_names(job)
        while len(_names) > MOST_JOBS:
            _names.popitem(last=False)
    return _names[job]


def note_names(job: int, *, names: set[str]) -> None:
    """Add names to the cache after they were written."""
    if names:
        _names[job] = known_names(job) | names

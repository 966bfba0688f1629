"""Which series a job has, remembered by each process: asking the rows with every batch would cost more than writing them."""

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
    """After they were written."""
    if names:
        _names[job] = known_names(job) | names

"""What an installation's database was asked to write, and how large it is. Read by statistics of Postgres."""

from dataclasses import dataclass

import psycopg

FLUSH_SECONDS = 11.0  # an idle connection's counts are in the statistics after ten (PGSTAT_IDLE_INTERVAL)
_SEEN = """
    SELECT (SELECT coalesce(sum(lease_token), 0) FROM jobs_job), sum(n_tup_ins + n_tup_upd + n_tup_del),
        sum(n_tup_ins - n_tup_del), pg_database_size(current_database())
    FROM pg_stat_user_tables
"""
_LOG = "SELECT sum(lines), sum(size_bytes), count(*) FROM jobs_logsegment WHERE job_id = %s"
_OPEN = "SELECT count(*) FROM jobs_job WHERE finished_at IS NULL"


@dataclass(frozen=True)
class RowCounts:
    """`visits` of the reconciler to all jobs: each takes a lease, whose token counts them. `written`: rows inserted,
    changed and deleted. `kept`: inserted and not deleted. `size_bytes` of the database with indexes, without its WAL.
    """

    visits: float
    written: float
    kept: float
    size_bytes: float

    def since(self, before: "RowCounts") -> "RowCounts":
        pairs = zip(vars(self).values(), vars(before).values(), strict=True)
        return RowCounts(*(now - then for now, then in pairs))


def rows(url: str) -> RowCounts:
    with psycopg.connect(url) as connection:
        found = connection.execute(_SEEN).fetchone()
    assert found is not None
    return RowCounts(*map(float, found))


def open_jobs(url: str) -> int:
    """Jobs that are not finished; costs the installation less than asking it."""
    with psycopg.connect(url) as connection:
        found = connection.execute(_OPEN).fetchone()
    assert found is not None
    return int(found[0])


def log_of(url: str, job: int) -> tuple[int, int, int]:
    """Lines of a job's log, the bytes in which they are stored, and the rows that name these."""
    with psycopg.connect(url) as connection:
        found = connection.execute(_LOG, (job,)).fetchone()
    assert found is not None
    return int(found[0]), int(found[1]), int(found[2])

"""Why an attempt failed: its rows as facts for judging.py, and the verdicts as they are stored.

A rank's text comes from its row if its agent sent any, else from the log, around the time of its last traceback.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.db.models import Exists

from jobs.core.batch import clean
from jobs.core.lifecycle import Phase
from jobs.core.verdict import ReplicaState
from jobs.logs.reader import LogSource, end_of_launcher
from jobs.logs.reader import read as read_log
from jobs.models import AttemptFailure, Job, JobEvent, Rank, RankState, Replica

from . import blame, tracebacks
from .judging import AttemptFacts, Failure, RankFacts, ReplicaFacts, first_own, judge
from .last_words import LastOutput

TAIL_LINES = 400  # of a log, if an agent sent no text
MOST_TEXTS = 64  # ranks of an attempt whose text is read: the earliest to fail
_WELL = frozenset({Phase.SUCCEEDED, Phase.CANCELLED, Phase.SUSPENDED})
_RANK = (
    "rank", "replica_id", "state", "exit_code", "signal", "started_at", "ended_at", "error_at", "is_stopped", "is_connection_error",
    "step", "last_line_at",
)  # fmt: skip


class Reader:
    """Reads what processes printed, each once. `again` returns one that reads nothing new: for use under a lock."""

    def __init__(self, job: Job, attempt: int, *, known: dict[str, LastOutput] | None = None, is_open: bool = True):
        self._job, self._attempt, self._is_open = job, attempt, is_open
        self._known: dict[str, LastOutput] = {} if known is None else known

    def __call__(self, one: RankFacts | ReplicaFacts) -> LastOutput:
        key = f"{one.rank}" if isinstance(one, RankFacts) else one.name
        if key not in self._known and self._is_open:
            self._known[key] = self._read(one)
        return self._known.get(key, LastOutput())

    def _read(self, one: RankFacts | ReplicaFacts) -> LastOutput:
        if isinstance(one, RankFacts):
            return of_rank_log(self._job, self._attempt, one.rank)
        return of_launcher_log(self._job, self._attempt, one.name)

    def again(self) -> "Reader":
        return Reader(self._job, self._attempt, known=self._known, is_open=False)


def first_failure(job: Job, attempt: int | None = None) -> Failure | None:
    """Return what made this attempt fail (default: the newest one); None while nothing failed."""
    attempt = attempt or job.attempt
    if (found := stored(job, attempt)) is not None:
        return found
    return judged(job, attempt, read=Reader(job, attempt)) if _may_have_failed(job, attempt) else None


def _may_have_failed(job: Job, attempt: int) -> bool:
    """Whether judging is worthwhile.

    Called for every healthy job displayed: at most one query, where judging reads all ranks and replicas.
    """
    if attempt == job.attempt:
        if job.phase in _WELL:
            return False
        if job.phase == Phase.STARTING or job.stop_reason:
            return True
    ranks = Rank.objects.filter(job=job, attempt=attempt, state=RankState.FAILED)
    replicas = Replica.objects.filter(job=job, attempt=attempt, state__in=(ReplicaState.FAILED, ReplicaState.LOST))
    return Job.objects.filter(Exists(ranks) | Exists(replicas), pk=job.pk).exists()


def stored(job: Job, attempt: int) -> Failure | None:
    row = AttemptFailure.objects.filter(job=job, attempt=attempt).first()
    return None if row is None else of_row(row)


def of_jobs(jobs: Iterable[Job]) -> dict[int, Failure]:
    """Return the verdict on each job's newest attempt, without its lines; one query for all."""
    wanted = {job.pk: job.attempt for job in jobs if job.attempt}
    rows = AttemptFailure.objects.filter(job__in=list(wanted)).defer("traceback", "last_lines")
    return {row.job_id: of_row(row, has_lines=False) for row in rows if wanted[row.job_id] == row.attempt}


def of_attempts(job: Job) -> dict[int, Failure]:
    """Return the stored verdicts on a job's attempts, by attempt number."""
    return {row.attempt: of_row(row) for row in AttemptFailure.objects.filter(job=job)}


def of_row(row: AttemptFailure, *, has_lines: bool = True) -> Failure:
    return Failure(
        row.rank, row.replica, row.exit_code, row.signal, row.at, row.explanation,
        last_lines=list(row.last_lines) if has_lines else [], kind=row.kind, headline=row.headline,
        traceback=list(row.traceback) if has_lines else [], certainty=row.certainty, traceback_rank=row.traceback_rank,
        has_stopped_others=row.has_stopped_others, after_end=row.after_end, node=row.node,
    )  # fmt: skip


def judged(job: Job, attempt: int, *, read: Reader) -> Failure | None:
    """Return the verdict on the current rows. Two queries, and one more if ranks failed."""
    known = facts(job, attempt)
    found = judge(known, read=read)
    return None if found is None else _storable(replace(found, node=blame.node_of(found, known)))


def _storable(failure: Failure) -> Failure:
    """Clean quoted text like agents' text: logs hold any byte, and JSON within them any character."""
    return replace(
        failure, explanation=clean(failure.explanation), headline=clean(failure.headline),
        last_lines=[clean(line) for line in failure.last_lines], traceback=[clean(line) for line in failure.traceback],
    )  # fmt: skip


def facts(job: Job, attempt: int) -> AttemptFacts:
    replicas = list(Replica.objects.filter(job=job, attempt=attempt).order_by("id"))
    names = {one.pk: f"{one.role}-{one.index}" for one in replicas}
    ranks = list(Rank.objects.filter(job=job, attempt=attempt).order_by("rank").values(*_RANK))
    texts = _texts(job, attempt, ranks)
    is_newest = attempt == job.attempt
    return AttemptFacts(
        phase=job.phase if is_newest else "", stop_reason=job.stop_reason if is_newest else "",
        message=_message(job) if is_newest else "",
        ranks=tuple(_rank(one, names, texts) for one in ranks),
        replicas=tuple(
            ReplicaFacts(names[one.pk], one.state, one.reason, one.exit_code, one.signal, one.ended_at, one.node)
            for one in replicas
        ),
    )  # fmt: skip


def first_failing_rank(job: Job, attempt: int) -> int | None:
    """Return the rank named by the verdict, without loading its lines."""
    row = AttemptFailure.objects.filter(job=job, attempt=attempt).values_list("rank", flat=True)[:1]
    if found := list(row):
        return found[0]
    return first_of(Rank.objects.filter(job=job, attempt=attempt, state=RankState.FAILED).defer("error"))


def first_of(ranks: Iterable[Rank]) -> int | None:
    """Return the first failing rank by rows alone, for attempts that ended before verdicts were stored."""
    found = first_own(
        RankFacts(one.rank, "", one.state, ended_at=one.ended_at, error_at=one.error_at, is_stopped=one.is_stopped,
                  is_connection_error=one.is_connection_error)
        for one in ranks
    )  # fmt: skip
    return None if found is None else found.rank


def of_rank_log(job: Job, attempt: int, rank: int) -> LastOutput:
    """Read a rank's log if its agent sent no text. It holds both streams, in the order in which they were read."""
    return _output(
        [
            one.text
            for one in read_log(job=job, source=LogSource(rank), attempt=attempt, tail=TAIL_LINES).lines
            if not one.is_gap
        ]
    )


def of_launcher_log(job: Job, attempt: int, replica: str) -> LastOutput:
    """Read the launcher's log of one replica ("worker-1")."""
    role, _, index = replica.rpartition("-")
    row = Replica.objects.filter(job=job, attempt=attempt, role=role, index=int(index)).values_list("pk", flat=True)
    return _output([line for pk in row for line in end_of_launcher(replica=pk, count=TAIL_LINES)])


def _output(lines: list[str]) -> LastOutput:
    chain = tracebacks.last_chain(lines)
    before = (
        lines[chain.begin - 1 : chain.begin] if chain and chain.is_harmless and chain.begin else ()
    )  # "Exception in thread"
    return LastOutput((*before, *chain.lines) if chain else (), tuple(lines[-40:]))


def end_message(failure: Failure | None, *, step: str, is_elastic: bool) -> str:
    """Return the sentence that a job's message and history record about a failed attempt: its verdict's headline.

    `step` is the message of the step that ended the attempt. It stays where there is no verdict, and where the verdict
    names neither rank nor replica: its headline is then this message, shortened. What ends an elastic job's attempt is
    not the rank but that too few replicas are left, so there it follows the headline.
    """
    if failure is None or (failure.rank is None and not failure.replica):
        return step
    if not is_elastic:
        return failure.headline
    return step if step.startswith(failure.headline) else f"{failure.headline}; {step}"


def _message(job: Job) -> str:
    """Return the message recorded when the attempt began to be ended: a later one may already be a verdict."""
    words = JobEvent.objects.filter(job=job, attempt=job.attempt, kind="step", phase="stopping").order_by("-id")
    return (words.values_list("message", flat=True).first() if job.stop_reason else "") or job.message


def _rank(row: dict[str, Any], names: dict[int, str], texts: dict[int, LastOutput]) -> RankFacts:
    return RankFacts(replica=names.get(row.pop("replica_id"), ""), output=texts.get(row["rank"]), **row)


def _texts(job: Job, attempt: int, ranks: list[dict[str, Any]]) -> dict[int, LastOutput]:
    """Return the text agents sent with the ends of the first ranks to fail, and of the first stopped for it."""
    failed = [one for one in ranks if one["state"] == RankState.FAILED]
    failed.sort(key=lambda one: str(one["error_at"] or one["ended_at"] or "~"))
    wanted = [one["rank"] for one in failed if not one["is_stopped"]][:MOST_TEXTS]
    wanted += [one["rank"] for one in failed if one["is_stopped"]][:MOST_TEXTS]
    if not wanted:
        return {}
    rows = Rank.objects.filter(job=job, attempt=attempt, rank__in=wanted, error__isnull=False)
    return {rank: output_of(error or {}) for rank, error in rows.values_list("rank", "error")}


def output_of(error: Any) -> LastOutput:
    def lines(name: str) -> tuple[str, ...]:
        text = error.get(name)
        return tuple(text.split("\n")) if isinstance(text, str) and text else ()

    kills = error.get("oom_kills")
    return LastOutput(lines("traceback"), lines("stderr"), lines("stdout"), kills if isinstance(kills, int) else None)

"""Judge why an attempt failed: the first rank or replica to fail, its error, the error's kind and its certainty. Pure.

The earliest own failure counts, by the shims' clocks. Ranks ended by their launcher do not count, unless they had
raised an error of their own before. Ranks that lost a connection or waited in vain are echoes of another rank's end: if
nothing else failed, the verdict names the rank that left, or the only one that neither failed nor waited.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from signal import SIGKILL, SIGTERM

from jobs.core import exits, failure_kinds
from jobs.core.failure_kinds import ECHOES, Certainty, Kind
from jobs.core.lifecycle import Phase, StopReason
from jobs.core.verdict import ASKED_FOR, ReplicaState

from . import error_kinds, hints, tracebacks
from .last_words import LastOutput, chain_of, is_from_hook, judged, of_thread, shown

HEADLINE_CHARACTERS = 400
END_CHARACTERS = 120
OUTLIVED = timedelta(seconds=2)  # from a traceback to a later line: more than an interpreter needs to flush and to end
NOTICED = timedelta(seconds=10)  # from a replica's end to when its end is seen, later than what it brought about
LEAVING = timedelta(seconds=5)  # from a rank's last connection to the end of its process
_EVER = datetime.max.replace(tzinfo=UTC)
_NOT_A_FAILURE = frozenset({StopReason.COMPLETED, StopReason.CANCELLED, StopReason.SUSPENDED})
_WANTED = {StopReason.DEADLINE: Kind.DEADLINE, StopReason.PREEMPTED: Kind.PREEMPTED}
_NAMED_LATE = re.compile(r"Ranks? ([\d, ]{1,200}?) failed to pass monitoredBarrier")
_SURE, _LIKELY = Certainty.SURE, Certainty.LIKELY


@dataclass(frozen=True)
class RankFacts:
    """One rank as stored in its row."""

    rank: int
    replica: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error_at: datetime | None = None
    is_stopped: bool = False
    is_connection_error: bool = False
    step: int | None = None
    last_line_at: datetime | None = None
    output: LastOutput | None = None

    @property
    def failed_at(self) -> datetime:
        return self.error_at or self.ended_at or _EVER


@dataclass(frozen=True)
class ReplicaFacts:
    name: str
    state: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    ended_at: datetime | None = None
    node: str = ""


@dataclass(frozen=True)
class AttemptFacts:
    """The rows of one attempt. `phase`, `stop_reason` and `message` are empty unless it is the job's newest."""

    phase: str = ""
    stop_reason: str = ""
    message: str = ""
    ranks: tuple[RankFacts, ...] = ()
    replicas: tuple[ReplicaFacts, ...] = ()


@dataclass(frozen=True)
class Failure:
    """The verdict. `rank` is None if a replica failed before it had ranks, or the whole attempt was ended.

    `explanation` is the end in words, `headline` the error itself. `traceback_rank`: the rank whose lines are shown, if
    the named one printed nothing.
    """

    rank: int | None
    replica: str
    exit_code: int | None
    signal: int | None
    at: datetime | None
    explanation: str
    last_lines: list[str] = field(default_factory=list)
    kind: str = Kind.UNKNOWN
    headline: str = ""
    traceback: list[str] = field(default_factory=list)
    certainty: str = _LIKELY
    traceback_rank: int | None = None
    has_stopped_others: bool = False  # ranks that ended after it were stopped by their launchers because of it
    after_end: bool = False  # it became this one by reports that came after the attempt had ended
    node: str = ""  # that it blames (blame.py); empty for most

    @property
    def hint(self) -> str:
        """Return what to change, empty for most errors."""
        return hints.of(self.headline)


Read = Callable[[RankFacts | ReplicaFacts], LastOutput]


def nothing(_: RankFacts | ReplicaFacts) -> LastOutput:
    return LastOutput()


def judge(facts: AttemptFacts, *, read: Read = nothing) -> Failure | None:
    """Return the verdict, None while nothing failed. `read` returns a process's output if its agent did not send it."""
    if facts.stop_reason in _NOT_A_FAILURE:
        return None
    if wanted := _WANTED.get(facts.stop_reason):  # type: ignore[call-overload]  # a StrEnum's text is its value
        return _of_attempt(wanted, facts)
    return _of_ranks(facts, read) or _of_replicas(facts, read) or _of_waiting(facts)


def first_own(ranks: Iterable[RankFacts]) -> RankFacts | None:
    """Return the first failing rank by the rows: the earliest that failed by itself, echoes last."""
    own = [one for one in ranks if one.state == "failed" and not one.is_stopped]
    return min(own, key=lambda one: (_is_echo(one), one.failed_at, one.rank), default=None)


# ---- ranks


def _of_ranks(facts: AttemptFacts, read: Read) -> Failure | None:
    first = first_own(facts.ranks)
    if first is not None and (quoted := _quoted(first, facts.ranks)):
        return _less_sure(of_rank(quoted, facts.replicas, read))
    if first is not None and not _is_echo(first):
        found = of_rank(first, facts.replicas, read)
        others = any(one.is_stopped and (one.ended_at or _EVER) >= first.failed_at for one in facts.ranks)
        return replace(found, has_stopped_others=others)
    raised = [one for one in facts.ranks if one.is_stopped and _has_raised(one)]
    if raised:  # stopped while it was ending by its own error: the connections it closed ended the others first
        return _less_sure(of_rank(min(raised, key=lambda one: one.failed_at), facts.replicas, read))
    if first is None:
        return None
    culprit = _broken(facts.replicas, before=first.failed_at)
    if culprit is not None:
        return _of_replica(culprit, read)
    output = _output_of(first, read)
    return _behind_echoes(facts, first, output, read=read) or _less_sure(of_rank(first, facts.replicas, read))


def of_rank(rank: RankFacts, replicas: Sequence[ReplicaFacts] = (), read: Read = nothing) -> Failure:
    output = _output_of(rank, read)
    words, (kind, certainty) = judged(output, rank.exit_code, rank.signal)
    reason = next((one.reason for one in replicas if one.name == rank.replica and one.reason), "")
    if rank.signal == SIGKILL and (of_reason := failure_kinds.of_reason(reason)):
        kind, certainty, words = *of_reason, words or reason
    if _has_outlived(rank, output):
        certainty = _LIKELY
    ending = exits.explained(rank.exit_code, rank.signal)
    lines = shown(output)
    return Failure(
        rank.rank, rank.replica, rank.exit_code, rank.signal, rank.ended_at, f"rank {rank.rank} {ending}",
        last_lines=lines or output.last_lines, kind=kind,
        headline=_cut(f"rank {rank.rank}: {words}" if words else f"rank {rank.rank} {ending}"),
        traceback=lines, certainty=certainty, traceback_rank=rank.rank if lines else None,
    )  # fmt: skip


def _has_outlived(rank: RankFacts, output: LastOutput) -> bool:
    """Whether a rank still printed some time after its traceback, on any stream: it may have been caught."""
    chain = chain_of(output)
    if chain is None or is_from_hook(output, chain) or rank.error_at is None or rank.last_line_at is None:
        return False
    return rank.last_line_at - rank.error_at > OUTLIVED


def _quoted(first: RankFacts, ranks: Iterable[RankFacts]) -> RankFacts | None:
    """Return another rank whose error all ranks raise, as a failed distributed checkpoint does: it names the rank."""
    lines = (*first.output.traceback, *first.output.stderr) if first.output else ()
    named = {int(found[1]) for line in lines if (found := tracebacks.QUOTED_RANK.match(tracebacks.clean(line)))}
    if not named or first.rank in named:
        return None
    failed = [one for one in ranks if one.rank in named and one.state == "failed"]
    return min(failed, key=lambda one: (one.failed_at, one.rank), default=None)


def _behind_echoes(facts: AttemptFacts, first: RankFacts, output: LastOutput, *, read: Read) -> Failure | None:
    """Judge an attempt in which every rank that failed by itself only lost or waited for another one: find that one."""
    teller = next((one for one in facts.ranks if one.output and _named_late(one.output)), first)
    # in a monitored barrier one rank names the late one, the others only lose the connection to that rank
    if teller is not first:
        first, output = teller, teller.output or output
    echo, (kind, _) = judged(output, first.exit_code, first.signal)
    named = _named_late(output)
    left = [one for one in facts.ranks if _has_left(one, before=first.failed_at)]
    silent = [one for one in facts.ranks if one.started_at and not _has_ended_itself(one) and not _has_waited(one)]
    if culprit := next((one for one in facts.ranks if one.rank in named), None):
        what = f"did not come while rank {first.rank} waited for it"
    elif left:
        culprit = min(left, key=lambda one: (one.ended_at or _EVER, one.rank))
        what = f"left with exit code 0 while rank {first.rank} still needed it"
    elif silent and (len(silent) == 1 or len(silent) < len(facts.ranks) - 1):
        culprit = min(silent, key=lambda one: (one.step or 0, one.last_line_at or _EVER, one.rank))
        what = f"silent while rank {first.rank} waited for it"
    else:
        return None
    kind, teller, words = kind if kind in ECHOES else Kind.CONNECTION_LOST, first, f"{what} ({echo})" if echo else what
    culprit_output = _output_of(culprit, read)
    own = of_thread(culprit_output)
    if own is not None and own[1][0] not in ECHOES:  # one of its threads died, and it waits for that thread
        words, (kind, _), teller, output = *own, culprit, culprit_output
    lines = shown(output)
    return Failure(
        culprit.rank, culprit.replica, culprit.exit_code, culprit.signal, culprit.ended_at,
        f"rank {culprit.rank}: {what}",
        last_lines=lines or output.last_lines, kind=kind,
        headline=_cut(f"rank {culprit.rank}: {words}"),
        traceback=lines, certainty=_LIKELY, traceback_rank=teller.rank if lines else None,
    )  # fmt: skip


def _has_left(rank: RankFacts, *, before: datetime) -> bool:
    """Whether a rank succeeded while others still needed it: its connections close before its interpreter ends."""
    return rank.state == "succeeded" and rank.ended_at is not None and rank.ended_at - LEAVING <= before


def _has_ended_itself(rank: RankFacts) -> bool:
    return rank.state in ("succeeded", "waiting") or (rank.state == "failed" and not rank.is_stopped)


def _has_waited(rank: RankFacts) -> bool:
    """Whether it was stopped after it had printed that it lost or missed another rank."""
    if rank.output is None:
        return rank.error_at is not None
    return _is_echo(rank)


def _has_raised(rank: RankFacts) -> bool:
    chain = chain_of(rank.output)
    if chain is None or rank.error_at is None or chain.is_harmless or tracebacks.is_report(chain):
        return False
    if chain.raised[-1].short_name in ("KeyboardInterrupt", "SystemExit"):
        return False
    return error_kinds.of_chain(chain)[0] not in ECHOES


def _named_late(output: LastOutput) -> set[int]:
    found = next(filter(None, map(_NAMED_LATE.search, (*output.traceback, *output.stderr))), None)
    return {int(one) for one in re.findall(r"\d{1,7}", found[1])} if found else set()


def _is_echo(rank: RankFacts) -> bool:
    if rank.output is None:
        return rank.is_connection_error
    return judged(rank.output, rank.exit_code, rank.signal)[1][0] in ECHOES


def _output_of(rank: RankFacts, read: Read) -> LastOutput:
    return read(rank) if rank.output is None else rank.output


# ---- replicas


def _broken(replicas: Iterable[ReplicaFacts], *, before: datetime) -> ReplicaFacts | None:
    """Return a replica that was lost as a whole, so that the other replicas' ranks could only lose it."""
    gone = [one for one in replicas if one.state == ReplicaState.LOST]
    gone += [one for one in replicas if one.state == ReplicaState.FAILED and failure_kinds.of_reason(one.reason)]
    gone += [
        one
        for one in replicas
        if one.state == ReplicaState.FAILED and one.signal == SIGKILL and (one.ended_at or _EVER) <= before
    ]
    return next(iter(gone), None)


def _of_replicas(facts: AttemptFacts, read: Read) -> Failure | None:
    ended = [one for one in facts.replicas if one.state in (ReplicaState.FAILED, ReplicaState.LOST)]
    # While an attempt is being ended SIGTERM is our own, unless the cluster gives a reason for sending one.
    ended = [
        one
        for one in ended
        if not facts.stop_reason
        or exits.signal_of(one.exit_code, one.signal) != SIGTERM
        or failure_kinds.of_reason(one.reason)
    ]
    ended.sort(key=lambda one: (one.state != ReplicaState.LOST, one.ended_at or _EVER, one.name))
    if not ended:
        return None
    found = _of_replica(ended[0], read)
    is_echo = found.kind in (Kind.NODE_LOST, *ECHOES) and ended[0].state == ReplicaState.FAILED
    if is_echo and not ended[0].reason:  # a driver that lost another replica
        others = (_of_replica(one, read) for one in ended[1:] if _may_have_been_lost(one, by=ended[0]))
        return next((_less_sure(one) for one in others if one.kind != Kind.UNKNOWN), found)
    states = {one.state for one in facts.ranks if one.replica == found.replica}
    if found.exit_code and found.headline == found.explanation and states == {"succeeded"}:
        words = f"{found.explanation}, although its ranks succeeded"
        return replace(found, explanation=words, headline=words)
    return found


def _may_have_been_lost(replica: ReplicaFacts, *, by: ReplicaFacts) -> bool:
    """Whether its end may be why the other one failed; whoever ends much later, or on request, was stopped by Muster."""
    is_later = (replica.ended_at or _EVER) > (by.ended_at or _EVER - NOTICED) + NOTICED
    return replica.reason not in ASKED_FOR and not is_later


def _of_replica(replica: ReplicaFacts, read: Read) -> Failure:
    output = LastOutput() if replica.state == ReplicaState.LOST else read(replica)
    words, (kind, certainty) = judged(output, replica.exit_code, replica.signal)
    ending = exits.explained(replica.exit_code, replica.signal)
    found = failure_kinds.of_reason(replica.reason)
    if replica.state == ReplicaState.LOST:
        kind, certainty = found or (Kind.NODE_LOST, _LIKELY)
        words, ending = "", f"vanished: {replica.reason or 'it ended without reporting how'}"
    elif found:
        (kind, certainty), words = found, replica.reason
    elif replica.reason:
        words = words or replica.reason
    lines = shown(output)
    return Failure(
        None, replica.name, replica.exit_code, replica.signal, replica.ended_at,
        f"{replica.name}: {replica.reason}" if replica.reason else f"{replica.name} {ending}",
        last_lines=lines or output.last_lines, kind=kind,
        headline=_cut(f"{replica.name}: {words}" if words else f"{replica.name} {ending}"),
        traceback=lines, certainty=certainty,
    )  # fmt: skip


# ---- attempts without a failed replica


def _of_waiting(facts: AttemptFacts) -> Failure | None:
    """Judge replicas that do not come up: their reason is more specific than the elapsed time."""
    is_late = facts.stop_reason == StopReason.START_TIMEOUT
    if not is_late and facts.phase != Phase.STARTING:
        is_failure = facts.stop_reason in (StopReason.FAILED, StopReason.RETRY) and facts.message
        return _of_attempt(Kind.UNKNOWN, facts) if is_failure else None
    waiting = [one for one in facts.replicas if one.state == ReplicaState.PENDING and one.reason]
    reasons = ((one, failure_kinds.of_reason(one.reason)) for one in waiting)
    for replica, found in reasons:
        if found is not None:
            headline = _cut(f"{replica.name}: {replica.reason}")
            kind, certainty = found
            return Failure(
                None, replica.name, None, None, None, headline, kind=kind, headline=headline,
                certainty=certainty if is_late else _LIKELY,
            )  # fmt: skip
    if not is_late:
        return None
    found_late = _of_attempt(Kind.START_TIMEOUT, facts)
    if waiting:
        words = _cut(f"{facts.message}; {waiting[0].name}: {waiting[0].reason}")
        found_late = replace(found_late, replica=waiting[0].name, headline=words)
    return found_late


def _of_attempt(kind: Kind, facts: AttemptFacts) -> Failure:
    words = _cut(facts.message or kind.replace("_", " "))
    certainty = _LIKELY if kind is Kind.UNKNOWN else _SURE
    if kind is Kind.UNKNOWN and (found := failure_kinds.of_reason(words) or failure_kinds.of_words(words)):
        kind, certainty = found
    return Failure(None, "", None, None, None, words, kind=kind, headline=words, certainty=certainty)


def _less_sure(failure: Failure) -> Failure:
    return replace(failure, certainty=_LIKELY)


def _cut(text: str) -> str:
    """Shorten to one line by cutting the middle: wrapping messages come before the error itself, as in Go's."""
    line = " ".join(text.split())
    if len(line) <= HEADLINE_CHARACTERS:
        return line
    return f"{line[: HEADLINE_CHARACTERS - END_CHARACTERS - 3]} … {line[-END_CHARACTERS:]}"

"""Apply agents' batches: rank states, log segments, metrics and samples. All or nothing, guarded by the batch number.

A batch is applied once: it is read against the current rows, its text is stored, and one statement writes it only if
the replica's number is still the previous one. Log text is stored before the rows that refer to it.
"""

from typing import Any

from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from common import faultpoints
from common.errors import NotAllowed
from common.signals import doorbell
from jobs import frameworks
from jobs.core import lonely_ranks, thinning, unexpected_ranks, working_folders
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import LAUNCHER, Batch, Item
from jobs.logs import storage, usage
from jobs.models import Job, RemovedJob
from volumes import services as volumes

from . import checkpoint_rows, container_log_format, replica_rows, translate, turns
from .notes import note_latest, note_once
from .replica_rows import ReplicaRow, known_names, note_names

LINES_ONCE = "segment_lines_once"  # the name of a LogSegment constraint


class NothingHere(Exception):
    """A known agent meets an empty database. It must not end its replica: a restored backup may know it."""


def apply_batch(*, identity: AgentIdentity, batch: Batch) -> tuple[int, list[dict[str, Any]]]:
    """Apply one batch. Return the last number applied and commands for the agent.

    Raises NotAllowed if there is no such replica, whose agent must stop; NothingHere if there is no job at all, and the
    agent must retry; InvalidInput for what no row can hold; and NoRoom while the log store may still recover, so that the agent keeps the batch and retries.
    """
    row = _find(identity)
    if row.is_next(batch.seq):
        new = translate.unplanned(batch, positions=row.positions, planned=row.world)
        if new and not row.is_over and replica_rows.add_ranks(row, new):
            row = _find(identity)
        if row.is_mirrored:
            batch = container_log_format.without_stored_lines(batch, row.own_positions)
        changes = translate.read(batch, baseline=row.baseline(known_names(row.job)), now=timezone.now().timestamp())
        path = _store(identity, row, batch, changes=changes)
        if changes.checkpoints and checkpoint_rows.record(
            job=row.job, attempt=identity.attempt, listing=changes.checkpoints
        ):  # before the batch's number: after a death between the two the same is written again
            changes.what.add("checkpoints")
        is_for_judge = _write(row, batch, changes, path=path)
        if is_for_judge is None:
            row = _find(identity)  # the same batch arrived twice at once; the other one is as good
            return row.batch_seq, _commands(row)
        _notify(row, changes, identity=identity, is_for_judge=is_for_judge)
        return batch.seq, _commands(row)
    if row.is_unjudged:
        _wake(row.job)  # the process that wrote the batch may have died before it did so
    return row.batch_seq, _commands(row)


def apply_container_log(*, identity: AgentIdentity, row: ReplicaRow, items: tuple[Item, ...]) -> bool:
    """Store lines from the container's own log that are new to `row`.

    Returns False if another writer was first, or nothing was stored. These lines are no batch of the agent, so its
    number stays; that number guards the write, as does the rule that no line is stored twice.
    """
    batch = Batch(row.batch_seq, 0.0, items)
    changes = translate.read(batch, baseline=row.baseline(frozenset()), now=timezone.now().timestamp())
    try:
        is_for_judge = _write(row, batch, changes, path=_store(identity, row, batch, changes=changes))
    except storage.NoRoom:
        return False
    if is_for_judge is None:
        return False
    _notify(row, changes, identity=identity, is_for_judge=is_for_judge)
    return True


def _write(row: ReplicaRow, batch: Batch, changes: translate.RowChanges, *, path: str) -> bool | None:
    """Write the changes, as `replica_rows.write` does.

    If the same lines come from the agent and from its container's log, the first ones are kept.
    """
    try:
        with faultpoints.around("ingest.apply"):
            is_for_judge = replica_rows.write(row, seq=batch.seq, changes=changes, path=path)
        if is_for_judge is not None and changes.stored_bytes:
            usage.note_stored(job=row.job, team=row.team, count=changes.stored_bytes)
        return is_for_judge
    except IntegrityError as error:
        if LINES_ONCE not in str(error):
            raise
        return None


def _find(identity: AgentIdentity) -> ReplicaRow:
    row = replica_rows.find(identity)
    if row is None and not (Job.objects.exists() or RemovedJob.objects.exists()):
        raise NothingHere(
            "there are no jobs here, though this server started the agent: its backup is still to be restored"
        )
    if row is None:
        raise NotAllowed("this attempt is not known here; the agent ends its replica")
    if is_shut_out(row):
        seconds = settings.MUSTER_AGENT_DRAIN_SECONDS
        raise NotAllowed(
            f"this attempt ended more than {seconds:g} s ago (MUSTER_AGENT_DRAIN_SECONDS); nothing more is accepted from it"
        )
    turns.note_team(row.job, row.team)
    return row


def is_shut_out(row: ReplicaRow) -> bool:
    """Whether the attempt is over, and also the time in which its agent may still deliver data."""
    return row.is_over and timezone.now().timestamp() > row.ended_at + settings.MUSTER_AGENT_DRAIN_SECONDS


def _store(identity: AgentIdentity, row: ReplicaRow, batch: Batch, *, changes: translate.RowChanges) -> str:
    """Store the batch's text and return the file's name. Text first: a row must never name bytes that do not exist."""
    data = _within_budget(row, batch, changes)
    try:
        path = storage.save(identity, seq=batch.seq, data=data)
    except storage.NoRoom as error:
        if error.is_patient:
            raise
        changes.lose_text(str(error))
        return ""
    changes.stored_bytes = len(data)
    return path


def _within_budget(row: ReplicaRow, batch: Batch, changes: translate.RowChanges) -> bytes:
    """Return the text to store. Text beyond a budget becomes gaps in `changes`, with a note that gives the reason."""
    data = b"".join(item.blob for item in batch.items)
    if not any(one["is_text"] for one in changes.segments):
        return b""
    if row.is_log_deleted:
        changes.lose_text("this job's log was deleted")
        return b""
    room = usage.room(job=row.job, team=row.team)
    last_at = {rank: position.at for rank, position in row.positions.items()}
    kept = thinning.thin(changes.segments, data, level=room.level, last_at=last_at, ended=changes.ended)
    changes.segments = kept.segments
    if kept.is_cut:
        changes.cut = room.about, room.words
    return kept.data


def _notify(row: ReplicaRow, changes: translate.RowChanges, *, identity: AgentIdentity, is_for_judge: bool) -> None:
    attempt = identity.attempt
    for what in sorted(changes.what):
        doorbell.hint(job=row.job, team=row.team, what=what)
    note_names(row.job, names=changes.names)
    if changes.has_replica_state or is_for_judge:
        _wake(row.job)
    if changes.lost:
        note_once(job=row.job, attempt=attempt, about="Log lines are missing: ", message=changes.lost)
    if changes.cut:
        note_once(job=row.job, attempt=attempt, about=changes.cut[0], message=changes.cut[1])
    if changes.left_out:
        words = f"this job has {translate.MAX_NAMES}; {min(changes.left_out)} and further ones are not kept"
        note_once(job=row.job, attempt=attempt, about="Too many series: ", message=words)
    place = f"{identity.role}-{identity.index}"
    if changes.folder:
        words = working_folders.note(changes.folder, replica=place)
        note_once(job=row.job, attempt=attempt, about=working_folders.ABOUT, message=words)
    if changes.volumes:
        cluster = Job.objects.values_list("queue__cluster", flat=True).get(pk=row.job)
        volumes.record_use(team=row.team, cluster=cluster, uses=changes.volumes, now=timezone.now())
    if changes.alone:
        words = lonely_ranks.note(changes.alone, replica=place)
        note_once(job=row.job, attempt=attempt, about=lonely_ranks.ABOUT, message=words)
    if changes.unexpected:
        processes = sum(rank != LAUNCHER for rank in row.positions)
        framework = frameworks.get(Job.objects.values_list("spec__framework", flat=True).get(pk=row.job))
        words = unexpected_ranks.advice(
            changes.unexpected, replica=place, processes=processes, world=row.world, more_ranks=framework.more_ranks
        )
        note_latest(job=row.job, attempt=attempt, about=unexpected_ranks.ABOUT, message=words)


def _wake(job: int) -> None:
    """Ask for a visit: also of a finished job, whose verdict a late report may change."""
    with faultpoints.around("ingest.wake"):
        Job.objects.filter(pk=job, finished_at=None).update(next_reconcile_at=timezone.now())
    doorbell.poke("jobs.reconcile", job)


def _commands(row: ReplicaRow) -> list[dict[str, Any]]:
    """Return commands for the agent; if its attempt is over, every answer orders it to stop."""
    return [{"do": "stop"}] if row.is_over else []

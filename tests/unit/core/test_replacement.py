"""Elastic attempts: which losses they survive, which replicas are replaced, and when they end. Tables and properties."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.lifecycle import STOP_TICK, JobView, Phase, StopReason, after, applied, decide
from jobs.core.replacement import LONGEST_PAUSE_SECONDS, MOST, ReplicaPlace, plan_replacements, replaced
from jobs.core.verdict import PORT_TAKEN, ReplicaSeen, ReplicaState, RoleView, Seen, verdict

T0 = datetime(2026, 1, 1, tzinfo=UTC)
FIRST = 0
TWO_TO_FOUR = (RoleView("worker", 4, completes=True, essential=True, least=2, anchor=FIRST),)
ALIVE = ("pending", "running")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def worker(index: int, state: str, **values) -> ReplicaSeen:
    return ReplicaSeen("worker", index, ReplicaState(state), **{"is_alive": state in ALIVE, **values})


def seen(*states: str, **values) -> Seen:
    replicas = tuple(worker(index, state) for index, state in enumerate(states))
    return Seen(replicas, **{"as_of": at(10), **values})


def view(phase: str = "running", **values) -> JobView:
    return JobView(
        **{"phase": Phase(phase), "phase_since": T0, "attempt": 1, "applied_at": T0, "roles": TWO_TO_FOUR, **values}
    )


@pytest.mark.parametrize(
    ("states", "expected", "words"),
    [
        ("running running running running", "open", ""),
        ("running running running failed", "open", ""),
        ("running running lost failed", "open", ""),
        ("running lost failed failed", "failed", "worker-1 vanished: it ended without reporting how; 1 of at least 2 replicas are left"),
        ("failed running running running", "failed", "worker-0 ended without an exit code; all others met there, so the attempt ends with it"),
        ("lost running running running", "failed", "worker-0 vanished"),
        ("succeeded running succeeded succeeded", "open", ""),  # the running replica ends soon
        ("succeeded succeeded succeeded succeeded", "succeeded", ""),
        ("succeeded succeeded failed lost", "succeeded", ""),  # the remaining replicas completed the job
        ("succeeded succeeded pending lost", "succeeded", ""),  # a replica that starts too late finds no rendezvous
        ("succeeded failed lost lost", "failed", "1 of at least 2"),
        ("succeeded failed pending pending", "failed", "worker-1 ended without an exit code; 1 of at least 2"),
        ("running succeeded succeeded succeeded", "open", ""),
    ],
)  # fmt: skip
def test_an_elastic_attempt_needs_its_first_replica_and_the_minimum_of_replicas(states, expected, words):
    replicas = [worker(index, state) for index, state in enumerate(states.split())]
    found = verdict(TWO_TO_FOUR, replicas)
    assert found.outcome == expected
    assert words in found.message


def test_a_replaced_replica_counts_only_once_it_runs():
    replicas = [worker(0, "running"), worker(1, "pending", incarnation=1), worker(2, "lost"), worker(3, "running")]
    assert verdict(TWO_TO_FOUR, replicas).outcome == "open"
    replicas[3] = worker(3, "pending", incarnation=2)
    found = verdict(TWO_TO_FOUR, replicas)
    assert (found.outcome, "1 of at least 2" in found.message) == ("failed", True)
    assert verdict(TWO_TO_FOUR, [*replicas[:2], worker(2, "running", incarnation=1), replicas[3]]).outcome == "open"


def test_a_taken_port_of_the_rendezvous_host_is_a_free_start():
    taken = Seen((worker(0, "failed", reason=PORT_TAKEN), worker(1, "running")), as_of=at(10))
    step = decide(view("starting"), taken, at(10))
    assert (step.reason, step.is_free_start) == (StopReason.RETRY, True)


@pytest.mark.parametrize(
    ("states", "to"),
    [
        ("running running pending pending", "running"),
        ("running pending pending pending", None),  # fewer than the least
        ("pending running running running", None),  # the rendezvous host is not running yet
    ],
)
def test_an_elastic_job_runs_as_soon_as_the_minimum_of_replicas_does(states, to):
    step = decide(view("starting"), seen(*states.split()), at(10))
    assert step.to == (to and Phase(to))
    assert to is None or step.message == "2 of 4 replicas run, which is enough"


def test_a_lost_replica_is_ended_first_and_then_replaced():
    step = decide(
        view(),
        Seen(
            (worker(0, "running"), worker(1, "running"), worker(2, "lost", is_alive=True), worker(3, "running")), at(10)
        ),
        at(10),
    )
    assert (step.to, step.end_replicas, step.replace, step.requeue_after) == (None, (("worker", 2),), (), STOP_TICK)
    step = decide(view(), seen("running", "running", "lost", "running"), at(10))
    assert (step.to, step.end_replicas, step.replace, step.requeue_after) == (None, (), (("worker", 2),), timedelta(0))


def test_only_an_absence_in_a_fresh_view_is_a_loss():
    gone = seen("running", "running", "absent", "running")
    assert decide(view(), gone, at(10)).replace == (("worker", 2),)
    assert decide(view(), replace(gone, is_fresh=False), at(10)).replace == ()
    assert decide(view(applied_at=at(11)), gone, at(10)).replace == ()
    assert decide(view(), Seen(), at(10)).replace == ()


def test_no_replica_is_replaced_before_the_attempt_is_confirmed():
    assert (
        decide(view("starting", applied_at=None), seen("pending", "failed", "running", "running"), at(10)).replace == ()
    )


def test_stale_observations_of_a_replaced_replica_do_not_count_for_its_successor():
    before = view()
    step = decide(before, seen("running", "running", "failed", "running"), at(10))
    now = after(before, step, at(10))
    assert now.places == {("worker", 2): ReplicaPlace(1, at(10))}
    # The same view again, and an absent replica, before and after the cluster has confirmed the replacement.
    for picture in (seen("running", "running", "failed", "running"), seen("running", "running", "absent", "running")):
        assert decide(now, picture, at(11)).replace == ()
        there = applied(now, at(12))
        assert decide(there, replace(picture, as_of=at(11)), at(13)).replace == ()
    assert there.places == {("worker", 2): ReplicaPlace(1, at(10), at(12))}
    assert there.applied_at == T0
    # A newer view without the replacement: it is lost as well, and is replaced after a pause.
    gone = seen("running", "running", "failed", "running", as_of=at(13))
    assert decide(there, gone, at(13)).replace == (("worker", 2),)


def test_a_replica_that_ended_before_its_start_was_confirmed_is_replaced_too():
    """The visit died after the cluster's answer and before it was recorded."""
    begun = view(places={("worker", 2): ReplicaPlace(1, T0)})
    ended = seen("running", "running", "failed", "running")
    ended = replace(ended, replicas=(*ended.replicas[:2], worker(2, "failed", incarnation=1), *ended.replicas[3:]))
    assert decide(begun, ended, at(10)).replace == (("worker", 2),)


def test_a_replica_that_keeps_ending_is_replaced_with_backoff_and_then_given_up():
    ended = [worker(0, "running"), worker(1, "running"), worker(2, "failed", incarnation=3)]
    for incarnation, pause in ((1, 2), (3, 8), (6, LONGEST_PAUSE_SECONDS)):
        place = ReplicaPlace(incarnation, T0, T0)
        assert plan_replacements(TWO_TO_FOUR, ended, {("worker", 2): place}, now=at(pause - 1)).after == timedelta(
            seconds=1
        )
        assert plan_replacements(TWO_TO_FOUR, ended, {("worker", 2): place}, now=at(pause)).replace == (("worker", 2),)
    stays = plan_replacements(TWO_TO_FOUR, ended, {("worker", 2): ReplicaPlace(MOST, T0, T0)}, now=at(10_000))
    assert (stays.replace, stays.after) == ((), None)


def test_no_replica_is_replaced_once_the_first_one_succeeded():
    assert decide(view(), seen("succeeded", "running", "failed", "running"), at(10)).replace == ()


@pytest.mark.parametrize("asked", ["is_cancel_requested", "is_suspended", "is_preempt_requested"])
def test_requests_of_users_take_precedence_over_a_replacement(asked):
    step = decide(view(**{asked: True}), seen("running", "running", "failed", "running"), at(10))
    assert (step.to, step.replace, step.end_replicas) == (Phase.STOPPING, (), ())


def test_a_new_attempt_begins_without_replacements():
    fresh = after(view("admitted", places=replaced({}, [("worker", 1)], T0)), decide(view("admitted"), Seen(), T0), T0)
    assert (fresh.phase, fresh.places) == (Phase.STARTING, {})


STATES = st.sampled_from(["absent", "pending", "running", "succeeded", "failed", "lost"])


@st.composite
def looks(draw) -> tuple[JobView, Seen]:
    count = draw(st.integers(1, 6))
    role = RoleView("worker", count, True, True, least=draw(st.integers(1, count)), anchor=FIRST)
    places = {
        ("worker", index): ReplicaPlace(draw(st.integers(1, MOST)), at(draw(st.integers(0, 9))), draw(st.sampled_from([None, at(5)])))
        for index in draw(st.sets(st.integers(1, 6)))
        if index < count
    }  # fmt: skip
    replicas = tuple(
        worker(index, draw(STATES), is_alive=draw(st.booleans()), incarnation=draw(st.integers(0, 3)))
        for index in range(count)
    )
    return view(roles=(role,), places=places), Seen(replicas, as_of=at(10))


@given(looks())
def test_a_decision_never_replaces_replicas_and_stops_the_attempt_at_once(look):
    """Only dead replicas of a continuing attempt are replaced, never the first one, and never twice at once."""
    job, found = look
    step = decide(job, found, at(10))
    by_index = {one.index: one for one in found.replicas}
    if step.to is Phase.STOPPING:
        assert (step.replace, step.end_replicas) == ((), ())
    for role, index in step.replace:
        assert index != FIRST
        assert not by_index[index].is_alive
        place = job.places.get((role, index))
        assert place is None or place.applied_at or by_index[index].incarnation == place.incarnation
    assert not set(step.replace) & set(step.end_replicas)
    again = after(job, step, at(10))
    assert decide(again, found, at(10)).replace == ()


@given(looks())
def test_an_attempt_fails_only_without_its_first_replica_or_with_too_few_left(look):
    job, found = look
    step = decide(job, found, at(10))
    (role,) = job.roles
    up = [one for one in found.replicas if one.state in (ReplicaState.RUNNING, ReplicaState.SUCCEEDED)]
    theirs = [one for one in up if one.incarnation == getattr(job.places.get((one.role, one.index)), "incarnation", 0)]
    if step.reason is StopReason.FAILED:
        assert FIRST not in {one.index for one in theirs} or len(theirs) < role.least
    if step.reason is StopReason.COMPLETED:
        assert FIRST in {one.index for one in theirs} and len(theirs) >= role.least

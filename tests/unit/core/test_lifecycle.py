from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.lifecycle import (
    HOLDS_QUOTA,
    LANDS_ON,
    STEPS,
    STRENGTH,
    TERMINAL,
    Cause,
    JobView,
    Phase,
    StopReason,
    after,
    applied,
    decide,
    settled,
)
from jobs.core.verdict import NO_IMAGE, PLACE_TAKEN, PORT_TAKEN, ReplicaSeen, ReplicaState, RoleView, Seen, verdict

T0 = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS = (RoleView("worker", 2, completes=True, essential=True),)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def worker(index: int, state: str, **values) -> ReplicaSeen:
    is_alive = state in ("pending", "running")
    return ReplicaSeen("worker", index, ReplicaState(state), is_alive, **values)


def seen(*states: str, as_of: float = 10, **values) -> Seen:
    return Seen(tuple(worker(index, state) for index, state in enumerate(states)), as_of=at(as_of), **values)


def view(phase: str, **values) -> JobView:
    return JobView(
        **{"phase": Phase(phase), "phase_since": T0, "attempt": 1, "applied_at": T0, "roles": WORKERS, **values}
    )


def test_the_tables_cover_every_stop_reason():
    assert set(LANDS_ON) == set(StopReason) == set(STRENGTH)
    assert not TERMINAL & HOLDS_QUOTA


def test_the_next_attempt_of_a_restored_job_skips_numbers_that_may_have_been_given():
    admitted = view("admitted", attempt=2, attempt_floor=12, applied_at=None)
    step = decide(admitted, seen(), at(1))
    started = after(admitted, step, at(1))
    assert (step.message, started.attempt) == ("attempt 12: creating replicas", 12)
    again = replace(started, phase=Phase.ADMITTED)
    assert after(again, decide(again, seen(), at(2)), at(2)).attempt == 13


@pytest.mark.parametrize(
    ("worker_states", "expected"),
    [
        (("succeeded", "succeeded"), "succeeded"),
        (("succeeded", "running"), "open"),
        (("running", "failed"), "failed"),
        (("running", "lost"), "failed"),
        (("pending", "pending"), "open"),
        (("succeeded",), "open"),  # the other one was never seen
    ],
)
def test_torchrun_workers_complete_and_are_essential(worker_states, expected):
    replicas = [worker(index, state) for index, state in enumerate(worker_states)]
    assert verdict(WORKERS, replicas).outcome == expected


@pytest.mark.parametrize(
    ("head", "other", "expected"),
    [
        ("succeeded", "running", "succeeded"),  # a role that does not complete cannot hold the job up
        ("succeeded", "failed", "succeeded"),
        ("running", "failed", "open"),  # not essential: its framework replaces it
        ("failed", "running", "failed"),
    ],
)
def test_a_ray_head_alone_decides_the_outcome(head, other, expected):
    roles = (RoleView("head", 1, True, True), RoleView("worker", 1, False, False))
    replicas = [ReplicaSeen("head", 0, ReplicaState(head)), ReplicaSeen("worker", 0, ReplicaState(other))]
    assert verdict(roles, replicas).outcome == expected


@pytest.mark.parametrize(
    ("case", "given_view", "given_seen", "to", "reason"),
    [
        ("a finished job stays", view("succeeded", is_cancel_requested=True), seen(), None, None),
        ("a queued job that is cancelled needs no door", view("queued", is_cancel_requested=True), Seen(), "cancelled", None),
        ("a queued job can be suspended", view("queued", is_suspended=True), Seen(), "suspended", None),
        ("a resumed job queues again", view("suspended"), Seen(), "queued", None),
        ("cancel beats resume", view("suspended", is_cancel_requested=True), Seen(), "cancelled", None),
        ("an admitted job starts", view("admitted"), Seen(), "starting", None),
        ("an admitted job can be cancelled", view("admitted", is_cancel_requested=True), Seen(), "cancelled", "cancelled"),
        ("it runs when all replicas do", view("starting"), seen("running", "running"), "running", None),
        ("it runs only once its creation is confirmed", view("starting", applied_at=None), seen("running", "running"), None, None),
        ("it waits for the last replica", view("starting"), seen("running", "pending"), None, None),
        ("a quick success may skip running", view("starting"), seen("succeeded", "succeeded"), "stopping", "completed"),
        ("success", view("running"), seen("succeeded", "succeeded"), "stopping", "completed"),
        ("success beats suspension", view("running", is_suspended=True), seen("succeeded", "succeeded"), "stopping", "completed"),
        ("cancel beats success", view("running", is_cancel_requested=True), seen("succeeded", "succeeded"), "stopping", "cancelled"),
        ("suspension beats failure", view("running", is_suspended=True), seen("failed", "running"), "stopping", "suspended"),
        ("preemption beats suspension", view("running", is_suspended=True, is_preempt_requested=True), seen("running", "running"), "stopping", "preempted"),
        ("failure without budget", view("running"), seen("failed", "running"), "stopping", "failed"),
        ("failure with budget", view("running", max_retries=1), seen("failed", "running"), "stopping", "retry"),
        ("a spent budget", view("running", max_retries=1, failures=1), seen("failed", "running"), "stopping", "failed"),
        ("an observed absence is a loss", view("running"), seen("absent", "running"), "stopping", "failed"),
        ("absence before the creation is none", view("running", applied_at=at(20)), seen("absent", "running"), None, None),
        ("absence in a stale view is none", view("running"), seen("absent", "running", is_fresh=False), None, None),
        ("no answer is no news", view("running"), Seen(), None, None),
        ("stopping waits for the last process", view("stopping", stop_reason=StopReason.FAILED), seen("failed", "running", is_sealed=True), None, None),
        ("stopping waits for the seal", view("stopping", stop_reason=StopReason.FAILED), seen("failed", "failed"), None, None),
        ("stopping waits for a newer look", view("stopping", stop_reason=StopReason.FAILED), seen("failed", "failed", as_of=0, is_sealed=True), None, None),
        ("it lands where the reason says", view("stopping", stop_reason=StopReason.RETRY), seen("failed", "failed", is_sealed=True), "admitted", "retry"),
        ("completed during its grace", view("stopping", stop_reason=StopReason.PREEMPTED), seen("succeeded", "succeeded", is_sealed=True), "succeeded", "completed"),
        ("but not after cancel", view("stopping", stop_reason=StopReason.CANCELLED), seen("succeeded", "succeeded", is_sealed=True), "cancelled", "cancelled"),
        ("a stronger reason replaces a weaker", view("stopping", stop_reason=StopReason.RETRY, is_cancel_requested=True), seen("running", "running"), "stopping", "cancelled"),
        ("a verdict is never replaced", view("stopping", stop_reason=StopReason.COMPLETED, is_cancel_requested=True), seen("running", "running"), None, None),
    ],
)  # fmt: skip
def test_one_step(case, given_view, given_seen, to, reason):
    step = decide(given_view, given_seen, at(10))
    assert (step.to, step.reason) == (to and Phase(to), reason and StopReason(reason)), case


@pytest.mark.parametrize(
    ("phase", "attempt", "message"),
    [
        ("queued", 0, "cancelled before it started"),
        ("suspended", 0, "cancelled before it started"),
        ("suspended", 2, "cancelled while it was suspended"),
        ("queued", 1, "cancelled while it waited"),
    ],
)
def test_a_cancelled_job_is_not_said_to_have_never_started_where_it_has(phase, attempt, message):
    step = decide(replace(view(phase), attempt=attempt, is_cancel_requested=True), Seen(), at(10))
    assert step.message == message


def test_a_deadline_counts_from_running():
    late = view("running", running_since=T0, deadline_seconds=60)
    assert decide(late, seen("running", "running"), at(59)).to is None
    assert decide(late, seen("running", "running"), at(61)).reason is StopReason.DEADLINE


NO_GPU = "no place for it: 0 of 9 nodes fit: 9 without enough free nvidia.com/gpu; ask for less, or wait"


@pytest.mark.parametrize(
    ("before", "reason", "ends"),
    [
        (f"worker-1: {NO_GPU.replace('9', '12')}", NO_GPU, StopReason.FAILED),  # other numbers, the same reason
        ("", NO_GPU, StopReason.START_TIMEOUT),
        ("worker-1: no place for it: 0 of 9 nodes fit: 9 without enough free memory", NO_GPU, StopReason.START_TIMEOUT),
        (f"worker-1: {NO_GPU}", "", StopReason.START_TIMEOUT),
        (f"worker-1: {NO_GPU}", "its image is being pulled", StopReason.START_TIMEOUT),
    ],
)
def test_a_start_that_found_no_place_twice_for_the_same_reason_fails_with_it(before, reason, ends):
    slow = view("starting", attempt=2, start_timeout_seconds=30, no_place_before=before)
    found = seen("running", "pending", as_of=30)
    late = replace(found, replicas=(found.replicas[0], replace(found.replicas[1], reason=reason)))
    assert decide(slow, late, at(29)).to is None
    step = decide(slow, late, at(31))
    assert step.reason is ends
    if ends is StopReason.FAILED:
        assert (
            step.message
            == f"no place for it in two starts of 30 s: worker-1: {NO_GPU.removeprefix('no place for it: ')}"
        )
        assert step.is_failure and LANDS_ON[ends] is Phase.FAILED


@pytest.mark.parametrize(
    ("failures", "notes"), [(0, "not retried: another attempt would have the same image"), (2, "")]
)
def test_an_image_that_does_not_exist_is_a_failure_that_no_retry_follows(failures, notes):
    gone = worker(1, "failed", reason=f"{NO_IMAGE}: x:9, by 2 answers of its registry")
    lost = Seen((worker(0, "lost"), gone), as_of=at(10))
    step = decide(view("starting", max_retries=2, failures=failures), lost, at(10))
    assert (step.to, step.reason, step.is_failure, step.note) == (Phase.STOPPING, StopReason.FAILED, True, notes)
    assert step.message == "worker-1: no such image: x:9, by 2 answers of its registry"


def test_an_elastic_job_without_enough_replicas_that_have_their_image_is_not_retried():
    roles = (RoleView("worker", 3, completes=True, essential=True, least=2, anchor=0),)
    gone = [worker(index, "failed", reason=f"{NO_IMAGE}: x:9") for index in (1, 2)]
    for replicas, words in (
        ([worker(0, "running"), *gone], "worker-1: no such image: x:9; 1 of at least 2 replicas are left"),
        (
            [worker(0, "failed", reason=f"{NO_IMAGE}: x:9"), *gone],
            "worker-0: no such image: x:9; all others met there, so the attempt ends with it",
        ),
    ):
        step = decide(view("starting", roles=roles, max_retries=5), Seen(tuple(replicas), as_of=at(10)), at(10))
        assert (step.reason, step.message) == (StopReason.FAILED, words)


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_a_job_whose_pod_its_cluster_preempts_is_queued_again_and_uses_no_retry(phase):
    taken = worker(1, "failed", exit_code=143, reason=f"{PLACE_TAKEN} (PreemptionByScheduler): default-scheduler: ...")
    ended = Seen((worker(0, "failed", exit_code=1), taken), as_of=at(10))  # which lost its peer
    step = decide(view(phase, max_retries=0), ended, at(10))
    assert (step.to, step.reason, step.is_failure) == (Phase.STOPPING, StopReason.PREEMPTED, False)
    assert step.message.startswith("worker-1 ") and PLACE_TAKEN in step.message
    stopping = after(view(phase, max_retries=0), step, at(10))
    landed = after(stopping, decide(stopping, replace(ended, is_sealed=True, as_of=at(20)), at(20)), at(20))
    assert (landed.phase, landed.failures) == (Phase.QUEUED, 0)


def test_a_start_timeout_is_not_applied_while_the_view_is_stale():
    slow = view("starting", start_timeout_seconds=30)
    assert decide(slow, seen("running", "pending"), at(31)).reason is StopReason.START_TIMEOUT
    assert decide(slow, seen("running", "pending", is_fresh=False), at(31)).to is None


def test_a_taken_port_costs_no_retry_for_the_first_few_starts():
    taken = Seen((worker(0, "failed", reason=PORT_TAKEN), worker(1, "running")), as_of=at(10))
    first = decide(view("starting"), taken, at(10))
    assert (first.reason, first.is_failure, first.is_free_start) == (StopReason.RETRY, False, True)
    assert decide(view("starting", free_starts=5), taken, at(10)).reason is StopReason.FAILED


def test_a_loss_is_detected_even_if_the_visit_died_before_confirming_creation():
    """The visit died after creating the last replica: the next visit confirms creation before the job counts as running."""
    starting = view("starting", applied_at=None)
    assert decide(starting, seen("running", "running", as_of=5), at(5)).to is None
    confirmed = applied(starting, at(6))
    running = after(confirmed, decide(confirmed, seen("running", "running", as_of=7), at(7)), at(7))
    assert (running.phase, running.applied_at) == (Phase.RUNNING, at(6))
    assert decide(running, seen("absent", "running", as_of=10), at(10)).reason is StopReason.FAILED


def test_a_preempted_job_keeps_its_retry_budget():
    stopping = after(
        view("running", failures=1),
        decide(view("running", is_preempt_requested=True), seen("running", "running"), at(5)),
        at(5),
    )
    assert (stopping.phase, stopping.failures) == (Phase.STOPPING, 1)
    landed = after(stopping, decide(stopping, seen("failed", "failed", is_sealed=True), at(10)), at(10))
    assert (landed.phase, landed.attempt, landed.is_preempt_requested) == (Phase.QUEUED, 1, False)


states = st.sampled_from(list(ReplicaState))


@given(
    st.sampled_from(list(Phase)), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3), st.tuples(states, states),
    st.booleans(), st.booleans(), st.sampled_from(list(StopReason)),
)  # fmt: skip
def test_only_the_documented_phase_transitions_are_taken(
    phase, cancel, suspend, preempt, failures, replicas, fresh, sealed, reason
):
    given_view = replace(
        view(phase), is_cancel_requested=cancel, is_suspended=suspend, is_preempt_requested=preempt, failures=failures,
        stop_reason=reason if phase is Phase.STOPPING else None, max_retries=2,
    )  # fmt: skip
    step = decide(given_view, seen(*replicas, is_fresh=fresh, is_sealed=sealed), at(10))
    if step.to is not None and step.to is not phase:
        assert (phase, step.to) in STEPS
    if phase in TERMINAL:
        assert step.to is None
    if step.to is Phase.STOPPING:
        assert step.reason is not None


@pytest.mark.parametrize("phase", ["queued", "admitted", "starting", "running", "stopping", "suspended"])
@pytest.mark.parametrize("is_now", [False, True])
def test_a_request_to_end_immediately_is_passed_on_in_every_phase(phase, is_now):
    asked = view(phase, is_cancel_requested=True, is_now_requested=is_now, stop_reason=StopReason.RETRY)
    assert decide(asked, seen("running", "running"), at(20)).is_now is is_now


@pytest.mark.parametrize(
    ("completes", "said"),
    [((True, True), "every replica ended with code 0"), ((True, False), "every head ended with code 0")],
)
def test_success_names_the_roles_that_had_to_end_well(completes, said):
    roles = tuple(RoleView(name, 1, one, True) for name, one in zip(("head", "worker"), completes, strict=True))
    ended = Seen(tuple(ReplicaSeen(role.name, 0, ReplicaState.SUCCEEDED) for role in roles), as_of=at(10))
    step = decide(view("running", roles=roles), ended, at(11))
    assert (step.to, step.message) == (Phase.STOPPING, said)


@pytest.mark.parametrize(
    ("retry_on", "never", "exit_code", "expected"),
    [
        ((), (), 1, "admitted"),
        ((75,), (), 75, "admitted"),
        ((75,), (), 1, "failed"),
        ((), (2,), 2, "failed"),
        ((), (2,), 1, "admitted"),
        ((75,), (2,), None, "admitted"),  # no process failed: a node was lost
        ((137,), (), 137, "admitted"),
    ],
)
def test_exit_codes_decide_about_a_retry_once_the_attempt_is_over(retry_on, never, exit_code, expected):
    stopping = view(
        "stopping", stop_reason=StopReason.RETRY, max_retries=3, failures=1, retry_on=frozenset(retry_on),
        never_retry_on=frozenset(never),
    )  # fmt: skip
    landing = decide(stopping, seen("failed", "failed", is_sealed=True), at(10))
    final = settled(landing, stopping, Cause("rank 1: KeyError", exit_code))
    assert (final.to, final.message) == (expected, "rank 1: KeyError")
    assert after(stopping, final, at(10)).failures == 1
    if expected == "failed":
        assert f"exit code {exit_code}" in final.note and final.requeue_after is None
    else:
        assert not final.note


def test_exit_codes_do_not_change_what_users_asked_for():
    stopping = view("stopping", stop_reason=StopReason.SUSPENDED, never_retry_on=frozenset({1}))
    landing = decide(stopping, seen("failed", "failed", is_sealed=True), at(10))
    assert settled(landing, stopping, Cause(exit_code=1)) == landing


@pytest.mark.parametrize(("max_retries", "reason"), [(1, StopReason.RETRY), (0, StopReason.FAILED)])
def test_a_failure_counts_against_the_budget(max_retries, reason):
    running = view("running", max_retries=max_retries)
    step = decide(running, seen("failed", "running"), at(20))
    assert (step.to, step.reason, step.is_failure) == (Phase.STOPPING, reason, True)
    assert after(running, step, at(20)).failures == 1


@pytest.mark.parametrize(
    ("reason", "to", "again"),
    [
        (StopReason.RETRY, Phase.ADMITTED, timedelta(0)),
        (StopReason.PREEMPTED, Phase.QUEUED, timedelta(0)),
        (StopReason.FAILED, Phase.FAILED, None),
        (StopReason.CANCELLED, Phase.CANCELLED, None),
        (StopReason.SUSPENDED, Phase.SUSPENDED, None),
    ],
)
def test_a_job_that_has_landed_is_visited_again_at_once_or_not_at_all(reason, to, again):
    step = decide(view("stopping", stop_reason=reason), seen("failed", "failed", is_sealed=True), at(20))
    assert (step.to, step.requeue_after) == (to, again)

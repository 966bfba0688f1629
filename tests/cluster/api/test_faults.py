"""Failures of the API server, the connection or a process: no object is duplicated, lost or invented."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.errors import Refused, Sealed, Unreachable
from jobs.clusters.kubernetes.api import client
from jobs.clusters.kubernetes.api.parallel import Limit
from jobs.clusters.kubernetes.build import labels
from jobs.clusters.kubernetes.facts.pods import read_pod
from jobs.clusters.kubernetes.watch.cache import Picture
from jobs.clusters.kubernetes.watch.reflector import Reflector
from jobs.core.attempt_ref import AttemptRef
from rig.gate import GateFault
from rig.plane import START_SECONDS
from tests.cluster.conftest import REF, end, expected, plan, pod_name, run_all, start_followers, states
from tests.support.machine import need
from tests.support.patience import until


@pytest.fixture
def gate(place):
    with place.gate() as gate:
        yield gate
        for one in place.clusters:
            one.close()
        place.clusters.clear()


@pytest.fixture
def gated(place, gate):
    return place.cluster(gate.kubeconfig(place.kubeconfig))


def names(count: int, attempt: int = 1) -> list[str]:
    return sorted(pod_name(index, attempt) for index in range(count))


def uids(place) -> dict[str, str]:
    return {name: one["metadata"]["uid"] for name, one in place.pods().items()}


# -- refused, delayed and lost responses


def run_at_once(cluster, replicas: int) -> None:
    """Run all replicas with a single `apply`, which must overcome every refusal itself."""
    cluster.apply(plan(replicas))
    until(lambda: set(states(cluster, replicas)) == {"running"})


def test_requests_refused_with_429_are_retried_after_the_given_delay(place, gate, gated):
    gate.refuse(429, verb="POST", kind="pods", times=25, retry_after="1")
    run_at_once(gated, 40)
    assert sorted(place.pods()) == names(40)
    assert gated.launchers[place.namespace].limit.at_once < Limit().at_once + 1, "it learned to ask for less at once"


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_server_error_does_not_fail_the_job(place, gate, gated, status):
    gate.refuse(status, verb="POST", kind="pods", times=5)
    run_at_once(gated, 10)
    assert sorted(place.pods()) == names(10)


DENIED = 'is forbidden: User "system:serviceaccount:muster-system:muster" cannot create resource in API group "" in the namespace'


@pytest.mark.parametrize("kind", ["services", "configmaps", "secrets", "pods"])
def test_a_server_that_has_not_read_its_roles_yet_fails_no_job(place, gate, gated, kind):
    """Regression: an API server denies everything in the moment after its start."""
    gate.refuse(403, verb="POST", kind=kind, times=1, words=DENIED)
    gate.refuse(500, verb="GET", kind="readyz", times=1)
    with contextlib.suppress(Unreachable):  # the next visit goes on; pods are asked for again at once
        gated.apply(plan(3))
    run_at_once(gated, 3)
    assert gate.seen["GET readyz"] == 1
    assert sorted(place.pods()) == names(3)


def test_a_right_that_is_missing_is_final(place, gate, gated):
    gate.refuse(403, verb="POST", kind="services", times=2, words=DENIED)
    with pytest.raises(Refused, match=r"the cluster refuses the Service of attempt 1: .*cannot create resource"):
        gated.apply(plan(3))


def test_a_lost_response_creates_no_second_pod(place, gate, gated):
    gate.lose(verb="POST", kind="pods", times=8)
    run_at_once(gated, 20)
    assert sorted(place.pods()) == names(20)
    assert gate.seen["POST pods"] == 28


@pytest.mark.parametrize("kind", ["services", "secrets", "configmaps"])
def test_a_launch_whose_first_responses_were_lost_is_continued(place, gate, gated, kind):
    gate.lose(verb="POST", kind=kind, times=1)
    with pytest.raises(Unreachable):
        gated.apply(plan())
    run_all(gated)
    assert len(place.admin.get(place.path("services")).json()["items"]) == 1


def test_a_lost_delete_is_repeated(place, gate, gated):
    run_all(gated)
    for kind in ("pods", "services"):
        gate.lose(verb="DELETE", kind=kind, times=1)

    def gone():
        try:
            gated.delete(REF, 3)
            return gated.observe(REF, expected()).is_sealed
        except Unreachable:
            return False

    until(gone)
    assert [trouble.times for trouble in gate.troubles] == [0, 0], "both were lost once"
    assert place.pods() == {}


# -- a launch taken over midway


def test_another_process_finishes_an_interrupted_launch(place, gate, gated):
    """The first process creates 25 pods, is refused from then on, and gives up when its time is over."""

    def launch() -> None:
        with pytest.raises(Unreachable, match="25 of 60 done"):
            gated.apply(plan(60))

    def is_late(verb: str, kind: str) -> bool:
        return (verb, kind) == ("POST", "pods") and gate.seen["POST pods"] > 25

    gate.troubles.append(GateFault(is_late, (429, "9"), times=10_000))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(launch)
        before = until(lambda: uids(place) if len(place.pods()) == 25 else None)
        run_all(place.cluster(), 60)
        after = uids(place)
        first.result(60)
    assert sorted(after) == names(60)
    assert {name: after[name] for name in before} == before
    assert uids(place) == after


def test_a_late_launch_creates_nothing_in_a_closed_attempt(place, cluster):
    run_all(cluster)
    end(cluster)
    with pytest.raises(Sealed):
        place.cluster().apply(plan())
    assert place.pods() == {}


def late_pod(place, index: int = 1) -> dict:
    """The body of a creation request that is already in flight."""
    made = place.pods()[pod_name(index)]
    kept = ("name", "labels", "ownerReferences")
    return {"spec": made["spec"], "metadata": {name: made["metadata"][name] for name in kept}}


def test_a_pod_that_arrives_after_the_end_is_seen_and_collected(place, cluster):
    run_all(cluster)
    late = late_pod(place)
    late["metadata"]["annotations"] = {"rig/hang": "true"}  # otherwise it may be collected before it is observed
    end(cluster)
    place.make("pods", late)
    assert not cluster.observe(REF, expected()).is_sealed, "what lives of a closed attempt is not hidden"
    place.annotate(pod_name(1), hang=None)
    until(lambda: place.pods() == {})
    assert cluster.observe(REF, expected()).is_sealed


def test_a_lagging_watch_does_not_hide_a_late_pod(place, gate, gated):
    """Quota is released once nothing lives, so the API server itself is queried, however fresh the cache is."""
    run_all(gated)
    late = late_pod(place)
    late["metadata"]["annotations"] = {"rig/hang": "true"}
    end(gated)
    until(lambda: gated.view().every_owner()[0].is_sealed and not gated.view().drawn(REF).pods)
    gate.held.add("pods")
    place.make("pods", late)
    seen = gated.observe(REF, expected())
    assert gated.view().drawn(REF).pods == (), "the picture does not know yet"
    assert not seen.is_sealed and seen.replicas[1].is_alive
    gate.held.clear()
    place.annotate(pod_name(1), hang=None)
    until(lambda: gated.observe(REF, expected()).is_sealed)


# -- watches that break


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_repeatedly_cut_watches_lose_no_change(place, gate, gated, seconds):
    gate.cut_watches_after = seconds
    run_all(gated, 20)
    for index in range(0, 20, 2):
        place.annotate(pod_name(index), exit_code=str(index % 4))
        time.sleep(0.1)  # so that cuts fall between changes
    wanted = ["succeeded" if index % 4 == 0 else "failed" if index % 2 == 0 else "running" for index in range(20)]
    until(lambda: states(gated, 20) == wanted)
    until(lambda: gate.seen["WATCH pods"] >= 3)


def test_cache_age_grows_while_the_connection_is_closed(place, gate):
    now = [0.0]
    cluster = place.cluster(gate.kubeconfig(place.kubeconfig), clock=lambda: time.time() + now[0])
    run_all(cluster)
    until(lambda: cluster.view().known(REF))
    gate.is_open, gate.cut_watches_after = False, 0.1
    closed = time.time()
    time.sleep(0.3)
    seen = cluster.observe(REF, expected())
    assert seen.as_of.timestamp() < closed + 0.3
    now[0] = 3600.0  # the cache is now an hour old
    with pytest.raises(Unreachable):
        cluster.observe(REF, expected())
    gate.is_open, gate.cut_watches_after = True, None
    until(lambda: states(cluster) == ["running", "running"])


@contextlib.contextmanager
def following(cluster, **said):
    """One more watch of the same pods, started now."""
    cluster.view()
    picture = Picture(lambda pod: (pod.place.run, pod.place.attempt), clock=time.time)
    reflector = Reflector(
        cluster.api, f"{cluster.view().path}/pods", wanted={"labelSelector": labels.OURS}, read=read_pod, picture=picture,
        key=lambda pod: (pod.place.run, pod.place.attempt), changed=lambda key: None, clock=time.time,
    )  # fmt: skip
    for name, value in said.items():
        setattr(reflector, name, value)
    followed = client.start(reflector.follow())
    try:
        yield reflector, picture
    finally:
        followed.cancel()


def test_a_watch_from_an_expired_version_is_relisted(place, gate, gated):
    run_all(gated)
    seen = gate.seen["WATCH pods"]
    gate.refuse(410, verb="GET", kind="pods", times=1)
    until(lambda: gate.troubles[0].times == 0)  # when the next watch is opened
    until(lambda: gate.seen["WATCH pods"] > seen + 1)
    reflector = gated.view().scope.pod_watch
    until(lambda: reflector.streams + reflector.lists >= 2)
    place.annotate(pod_name(0), exit_code="0")
    until(lambda: sorted(one.state for one in gated.view().drawn(REF).pods) == ["running", "succeeded"])


@pytest.mark.parametrize("can_stream", [True, False])
def test_the_initial_list_comes_through_the_watch_if_the_server_can_stream(place, cluster, can_stream):
    run_all(cluster)
    with following(cluster, can_stream=can_stream) as (reflector, picture):
        until(lambda: len(picture.of(("7-abc", 1))) == 2 and reflector.streams + reflector.lists)
        assert (reflector.streams > 0, reflector.lists > 0) == (can_stream, not can_stream)
        place.annotate(pod_name(0), exit_code="0")
        until(lambda: sorted(one.state for one in picture.of(("7-abc", 1))) == ["running", "succeeded"])
        assert reflector.streams + reflector.lists == 1


def test_a_server_that_refuses_streaming_lists_is_listed(place, gate, gated):
    gate.refuse(422, verb="GET", kind="pods", times=1)  # the first watch
    run_all(gated)
    assert not gated.view().scope.pod_watch.can_stream and gated.view().scope.pod_watch.lists == 1
    assert gated.view().scope.owner_watch.can_stream and gated.view().scope.owner_watch.lists == 0


def test_bookmarks_keep_the_cache_of_a_quiet_cluster_fresh(place, gate, gated):
    """Without any event or request for this attempt: the server ends each watch with a bookmark."""
    run_all(gated)
    until(lambda: gated.view().known(REF))
    before, asked = time.time(), gate.seen["GET pods"] + gate.seen["GET services"]
    until(lambda: gated.observe(REF, expected()).as_of.timestamp() > before + 1)
    assert gate.seen["GET pods"] + gate.seen["GET services"] == asked


# -- the API server itself


@pytest.fixture
def api_server(plane):
    server = plane.processes.get("kube-apiserver")
    need(server is not None, "only the rig's own API server can be killed")
    yield server
    server.go_on()
    if not server.is_running:
        server.start()
        server.until(plane.is_ready, seconds=START_SECONDS)
        start_followers(plane)


def test_a_killed_and_restarted_api_server_changes_nothing(place, plane, cluster, api_server):
    run_all(cluster, 10)
    before = uids(place)
    api_server.kill()
    with pytest.raises(Unreachable):
        cluster.apply(plan(10))
    with pytest.raises(Unreachable):
        place.cluster().observe(REF, expected(10))
    with pytest.raises(Unreachable):
        cluster.delete(AttemptRef("8-abc", 1), 3)
    api_server.start()
    api_server.until(plane.is_ready, seconds=START_SECONDS)
    start_followers(plane)
    until(lambda: uids(place) == before)
    place.annotate(pod_name(0), exit_code="4")
    until(lambda: states(cluster, 10) == ["failed"] + ["running"] * 9)
    cluster.apply(plan(10))
    assert uids(place) == before
    assert end(cluster, 10).is_sealed


def test_a_hanging_api_server_does_not_refresh_the_cache(place, cluster, api_server):
    run_all(cluster)
    api_server.pause()
    hung = time.time()
    assert cluster.observe(REF, expected()).as_of.timestamp() <= hung + 1
    with pytest.raises(Unreachable):
        place.cluster().observe(REF, expected())
    api_server.go_on()
    until(lambda: cluster.observe(REF, expected()).as_of.timestamp() > hung + 1)

"""The adapter's parts without a cluster: responses, limits, caches, options."""

import asyncio
import json

import pytest

from common.errors import InvalidInput, Refused, Unreachable
from jobs.clusters.kubernetes.api.answers import NEVER, ApiAnswer, need, need_created
from jobs.clusters.kubernetes.api.parallel import FIRST, MOST, Limit, each
from jobs.clusters.kubernetes.build import options
from jobs.clusters.kubernetes.facts.pods import Owner, read_pod
from jobs.clusters.kubernetes.watch.cache import Picture
from tests.support.builders import Clock


def answered(status: int, body: dict, retry_after: str = "") -> ApiAnswer:
    return ApiAnswer(status, json.dumps(body).encode(), retry_after)


GOOD = {"NAMESPACE": "jobs", "IMAGE": "x:1", "CONTROL_URL": "https://muster.example"}


# -- responses


@pytest.mark.parametrize("status, error", [(403, Refused), (422, Refused), (404, Refused), (400, Refused), (401, Unreachable), (409, Unreachable), (429, Unreachable), (500, Unreachable), (504, Unreachable)])  # fmt: skip
def test_a_failed_creation_is_final_or_retryable_by_its_status(status, error):
    with pytest.raises(error, match="exceeded quota: gpus"):
        need_created(answered(status, {"message": "exceeded quota: gpus"}), "pod x")


QUOTA = 'pods "x" is forbidden: exceeded quota: few, requested: {}, used: pods=3,requests.nvidia.com/gpu=8, limited: {}'


@pytest.mark.parametrize(
    ("case", "requested", "limited", "error"),
    [
        ("used up by others", "pods=1", "pods=3", Unreachable),
        ("used up by others", "pods=1,requests.nvidia.com/gpu=8", "pods=9,requests.nvidia.com/gpu=8", Unreachable),
        ("more than there is", "pods=1,requests.nvidia.com/gpu=8", "pods=9,requests.nvidia.com/gpu=4", Refused),
        (
            "what is not counted in whole numbers is not compared",
            "requests.memory=9Gi",
            "requests.memory=10G",
            Unreachable,
        ),
    ],
)
def test_a_quota_that_others_use_up_is_waited_for(case, requested, limited, error):
    said = {"message": QUOTA.format(requested, limited)}
    with pytest.raises(error, match="exceeded quota: few"):
        need_created(answered(403, said), "pod x")
    with pytest.raises(Refused):
        need_created(answered(403, {"message": "failed quota: few: must specify limits.cpu"}), "pod x")


def test_a_quota_says_what_it_never_has():
    answer = answered(
        403, {"message": QUOTA.format("pods=1,requests.nvidia.com/gpu=8", "pods=9,requests.nvidia.com/gpu=16")}
    )
    assert answer.beyond_quota({"pods": 2, "requests.nvidia.com/gpu": 16}) == ""
    said = "32 requests.nvidia.com/gpu, of which it allows 16 in all"
    assert answer.beyond_quota({"pods": 4, "requests.nvidia.com/gpu": 32}) == said
    assert answer.beyond_quota({"pods": 10, "requests.nvidia.com/gpu": 32}).startswith("10 pods, of which it allows 9")
    assert answered(403, {"message": "cannot create"}).beyond_quota({"pods": 10}) == ""


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500])
def test_a_failed_read_is_always_retryable(status):
    with pytest.raises(Unreachable, match="said"):
        need(answered(status, {"message": "said"}), "the pods")


def test_a_successful_response_that_is_not_json_is_not_read_as_a_pod():
    """For example the HTML page of a proxy."""
    answer = ApiAnswer(201, b"<html>")
    assert answer.body == {"message": "<html>"}
    assert read_pod(answer.thing) is None


def test_a_409_is_distinguished_by_its_reason():
    assert answered(409, {"reason": "AlreadyExists"}).is_there_already
    assert not answered(409, {"reason": "Conflict"}).is_there_already


@pytest.mark.parametrize("text, seconds", [("7", 7), ("", 1), ("soon", 1), ("-3", 1), ("99999", 30), ("9999999999", 1), ("²", 1)])  # fmt: skip
def test_retry_after_is_parsed_and_bounded(text, seconds):
    assert answered(429, {}, text).wait_seconds == seconds


# -- concurrency limit


def test_the_limit_grows_with_good_answers_and_halves_once_per_refusal():
    limit = Limit()
    for _ in range(10_000):
        limit.good()
    assert limit.at_once == MOST
    for _ in range(20):  # all requests in flight get the same refusal
        limit.crowded(now=100, wait=2)
    assert limit.at_once == MOST / 2
    assert not limit.is_open(0, now=101) and limit.is_open(0, now=102.1)
    assert not limit.is_open(MOST // 2, now=102.1)


def test_one_call_is_always_allowed():
    limit = Limit()
    for now in range(50):
        limit.crowded(now=now * 10, wait=1)
    assert limit.is_open(0, now=1000) and not limit.is_open(1, now=1000)


class Server:
    """Answers from a list, then with 201; counts concurrent calls."""

    def __init__(self, *first):
        self.first, self.now, self.most, self.calls = list(first), 0, 0, []

    async def __call__(self, thing):
        self.now += 1
        self.most = max(self.most, self.now)
        self.calls.append(thing)
        await asyncio.sleep(0)
        self.now -= 1
        answer = self.first.pop(0) if self.first else answered(201, {})
        if isinstance(answer, Exception):
            raise answer
        return answer


def go(server, count=200, **kwargs):
    return asyncio.run(each(range(count), server, limit=Limit(), seconds=kwargs.pop("seconds", 60), **kwargs))


def test_everything_is_called_once_and_in_parallel():
    server = Server()
    done = go(server)
    assert sorted(thing for thing, _ in done) == list(range(200)) == sorted(server.calls)
    assert 1 < server.most <= MOST


def test_requests_are_retried_after_429_server_errors_and_lost_responses():
    server = Server(answered(429, {}, "0"), answered(500, {}, "0"), Unreachable("cut"), answered(503, {}, "0"))
    done = go(server, 50)
    assert sorted(thing for thing, _ in done) == list(range(50))
    assert len(server.calls) == 54


def test_a_final_refusal_stops_further_requests():
    server = Server(answered(403, {"message": "exceeded quota"}))
    done = go(server, 2000, stop_at=NEVER)
    assert any(answer.status == 403 for _, answer in done)
    assert len(server.calls) <= FIRST + 1


def test_a_timeout_reports_the_number_of_finished_calls():
    class Never(Server):
        async def __call__(self, thing):
            return answered(429, {"message": "too many requests"}, "0")

    with pytest.raises(Unreachable, match="0 of 5 done, then: too many requests"):
        go(Never(), 5, seconds=0.2)


def test_a_visit_ends_long_before_the_renewal_of_its_lease_stops():
    from jobs.clusters.kubernetes.adapter import LAST_SECONDS, LOOK_SECONDS
    from jobs.clusters.kubernetes.launch import LAUNCH_SECONDS
    from jobs.clusters.kubernetes.teardown import END_SECONDS
    from jobs.control.lease_renewal import LONGEST_SECONDS

    assert LOOK_SECONDS + max(LAUNCH_SECONDS, END_SECONDS) + LAST_SECONDS < LONGEST_SECONDS / 2


# -- caches


def owner(name: str = "m-1-1", *, uid: str = "a", version: int = 1, run: str = "1", is_sealed: bool = False) -> Owner:
    return Owner(name, uid, version, run, 1, is_sealed, is_ending=False)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def picture(clock) -> Picture[tuple[str, int], Owner]:
    return Picture(lambda one: (one.run, one.attempt), clock=clock.seconds)


def test_an_older_version_does_not_replace_a_newer_one(picture):
    assert picture.put(owner(version=5))
    assert not picture.put(owner(version=4, is_sealed=True))
    assert picture.of(("1", 1)) == (owner(version=5),)


def test_a_new_object_of_the_same_name_replaces_the_old_one(picture):
    picture.put(owner(version=5))
    assert picture.put(owner(uid="b", version=2))
    picture.drop(owner(version=9))
    assert picture.of(("1", 1)) == (owner(uid="b", version=2),)


def test_a_deleted_object_does_not_reappear_with_a_late_response(picture):
    picture.put(owner(version=5))
    picture.drop(owner(version=6))
    assert not picture.put(owner(version=5))
    assert picture.of(("1", 1)) == () and picture.gone(("1", 1)) == (owner(version=6),)


def test_a_new_list_replaces_the_cache_even_with_lower_versions(picture):
    """etcd was restored from a backup, so versions continue from an earlier number."""
    picture.put(owner(version=500))
    picture.put(owner("m-2-1", uid="b", run="2", version=501))
    changed = picture.replace([owner(version=20, is_sealed=True)], at=1000)
    assert changed == {("1", 1), ("2", 1)}
    assert picture.of(("1", 1)) == (owner(version=20, is_sealed=True),) and picture.of(("2", 1)) == ()
    assert picture.as_of == 1000


def test_an_object_that_is_listed_again_is_not_gone(picture):
    picture.put(owner())
    picture.drop(owner())
    picture.replace([owner()], at=5)
    assert picture.gone(("1", 1)) == () and picture.of(("1", 1)) == (owner(),)


def test_an_object_created_while_a_list_was_in_flight_is_kept(picture, clock):
    """The list has version 10; our creation returned version 12. An older object missing from the list is dropped."""
    asked = clock.seconds()
    clock.advance(1)
    picture.put(owner(version=12))
    picture.put(owner("m-2-1", uid="b", run="2", version=9))
    picture.replace([], at=asked, version=10)
    assert picture.of(("1", 1)) == (owner(version=12),) and picture.of(("2", 1)) == ()
    picture.replace([], at=clock.seconds() + 1, version=11)
    assert picture.of(("1", 1)) == (), "a list asked for later knows it"


def test_an_unchanged_list_reports_no_changes(picture):
    picture.replace([owner()], at=1)
    assert picture.replace([owner()], at=2) == set()


def test_deleted_objects_are_forgotten_after_a_while(picture, clock):
    picture.put(owner())
    picture.drop(owner())
    clock.advance(3600)
    picture.put(owner("m-2-1", uid="b", run="2"))
    picture.drop(owner("m-2-1", uid="b", run="2"))
    assert picture.gone(("1", 1)) == () and len(picture.gone(("2", 1))) == 1


# -- options


def test_the_required_options_are_sufficient():
    access, site = options.read(GOOD)
    assert (access.kubeconfig, site.namespace, site.user) == ("", "jobs", 1000)


def test_lists_and_maps_are_converted_to_the_types_of_the_site():
    _, site = options.read({**GOOD, "PULL_SECRETS": ["a"], "TOLERATIONS": [{"key": "k"}], "REQUESTS": {"cpu": "1"}})
    shape = site.shape
    assert shape.pull_secrets == ("a",) and shape.tolerations == ({"key": "k"},) and shape.requests == {"cpu": "1"}
    assert (shape.image, shape.pull_policy) == (GOOD["IMAGE"], "IfNotPresent")


@pytest.mark.parametrize(
    "name, value",
    [
        ("NAMESPACE", ""), ("NAMESPACE", "No Spaces"), ("NAMESPACE", 3), ("IMAGE", ""), ("IMAGE", None), ("CONTROL_URL", "muster"),
        ("USER", 0), ("USER", "root"), ("USER", True), ("REQUESTS", {"cpu": 4}), ("REQUESTS", "4"), ("PULL_SECRETS", "a"),
        ("CLAIMS", ["a"]), ("NAMSPACE", "typo"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(name, value):
    with pytest.raises(InvalidInput) as caught:
        options.read({**GOOD, name: value})
    assert [problem.field for problem in caught.value.problems] == [f"OPTIONS.{name}"]


def test_all_problems_are_reported_at_once():
    with pytest.raises(InvalidInput) as caught:
        options.read({"USER": 0, "TYPO": 1})
    assert {problem.field for problem in caught.value.problems} == {
        "OPTIONS.NAMESPACE", "OPTIONS.IMAGE", "OPTIONS.CONTROL_URL", "OPTIONS.USER", "OPTIONS.TYPO"
    }  # fmt: skip


def test_every_option_is_documented():
    import re
    from pathlib import Path

    text = (Path(__file__).resolve().parents[4] / "docs/kubernetes.md").read_text()
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", text, re.M)
    documented = {name for row in rows for name in re.findall(r"[A-Z_]+", row)}
    assert documented == options.KNOWN

"""A flood is refused with 429 and a Retry-After; bursts and other users are not."""

import pytest
from django.test import Client

from accounts.models import Token
from common.limits.rates import MOST_BUCKETS, Buckets
from jobs.ingest import agent_tokens
from tests.support.builders import identity


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_minute_and_refills_steadily():
    clock = Clock()
    buckets = Buckets(clock)
    assert [buckets.take("a", per_minute=60) for _ in range(60)] == [0] * 60
    assert buckets.take("a", per_minute=60) == 1
    assert buckets.take("b", per_minute=60) == 0
    clock.now += 2
    assert [buckets.take("a", per_minute=60) for _ in range(3)] == [0, 0, 1]


def test_a_request_succeeds_after_the_returned_wait():
    clock = Clock()
    buckets = Buckets(clock)
    assert buckets.take("a", per_minute=1) == 0
    wait = buckets.take("a", per_minute=1)
    assert wait == 60
    clock.now += wait
    assert buckets.take("a", per_minute=1) == 0


def test_zero_means_no_limit():
    buckets = Buckets(Clock())
    assert {buckets.take("a", per_minute=0) for _ in range(1000)} == {0}


def test_the_number_of_buckets_is_bounded():
    clock = Clock()
    buckets = Buckets(clock)
    for number in range(MOST_BUCKETS + 1):
        buckets.take(str(number), per_minute=5)
    clock.now += 61
    buckets.take("last", per_minute=5)
    assert len(buckets.known) == 1


def sharing() -> Buckets:
    buckets = Buckets(Clock())
    buckets.wake = lambda: None
    return buckets


def test_what_others_took_counts_and_sinks_a_bucket_by_a_minute_at_most():
    clock = Clock()
    buckets = Buckets(clock)
    assert buckets.take("a", per_minute=60) == 0
    buckets.spend({"a": (58, 60), "b": (60, 60)})
    assert [buckets.take("a", per_minute=60) for _ in range(2)] == [0, 1]
    assert buckets.take("b", per_minute=60) == 1
    buckets.spend({"a": (10_000, 60)})
    assert buckets.take("a", per_minute=60) == 61
    clock.now += 61
    assert buckets.take("a", per_minute=60) == 0


def test_a_limit_from_elsewhere_does_not_outlive_the_first_request_here():
    buckets = Buckets(Clock())
    buckets.spend({"a": (1_000_000, 1_000_000), "b": (1, 1_000_000), "c": (1, 1)})
    assert buckets.take("a", per_minute=60) == 1
    assert [buckets.take("b", per_minute=60) for _ in range(61)] == [0] * 60 + [1]
    buckets.spend({"b": (1_000_000, 1_000_000)})
    assert buckets.take("b", per_minute=60) == 61


def test_others_are_told_of_keys_that_took_more_than_a_sixteenth():
    buckets = sharing()
    for _ in range(3):
        buckets.take("quiet", per_minute=6000)  # half a second allows 50
        buckets.take("unlimited", per_minute=0)
    for _ in range(4):
        buckets.take("busy", per_minute=6000)
    buckets.take("login", per_minute=60)
    assert buckets.drain(seconds=0.5) == {"busy": (4, 6000), "login": (1, 60)}
    assert buckets.drain(seconds=0.5) == {}


def test_refused_requests_are_not_told():
    buckets = sharing()
    assert [buckets.take("a", per_minute=2) for _ in range(9)].count(0) == 2
    assert buckets.drain(seconds=0.5) == {"a": (2, 2)}


def test_only_the_first_request_after_a_message_wakes():
    buckets, woken = sharing(), []
    buckets.wake = lambda: woken.append(1)
    for _ in range(2):
        buckets.take("a", per_minute=60)
        buckets.take("b", per_minute=60)
        buckets.drain(seconds=0.5)
    assert len(woken) == 2


def test_messages_make_no_more_buckets_than_there_may_be():
    clock = Clock()
    buckets = Buckets(clock)
    for turn in range(MOST_BUCKETS // 1000 + 2):
        buckets.spend({f"{turn} {number}": (1, 1) for number in range(1000)})
    assert len(buckets.named) == MOST_BUCKETS
    assert [buckets.take("mine", per_minute=1) for _ in range(2)] == [0, 60]
    clock.now += 61
    buckets.spend({"new": (1, 1)})
    assert set(buckets.named) == {"new"}


def test_the_api_counts_by_user_over_all_their_tokens(client: Client, people, settings):
    settings.MUSTER_RATE_USER = 3
    tokens = [Token.issue(people.owner, "x")[1] for _ in range(2)]
    ask = lambda token: client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"})  # noqa: E731
    assert [ask(tokens[number % 2]).status_code for number in range(4)] == [200, 200, 200, 429]
    refused = ask(tokens[0])
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    assert ask(Token.issue(people.teammate, "x")[1]).status_code == 200


def test_pages_count_by_user_too(as_, people, settings):
    settings.MUSTER_RATE_USER = 2
    owner = as_(people.owner)
    assert [owner.get("/queues").status_code for _ in range(3)] == [200, 200, 429]
    assert int(owner.get("/queues").headers["Retry-After"]) >= 1
    assert owner.get("/static/muster.css").status_code == 200


@pytest.mark.parametrize("path", ["/login", "/api/v1/login"])
def test_logins_count_by_address(people, settings, path):
    settings.MUSTER_RATE_LOGIN = 2
    knock = lambda address, name: Client(REMOTE_ADDR=address).post(path, {"username": name, "password": "x"})  # noqa: E731
    assert 429 not in [knock("192.0.2.1", name).status_code for name in ("a", "b")]
    assert knock("192.0.2.1", "c").status_code == 429
    assert knock("192.0.2.2", "c").status_code != 429


def test_each_agent_is_counted_separately(client: Client, lab, settings):
    settings.MUSTER_RATE_AGENT = 1
    job = lab.running()
    tokens = [agent_tokens.issue(identity(job, index)) for index in (0, 1)]
    ask = lambda token: client.get("/agent/v1/workspace", headers={"Authorization": f"Bearer {token}"})  # noqa: E731
    assert [ask(tokens[0]).status_code, ask(tokens[0]).status_code, ask(tokens[1]).status_code] == [204, 429, 204]


def test_twenty_submissions_a_second_are_within_the_limit(settings):
    clock = Clock()
    buckets = Buckets(clock)
    for _ in range(20 * 60 * 5):
        clock.now += 0.05
        assert buckets.take("script", per_minute=settings.MUSTER_RATE_USER) == 0

"""A lease is exclusive until it expires, and its token only grows."""

from datetime import UTC, datetime, timedelta

from jobs.core.lease import LEASE_SECONDS, Lease, is_mine, release, take

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SHORTLY, END = NOW + timedelta(seconds=LEASE_SECONDS - 1), NOW + timedelta(seconds=LEASE_SECONDS)


def test_a_free_lease_is_taken_with_the_next_token():
    assert take(Lease(token=7), "a", NOW) == Lease(8, "a", END)


def test_a_held_lease_is_not_taken_before_it_expires_even_by_its_owner():
    held = take(Lease(), "a", NOW)
    assert take(held, "b", SHORTLY) is None and take(held, "a", SHORTLY) is None
    assert take(held, "b", END) == Lease(2, "b", END + timedelta(seconds=LEASE_SECONDS))


def test_a_token_allows_writes_until_a_newer_one_exists_whatever_the_time():
    first = take(Lease(), "a", NOW)
    assert is_mine(first, 1)
    second = take(first, "b", END + timedelta(days=1))
    assert not is_mine(second, 1) and is_mine(second, 2)


def test_a_released_lease_has_no_owner_and_keeps_its_token():
    assert release(take(Lease(4), "a", NOW)) == Lease(5, "", None)

"""The client address of a request, which clients cannot forge."""

import asyncio
from ipaddress import ip_network

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from common.http.request_origin import NoteOrigin, Origin, client_address, origin, origin_of

PROXIES = [ip_network("10.0.0.0/8"), ip_network("::1")]


@pytest.mark.parametrize(
    ("remote", "forwarded", "expected"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # not through our proxy: the client may have forged the header
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.2.3.4, 198.51.100.1", "198.51.100.1"),  # our proxy wrote the last one, the client the first
        ("10.0.0.1", "1.2.3.4, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3", "10.0.0.3"),  # a client within the proxies' own network
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("::1", "2001:db8::7", "2001:db8::7"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("", "198.51.100.1", None),  # a Unix socket has no address
    ],
)
def test_a_header_counts_only_from_a_trusted_proxy(remote, forwarded, expected):
    assert client_address(remote, forwarded, PROXIES) == expected


@given(st.text(max_size=60))
def test_without_trusted_proxies_no_header_changes_anything(forwarded):
    assert client_address("203.0.113.7", forwarded, []) == "203.0.113.7"


def request(**headers):
    return RequestFactory().get("/", REMOTE_ADDR="203.0.113.7", headers=headers)


def test_the_user_agent_is_recorded_short_and_printable():
    found = origin_of(request(**{"User-Agent": "curl\x1b[31m/8\x00 " + "x" * 999}))
    assert found.user_agent.startswith("curl[31m/8 xxx")
    assert len(found.user_agent) == 200


def test_the_middleware_sets_the_origin_for_its_own_request_only():
    seen = []

    def answer(request):
        seen.append(origin())
        return HttpResponse()

    NoteOrigin(answer)(request())
    assert (seen, origin()) == ([Origin("203.0.113.7", "")], Origin())


def test_concurrent_requests_do_not_mix_up_their_origins():
    async def answer(asked):
        before = origin().ip
        await asyncio.sleep(0)
        return HttpResponse(f"{before} {origin().ip} {asked.META['REMOTE_ADDR']}")

    async def both():
        middleware = NoteOrigin(answer)
        factory = RequestFactory()
        asked = [factory.get("/", REMOTE_ADDR=f"203.0.113.{number}") for number in (1, 2)]
        return await asyncio.gather(*(middleware(one) for one in asked))

    for response in asyncio.run(both()):
        assert len(set(response.text.split())) == 1

"""Bytes on the socket of the real web process: no part parses as two requests what another parses as one."""

import socket
from urllib.parse import urlsplit

import pytest

from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture
def address(shared_site):
    parts = urlsplit(shared_site.url)
    return parts.hostname, parts.port


LAST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def said(address, sent: bytes) -> bytes:
    """Everything until the server closes; a last request asks it to, in case it still listens."""
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as door:
        door.sendall(sent + LAST)
        answer = b""
        while piece := door.recv(65536):
            answer += piece
    return answer


SMUGGLED = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def request(*headers: bytes, body: bytes = b"", method: bytes = b"POST", path: bytes = b"/healthz") -> bytes:
    head = [method + b" " + path + b" HTTP/1.1", b"Host: 127.0.0.1", *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "sent",
    [
        request(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
        request(b"Content-Length: 0", b"Content-Length: 44", body=SMUGGLED),
        request(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n" + SMUGGLED),
        request(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + SMUGGLED),
        request(b"Content-Length: +0", body=SMUGGLED),
        request(b"Content-Length: 0x0", body=SMUGGLED),
    ],
    ids=["both lengths", "two lengths", "two encodings", "blank before colon", "signed", "hexadecimal"],
)
def test_no_second_request_is_smuggled(address, sent):
    answer = said(address, sent)
    assert b'"database"' not in answer  # part of the answer of /readyz
    assert answer.startswith(b"HTTP/1.1 4"), answer[:200]


@pytest.mark.parametrize("name", [b"X-A: b\0c", b"X-A b: c", b"X-A\x01: b"])
def test_a_header_with_control_characters_or_spaces_is_refused(address, name):
    answer = said(address, request(name, method=b"GET"))
    assert b"200 OK" not in answer


def test_an_unknown_host_is_refused(address):
    sent = b"GET /healthz HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n"
    answer = said(address, sent)
    assert answer.startswith(b"HTTP/1.1 400") and b"elsewhere" not in answer


def test_an_endless_body_is_cut_off(address):
    """The client gets the answer and the connection is closed long before all announced bytes were sent."""
    sent = request(b"Content-Length: 99999999999", body=b"x" * 100_000, path=b"/api/v1/jobs")
    answer = said(address, sent)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_token_in_the_query_string_is_not_accepted(client, people):
    from accounts.models import Token

    _, text = Token.issue(people.owner, "x")
    for name in ("token", "access_token", "api_key", "Authorization"):
        assert client.get("/api/v1/me", {name: text}).status_code == 401
    assert client.get("/api/v1/me", headers={"Authorization": f"Bearer {text}"}).status_code == 200


def test_a_request_without_a_host_is_refused_by_http_1_1_only(address):
    assert said(address, b"GET /healthz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as door:
        door.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 200 OK" in door.recv(65536)

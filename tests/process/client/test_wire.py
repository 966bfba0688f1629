"""Whether to retry a call, and the message for each response. No network."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import httpx
import pytest
from muster import errors
from muster.http.call import Call, get
from muster.http.wire import Wire, seconds_until
from muster.jobs import calls
from muster.jobs.models import Login, Me

WIRE = Wire("https://lab", "t", chance=lambda: 1.0)
GET = get("/me", parse=Me.parse)
KEYED = calls.create_job({}, key="k")
PLAIN = calls.act(1, verb="cancel")
PUBLIC = Call("POST", "/login", Login.parse, json={}, is_public=True)
LOST = httpx.ConnectError("[Errno 111] Connection refused")


def reply(status: int, *, json: object = None, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=json, headers={name.replace("_", "-"): text for name, text in headers.items()})


def read(call: Call[object], answer: httpx.Response | httpx.TransportError) -> str:
    with pytest.raises(errors.MusterError) as caught:
        WIRE.read(call, reply=answer)
    return str(caught.value)


@pytest.mark.parametrize(("call", "is_tried_again"), [(GET, True), (KEYED, True), (PLAIN, False)])
@pytest.mark.parametrize("answer", [LOST, httpx.ReadTimeout("slow"), reply(502), reply(503), reply(504)])
def test_only_calls_that_may_happen_twice_are_retried(
    call: Call[object], is_tried_again: bool, answer: httpx.Response | httpx.TransportError
) -> None:
    assert (WIRE.pause(call, reply=answer, tried=1) is not None) is is_tried_again


@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 500])
def test_other_responses_are_not_retried(status: int) -> None:
    assert WIRE.pause(GET, reply=reply(status), tried=1) is None


def test_pauses_grow_to_a_limit_and_retries_end() -> None:
    patient = replace(GET, tries=12)

    assert [WIRE.pause(patient, reply=LOST, tried=tried) for tried in (1, 2, 3, 9)] == [0.2, 0.4, 0.8, 10.0]
    assert WIRE.pause(patient, reply=LOST, tried=12) is None


def test_pauses_are_randomized() -> None:
    assert replace(WIRE, chance=lambda: 0.0).pause(GET, reply=LOST, tried=1) == 0.1


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    assert WIRE.pause(GET, reply=reply(503, retry_after="7"), tried=1) == 7.0
    assert WIRE.pause(GET, reply=reply(429, retry_after="3"), tried=1) == 3.0
    assert WIRE.pause(GET, reply=reply(503, retry_after="3600"), tried=1) is None
    assert WIRE.pause(GET, reply=reply(503, retry_after="soon"), tried=1) == 0.2


def test_retry_after_may_be_a_date() -> None:
    now = datetime(2026, 11, 21, 10, 0, 0, tzinfo=timezone.utc)  # noqa: UP017

    assert seconds_until("Sat, 21 Nov 2026 10:00:09 GMT", now=now) == 9.0
    assert seconds_until("Sat, 21 Nov 2026 09:00:00 GMT", now=now) == 0.0


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (LOST, errors.Unreachable, "nothing answers at https://lab (connection refused): start the server"),
        (
            httpx.ConnectError("[Errno -2] Name or service not known"),
            errors.Unreachable,
            "cannot resolve the host name lab",
        ),
        (httpx.ConnectError("certificate verify failed"), errors.Unreachable, "SSL_CERT_FILE"),
        (httpx.RemoteProtocolError("went away"), errors.Unreachable, "lost the connection to https://lab (went away)"),
        (httpx.ConnectTimeout("x"), errors.TimedOut, "no connection to https://lab within 5 s"),
        (httpx.ReadTimeout("x"), errors.TimedOut, "https://lab did not answer within 30 s: it may be busy, try again"),
        (
            reply(401, json={"detail": "token expired"}),
            errors.Unauthorized,
            "token expired: run `muster login https://lab`",
        ),
        (reply(403, json={"detail": "only its owner may"}), errors.Forbidden, "only its owner may"),
        (reply(404, json={"detail": "Not found."}), errors.NotFound, "Not found"),
        (reply(409, json={"title": "Conflict"}), errors.Conflict, "Conflict"),
        (reply(429, json={}), errors.TooManyRequests, "the server answered 429: wait a minute"),
        (
            reply(500, json={"title": "Server error"}),
            errors.ServerError,
            "Server error: try again; if it keeps failing",
        ),
        (httpx.Response(502, text="<html>"), errors.ServerError, "the server answered 502: try again"),
        (httpx.Response(404, text="<html>"), errors.UnexpectedAnswer, "is it a Muster server? `muster login URL`"),
        (httpx.Response(200, text="<html>"), errors.UnexpectedAnswer, "is it a Muster server?"),
        (reply(200, json=[]), errors.UnexpectedAnswer, "cannot read"),
        (
            reply(301, location="https://lab2/"),
            errors.UnexpectedAnswer,
            "redirects to https://lab2/: log in with",
        ),
    ],
)
def test_every_failure_is_one_line_with_a_remedy(
    answer: httpx.Response | httpx.TransportError, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        WIRE.read(GET, reply=answer)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_job_is_named() -> None:
    assert read(calls.job(9), reply(404, json={"detail": "Not found."})) == (
        "no job 9 that you may see: `muster jobs` lists them"
    )


def test_a_wrong_password_does_not_advise_to_log_in() -> None:
    assert read(PUBLIC, reply(401, json={"detail": "wrong user name or password"})) == "wrong user name or password"


def test_every_wrong_field_is_reported_with_its_value() -> None:
    fields = [
        {"field": "nodes", "value": 0, "message": "must be at least 1"},
        {"field": "queue", "value": "nlp", "message": "no queue nlp"},
    ]

    assert read(KEYED, reply(422, json={"title": "Invalid", "errors": fields})) == (
        "nodes: must be at least 1 (you gave 0); queue: no queue nlp"
    )
    with pytest.raises(errors.Invalid) as caught:
        WIRE.read(KEYED, reply=reply(400, json={"detail": "cannot be submitted.", "errors": fields}))
    assert str(caught.value).startswith("cannot be submitted: nodes: must")
    assert [(error.field, error.value) for error in caught.value.problems] == [("nodes", 0), ("queue", "nlp")]


def test_without_a_token_no_request_is_sent() -> None:
    with pytest.raises(errors.NotLoggedIn, match="no token for https://lab: run `muster login https://lab`"):
        Wire("https://lab").request(GET)


def test_a_login_carries_no_token() -> None:
    assert "Authorization" not in WIRE.request(PUBLIC)["headers"]


@pytest.mark.parametrize(("url", "uses_proxy"), [("http://127.0.0.1:8000", False), ("https://lab", True)])
def test_a_server_on_this_machine_is_never_reached_through_a_proxy(url: str, uses_proxy: bool) -> None:
    assert Wire(url).settings()["trust_env"] is uses_proxy


def test_a_long_poll_gets_a_longer_timeout() -> None:
    call = calls.log_page(1, rank=None, tail=None, cursor="c", wait_seconds=10)

    assert WIRE.request(call)["timeout"].read == 40.0


@pytest.mark.parametrize(
    "text",
    [
        "python a.py && python b.py",
        "python a.py > out",
        "echo $HOME\npython a.py",
        "LR=1 python a.py",
        "a.py  # no",
        "a 'b",
        "time python a.py",
    ],
)
def test_what_may_need_a_shell_is_left_to_the_server_as_one_word(text: str) -> None:
    assert calls.job_spec(f" {text}\n")["command"] == [text]


def test_only_given_arguments_are_sent() -> None:
    assert calls.job_spec("torchrun 'my train.py'", queue="q", nodes=2, gpus=None) == {
        "command": ["torchrun", "my train.py"],
        "queue": "q",
        "nodes": 2,
    }

"""Every error is one line with a remedy, and never a traceback."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster


@pytest.mark.parametrize(
    ("fault", "exit_code", "sentence"),
    [
        ((401, {"detail": "the token has expired"}, {}), 77, "the token has expired: run `muster login http"),
        ((403, {"detail": "you may only look"}, {}), 77, "you may only look"),
        ((409, {"detail": "it has ended"}, {}), 1, "it has ended"),
        ((429, {"detail": "too many"}, {"Retry-After": "900"}), 75, "too many: wait a minute"),
        ((500, {"title": "Broken"}, {}), 75, "Broken: try again; if it keeps failing"),
        ((200, "<html>a login page</html>", {}), 1, "is it a Muster server?"),
        ((404, "<html>nginx</html>", {}), 1, "is it a Muster server?"),
        ((302, "", {"Location": "https://elsewhere/"}), 1, "redirects to https://elsewhere/"),
        ((200, {"results": [{"id": 1}], "next": None}, {}), 1, "update muster-client"),
    ],
)
def test_each_kind_of_response_is_one_line(
    fault: Any, exit_code: int, sentence: str, run: Run, logged_in: FakeMuster
) -> None:
    logged_in.faults = [fault]

    result = run("jobs")

    assert (result.exit_code, result.stdout) == (exit_code, ""), result.stderr
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("muster: ")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "http://127.0.0.1:1",
            "nothing answers at http://127.0.0.1:1 (connection refused): start the server, or check",
        ),
        ("http://no-such-machine.invalid", "cannot resolve the host name no-such-machine.invalid"),
        ("https://{host}", "does not use TLS: try http://"),
    ],
)
def test_an_unreachable_server_is_one_line(url: str, sentence: str, run: Run, muster: FakeMuster) -> None:
    url = url.format(host=muster.url.removeprefix("http://"))

    result = run("jobs", env={"MUSTER_URL": url, "MUSTER_TOKEN": "t"})

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (75, "", 1)
    assert sentence in result.stderr


def test_an_internal_error_is_one_line_too(run: Run, logged_in: FakeMuster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("muster.commands.jobs.ago", broken)
    logged_in.add_job()

    result = run("jobs")

    assert result.exit_code == 1
    assert result.stderr == (
        "muster: internal error (RuntimeError: two lines): please report it; MUSTER_DEBUG=1 adds the traceback\n"
    )


def test_muster_debug_shows_the_traceback(run: Run, logged_in: FakeMuster) -> None:
    logged_in.faults = [(409, {"detail": "it has ended"}, {})]

    result = run("status", 1, env={"MUSTER_DEBUG": "1"})

    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "muster: it has ended"

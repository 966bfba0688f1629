"""List and watch against a scripted server: every kind of failure, without losing changes."""

import asyncio
import json

import pytest

from common.errors import Unreachable
from jobs.clusters.kubernetes.api.answers import ApiAnswer
from jobs.clusters.kubernetes.api.client import split_lines
from jobs.clusters.kubernetes.build import manifests
from jobs.clusters.kubernetes.facts.pods import read_owner
from jobs.clusters.kubernetes.watch import reflector
from jobs.clusters.kubernetes.watch.cache import Picture
from jobs.clusters.kubernetes.watch.reflector import INITIAL_END, Reflector
from tests.support.builders import Clock
from tests.unit.clusters.kubernetes.test_parts import answered
from tests.unit.clusters.kubernetes.test_pods import PLAN

KEY = (PLAN.run, PLAN.attempt)


class Over(BaseException):
    """The script is at its end."""


class Server:
    """Implements `client.Api`: each watch takes one entry of `watches`, each list one of `lists`."""

    def __init__(self, watches: list, lists: list | None = None):
        self.watches, self.lists, self.asked = list(watches), list(lists or []), []

    async def lines(self, path, *, params, silence_seconds, rest=None):
        self.asked.append(params)
        if not self.watches:
            raise Over
        for one in self.watches.pop(0):
            if isinstance(one, BaseException):
                raise one
            if isinstance(one, int):  # this many bytes were read in one piece
                await rest(one)
                continue
            yield one if isinstance(one, bytes) else json.dumps(one).encode()

    async def call(self, verb, path, *, params):
        self.asked.append(params)
        if not self.lists:
            raise Over
        return self.lists.pop(0)


def service(version: int, *, uid: str = "u") -> dict:
    made = manifests.service(PLAN)
    made["metadata"] |= {"uid": uid, "resourceVersion": str(version)}
    return made


def event(kind: str, version: int, **said) -> dict:
    return {"type": kind, "object": service(version, **said)}


def bookmark(version: int, *, is_end: bool = False) -> dict:
    notes = {INITIAL_END: "true"} if is_end else {}
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), "annotations": notes}}}


def listed(version: int, *things: dict) -> ApiAnswer:
    return answered(200, {"metadata": {"resourceVersion": str(version)}, "items": list(things)})


def error(code: int) -> dict:
    return {"type": "ERROR", "object": {"code": code, "message": f"said {code}"}}


class Run:
    def __init__(self, *watches, lists=(), **options):
        self.server = Server(list(watches), list(lists))
        self.picture = Picture(lambda one: (one.run, one.attempt), clock=Clock().seconds)
        self.told = []
        self.reflector = Reflector(
            self.server, "services", wanted={"labelSelector": "x"}, read=options.pop("read", read_owner),
            picture=self.picture, key=lambda one: (one.run, one.attempt), changed=self.told.append,
            clock=options.pop("clock", Clock()).seconds, **options,
        )  # fmt: skip
        with pytest.raises(Over):
            asyncio.run(self.reflector.follow())

    @property
    def uids(self) -> list[str]:
        return [one.uid for one in self.picture.of(KEY)]

    @property
    def versions(self) -> list[str | None]:
        """The version from which each watch began; None for a stream that includes the list."""
        return [one.get("resourceVersion") for one in self.server.asked if "watch" in one]


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    monkeypatch.setattr(reflector, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(reflector, "SHORTEST_SECONDS", 0.0)


START = [event("ADDED", 5), bookmark(7, is_end=True)]


def test_a_stream_combines_list_and_watch():
    run = Run([*START, event("DELETED", 8), event("ADDED", 9, uid="v")])
    assert run.uids == ["v"] and run.versions == [None, "9"]
    assert (run.reflector.streams, run.reflector.lists) == (1, 0)
    assert set(run.server.asked[0]) == {
        "labelSelector", "watch", "allowWatchBookmarks", "timeoutSeconds", "sendInitialEvents", "resourceVersionMatch"
    }  # fmt: skip


def test_data_read_after_a_pause_is_dated_to_the_beginning_of_the_pause():
    clock = Clock()
    began = clock.seconds()

    async def rest(size):
        clock.advance(0.75)

    run = Run([*START, 100, event("DELETED", 8)], clock=clock, rest=rest)
    assert run.picture.as_of == began and run.uids == []
    assert clock.seconds() == began + 0.75


def test_a_watch_that_is_cut_after_a_change_resumes_immediately(monkeypatch):
    monkeypatch.setattr(reflector, "SHORTEST_SECONDS", 3600.0)
    run = Run(START, [event("ADDED", 8, uid="v")], [event("ADDED", 9, uid="w")])
    assert run.uids == ["w"] and run.versions[:3] == [None, "7", "8"]


def test_a_watch_that_ends_immediately_without_changes_resumes_after_a_pause(monkeypatch):
    paused = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(reflector, "SHORTEST_SECONDS", 3600.0)
    monkeypatch.setattr(reflector.asyncio, "sleep", sleep)
    Run(START, [bookmark(7)], [event("ADDED", 8)])
    assert paused == [3600.0]


def test_a_stream_that_breaks_before_its_end_changes_nothing():
    """Half a list must not make the other half look deleted."""
    from common.errors import Unreachable

    run = Run(START, [Unreachable("cut")], [event("ADDED", 9, uid="v"), Unreachable("cut in the new list")])
    assert run.uids == ["u"] and run.versions[:3] == [None, "7", None]


@pytest.mark.parametrize("code, streams_again", [(422, False), (400, False), (500, True), (401, True)])
def test_if_streaming_is_refused_objects_are_listed(code, streams_again):
    run = Run([error(code)], [error(410)], lists=[listed(4, service(3))])
    assert run.uids == ["u"] and run.reflector.lists == 1
    assert run.versions[:2] == [None, "4"]
    assert run.reflector.can_stream is streams_again


def test_a_server_that_ignores_the_streaming_parameter_is_listed():
    run = Run([event("ADDED", 5), bookmark(6)], lists=[listed(8, service(7, uid="v"))])
    assert run.uids == ["v"] and not run.reflector.can_stream


def test_bookmarks_advance_the_version_to_resume_from():
    assert Run([*START, bookmark(900)]).versions == [None, "900"]


def test_a_410_during_a_watch_causes_a_new_list():
    run = Run([*START, error(410)], [event("ADDED", 20, uid="v"), bookmark(21, is_end=True)])
    assert run.uids == ["v"] and run.versions == [None, None, "21"]


def test_a_server_restored_from_a_backup_is_relisted():
    """Its versions go back, and it does not report objects that the restore removed."""
    run = Run([*START, event("ADDED", 500, uid="v")], [bookmark(30)], [event("ADDED", 20), bookmark(30, is_end=True)])
    assert run.uids == ["u"] and run.versions == [None, "500", None, "30"]


def test_a_server_that_stays_silent_after_our_version_is_relisted():
    """A watch from a version in the future of a restored server stays open, and silent forever."""
    run = Run([*START], [], [], [event("ADDED", 2, uid="v"), bookmark(3, is_end=True)])
    assert run.uids == ["v"] and run.versions == [None, "7", "7", None, "3"]


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"7", b'{"type": "ADDED"}', b'{"object": {}}', b"\xff", b"[" * 100_000, b"null"]
)
def test_malformed_lines_cause_a_new_list(line):
    run = Run([*START, line], [event("ADDED", 9, uid="v"), bookmark(10, is_end=True)])
    assert run.uids == ["v"] and run.versions == [None, None, "10"]


def test_an_object_that_cannot_be_decoded_does_not_hide_others():
    def read(thing):
        if thing["metadata"]["uid"] == "bad":
            raise RecursionError("absurd")
        return read_owner(thing)

    run = Run([event("ADDED", 1, uid="bad"), *START, event("MODIFIED", 8, uid="bad"), bookmark(9)], read=read)
    assert run.uids == ["u"] and run.versions == [None, "9"]


def test_an_optional_watch_that_is_forbidden_raises_no_error(monkeypatch):
    monkeypatch.setattr(reflector, "DENIED_SECONDS", 0.01)
    run = Run([error(403)], [error(403)], lists=[answered(403, {"message": "no"})] * 2, is_optional=True)
    assert run.picture.as_of is None and run.told == []


def test_why_nothing_was_read_is_kept_until_something_is_read():
    refused = Run([error(403)], lists=[answered(403, {"message": "pods is forbidden"})])
    assert refused.reflector.trouble == "the list: pods is forbidden" and refused.picture.as_of is None
    assert Run([*START], [error(403)], lists=[answered(403, {"message": "no"})]).reflector.trouble == "said 403"
    assert Run([error(403)], [*START], lists=[answered(403, {"message": "no"})]).reflector.trouble == ""
    assert Run([Unreachable("it broke")]).reflector.trouble == "it broke"


def test_an_object_of_ten_megabytes_arrives_whole():
    class Content:
        async def iter_any(self):
            for piece in (b"a\nbig", *[b"x" * (1 << 20)] * 10, b"end\n", b"c\n", b"cut"):
                yield piece

    async def read():
        return [line async for line in split_lines(Content())]

    first, big, last = asyncio.run(read())
    assert (first, last, len(big)) == (b"a", b"c", 6 + (10 << 20))

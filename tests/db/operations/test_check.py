"""muster-server check: one table of what is wrong and what to write instead."""

import pytest

from accounts.models import Team
from common import addresses
from common.errors import NotReadYet, Unreachable
from controlplane.operations import checking
from jobs.clusters.memory import MemoryCluster
from queues.models import Queue
from tests.db.operations.conftest import Place
from tests.process.server.redis_that_refuses import PASSWORD, redis_that_refuses
from tests.support.collector import collect

REFUSALS = {
    "WRONGPASS": "it refuses the user or the password of REDIS_URL",
    "NOPERM": "it does not let the user of REDIS_URL do what Muster needs: ACL SETUSER NAME on ~* &* +@all",
    "READONLY": "it is a replica, which takes no changes: REDIS_URL must name the primary",
}


def check(place: Place, **settings) -> tuple[int, dict[str, str], str]:
    """Its exit code, what is checked -> ok, note or wrong, and the whole table as one line."""
    code, said = place.run("check", **settings)
    lines = [words for line in said.splitlines() if (words := line.split()) and words[0] in ("ok", "note", "wrong")]
    return code, {words[1]: words[0] for words in lines}, " ".join(said.split())


@pytest.fixture
def built(tmp_path) -> dict[str, object]:
    """The setting of a checkout whose agent was built."""
    (tmp_path / "checkout/agent").mkdir(parents=True)
    (tmp_path / "checkout/agent/agent.pyz").touch()
    return {"BASE_DIR": tmp_path / "checkout"}


def test_what_is_wrong_is_named_with_its_remedy(bare, built, tmp_path):
    (tmp_path / "file").touch()
    bare.key = "short"
    code, states, said = check(
        bare, **built, REDIS_URL="redis://:not-the-password@127.0.0.1:1/0", DATA_DIR=tmp_path / "file/data",
        STATIC_ROOT=str(tmp_path / "none"), CLUSTERS={"lab": {"BACKEND": "jobs.clusters.nothing.Here", "OPTIONS": {}}},
    )  # fmt: skip
    assert code == 1
    assert states == {
        "settings": "wrong", "address": "ok", "Postgres": "wrong", "Redis": "wrong", "files": "wrong", "static": "wrong", "agent": "ok",
        "cluster": "wrong",
    }  # fmt: skip
    for words in (
        "openssl rand -hex 32",
        "MUSTER_DATA_DIR=/data",
        "collectstatic",
        "REDIS_URL=redis://",
        "No module named",
    ):
        assert words in said
    assert "not-the-password" not in said
    bare.database.create()
    assert "muster-server migrate" in check(bare)[2]


def test_an_installation_that_is_well_is_all_ok(place, built):
    code, states, _ = check(place, **built, CLUSTERS={})
    assert code == 0
    assert {what: state for what, state in states.items() if state != "ok"} == {"cluster": "note"}


class SlowCluster(MemoryCluster):
    """Its first list comes when it has been asked for often enough."""

    def __init__(self, asked: int, refusal: type[Unreachable]):
        super().__init__()
        self.left, self.refusal = asked, refusal

    def open_attempts(self, namespace=""):
        self.left -= 1
        if self.left > 0:
            raise self.refusal("the list has not come yet")
        return super().open_attempts(namespace)


@pytest.mark.parametrize(("refusal", "state"), [(NotReadYet, "ok"), (Unreachable, "wrong")])
def test_the_first_list_of_a_cluster_is_waited_for_longer_than_one_that_does_not_answer(
    place, built, monkeypatch, refusal, state
):
    monkeypatch.setattr(checking, "CLUSTER_SECONDS", 0.0)
    slow = {"BACKEND": f"{__name__}.SlowCluster", "OPTIONS": {"asked": 4, "refusal": refusal}}
    assert check(place, **built, CLUSTERS={"slow": slow})[1]["cluster"] == state


def test_a_queue_on_a_cluster_that_is_not_configured_is_named(place):
    with place.entered():
        for cluster in ("lab", "memory"):
            Queue.objects.create(
                name=f"of-{cluster}", team=Team.objects.create(name=cluster), cluster=cluster, nominal=8
            )
    _, states, said = check(place)
    assert states["queue"] == "wrong" and "queue of-lab" in said and "of-memory" not in said
    assert "is on cluster lab, which" in said and 'MUSTER_CLUSTERS={"lab": {"BACKEND":' in said


def test_a_collector_is_asked_whether_it_takes_spans(place):
    with collect() as collector:
        assert check(place, MUSTER_TRACES=collector.url)[1]["traces"] == "ok"
        collector.answer = lambda request: request.send_error(401)
        _, states, said = check(place, MUSTER_TRACES=collector.url)
        assert states["traces"] == "wrong" and "401" in said and "OTEL_EXPORTER_OTLP_HEADERS" in said
    assert check(place, MUSTER_TRACES=collector.url)[1]["traces"] == "wrong"


def test_the_address_of_pages_must_be_one_that_is_answered(place):
    here = {"PUBLIC_URL": "https://muster.example", "ALLOWED_HOSTS": ["127.0.0.1"]}
    _, states, said = check(place, **here)
    assert states["address"] == "wrong" and "muster.example in MUSTER_ALLOWED_HOSTS" in said
    here["ALLOWED_HOSTS"].append("muster.example")
    _, states, said = check(place, **here)
    assert states["address"] == "note" and "MUSTER_HTTPS=1" in said
    assert check(place, MUSTER_HTTPS=True, **here)[1]["address"] == "ok"
    assert check(place, PUBLIC_URL="")[1]["address"] == "note"


def test_both_stores_are_tried_while_files_move(place, settings):
    bucket = addresses.files("s3://key:hunter2@bucket/?endpoint=http://127.0.0.1:1")
    folder = addresses.files("")
    for new, old, said_of_new, said_of_old in ((bucket, folder, "wrong", "ok"), (folder, bucket, "ok", "wrong")):
        moving = {"BACKEND": "common.files.file_store.MovingStorage", "OPTIONS": {"new": new, "old": old}}
        _, states, said = check(place, STORAGES={**settings.STORAGES, "default": moving})
        assert (states["files"], states["old"]) == (said_of_new, said_of_old), said
        assert ("MUSTER_OLD_FILES=s3" in said) == (said_of_old == "wrong") and "hunter2" not in said


def test_a_redis_that_refuses_is_named_with_the_way_out(place, tmp_path):
    with redis_that_refuses(tmp_path) as redis:
        for how, words in REFUSALS.items():
            redis.refuse(how)
            code, _, said = check(place, REDIS_URL=redis.url)
            assert code == 1 and PASSWORD not in said
            assert all(word in said for word in words.split()), said  # the table breaks lines
            redis.accept()
            assert "takes messages" in check(place, REDIS_URL=redis.url)[2]
        _, _, said = check(place, REDIS_URL=redis.without_password)
        assert all(word in said for word in REFUSALS["WRONGPASS"].split()), said

"""muster-server check: one table of what is wrong and what to write instead."""

from tests.support.collector import collect

QUEUE = """
import django
django.setup()
from accounts.models import Team
from queues.models import Queue
for cluster in ("lab", "memory"):
    Queue.objects.create(name=f"of-{cluster}", team=Team.objects.create(name=cluster), cluster=cluster, nominal=8)
"""


def states(said: str) -> dict[str, str]:
    """What is checked -> ok, note or wrong."""
    marks = ("ok", "note", "wrong")
    lines = [line.split() for line in said.splitlines() if line.split() and line.split()[0] in marks]
    return {words[1]: words[0] for words in lines}


def test_what_is_wrong_is_named_with_its_remedy(server, database, tmp_path):
    (tmp_path / "file").touch()
    wrong = {
        "REDIS_URL": "redis://:not-the-password@127.0.0.1:1/0",
        "MUSTER_DATA_DIR": str(tmp_path / "file/data"),
        "MUSTER_SECRET_KEY": "short",
        "MUSTER_STATIC_ROOT": str(tmp_path / "none"),
        "MUSTER_CLUSTERS": '{"lab": {"BACKEND": "jobs.clusters.nothing.Here"}}',
    }
    code, said = server.run("check", **wrong)
    assert code == 1 and "Traceback" not in said
    assert states(said) == {
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
        assert words in " ".join(said.split()), said
    assert "not-the-password" not in said
    database.create()
    assert "muster-server migrate" in server.run("check")[1]


def test_an_installation_that_is_well_is_all_ok(server, database):
    database.create_with_tables()
    code, said = server.run("check")
    assert code == 0
    assert {what: state for what, state in states(said).items() if state != "ok"} == {"cluster": "note"}


def said_of(server, *, first: str, **env: str) -> tuple[str, str]:
    """The state of one line of the table, and the whole table as one line."""
    _, said = server.run("check", **env)
    assert "Traceback" not in said
    return states(said)[first], " ".join(said.split())


def test_a_queue_on_a_cluster_that_is_not_configured_is_named(server, database):
    database.create_with_tables()
    server.execute("-c", QUEUE)
    memory = '{"memory": {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}'
    state, said = said_of(server, first="queue", MUSTER_CLUSTERS=memory)
    assert state == "wrong" and "queue of-lab" in said and "of-memory" not in said
    assert "is on cluster lab, which" in said and 'MUSTER_CLUSTERS={"lab": {"BACKEND":' in said


def test_a_collector_is_asked_whether_it_takes_spans(server, database):
    with collect() as collector:
        assert said_of(server, first="traces", MUSTER_TRACES=collector.url)[0] == "ok"
        collector.answer = lambda request: request.send_error(401)
        state, said = said_of(server, first="traces", MUSTER_TRACES=collector.url)
        assert state == "wrong" and "401" in said and "OTEL_EXPORTER_OTLP_HEADERS" in said
    state, said = said_of(server, first="traces", MUSTER_TRACES=collector.url)
    assert state == "wrong" and "Traceback" not in said


def test_the_address_of_pages_must_be_one_that_is_answered(server, database):
    state, said = said_of(server, first="address", MUSTER_PUBLIC_URL="https://muster.example")
    assert state == "wrong" and "muster.example in MUSTER_ALLOWED_HOSTS" in said
    hosts = {"MUSTER_PUBLIC_URL": "https://muster.example", "MUSTER_ALLOWED_HOSTS": "127.0.0.1,muster.example"}
    state, said = said_of(server, first="address", **hosts)
    assert state == "note" and "MUSTER_HTTPS=1" in said
    assert said_of(server, first="address", MUSTER_HTTPS="1", **hosts)[0] == "ok"
    assert said_of(server, first="address", MUSTER_PUBLIC_URL="")[0] == "note"


def test_both_stores_are_tried_while_files_move(server, database):
    bucket = "s3://key:hunter2@bucket/?endpoint=http://127.0.0.1:1"
    for env, files, old in (
        ({"MUSTER_FILES": bucket, "MUSTER_OLD_FILES": "folder"}, "wrong", "ok"),
        ({"MUSTER_FILES": "", "MUSTER_OLD_FILES": bucket}, "ok", "wrong"),
    ):
        _, said = server.run("check", **env)
        assert states(said)["files"] == files and states(said)["old"] == old, said
        assert ("MUSTER_OLD_FILES=s3" in said) == (old == "wrong") and "hunter2" not in said

"""The log of one replica: of a Ray job, whose ranks are not planned, of its driver and of each worker."""

import re
import time

import pytest
from django.test import Client

from jobs.ingest import apply
from jobs.logs import reader, search
from jobs.logs.reader import LAUNCHER, LogSource
from tests.support.builders import batch, identity, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)
DRIVER, FIRST = LogSource(replica=("head", 0)), LogSource(replica=("worker", 0))


@pytest.fixture
def job(lab):
    job = lab.running(framework="ray", command="python3 driver.py", nodes=2, nproc_per_node=2)
    for at, (role, index) in enumerate([("head", 0), ("worker", 0), ("worker", 1)]):
        own = [
            log_item(-1, seq, [(T + 3 * seq + at, f"{role}-{index} says {seq}")])
            for seq in range(3)
        ]  # fmt: skip
        for seq, one in enumerate(own, 1):
            apply.apply_batch(identity=identity(job, index, role=role), batch=batch(seq, one))
    return job


@pytest.fixture
def owner(as_, people) -> Client:
    return as_(people.owner)


def whole(answer) -> str:
    return "".join(piece.decode() for piece in answer) if answer.streaming else answer.text


def texts(page: reader.LogPage) -> list[str]:
    return [line.text for line in page.lines]


def test_lines_name_the_replica_that_printed_them(job):
    assert {(line.rank, line.replica) for line in reader.read(job=job).lines} == {
        (LAUNCHER, "head-0"), (LAUNCHER, "worker-0"), (LAUNCHER, "worker-1"),
    }  # fmt: skip
    assert "   head-0  head-0 says 0\n" in "".join(search.stream_text(job=job))


def test_one_replicas_lines_are_read_paged_followed_and_searched(job):
    wanted = [f"worker-0 says {seq}" for seq in range(3)]
    assert texts(reader.read(job=job, source=FIRST)) == wanted
    assert texts(reader.read(job=job, source=FIRST, tail=2)) == wanted[1:]
    first = reader.read(job=job, source=FIRST, limit=1)
    assert texts(first) == wanted[:1]
    assert texts(reader.read(job=job, source=FIRST, cursor=first.cursor)) == wanted[1:]
    caught = reader.catch_up(job=job, source=FIRST, cursor=first.cursor, limit=1)
    assert (texts(caught.page), caught.skipped) == (wanted[2:], 1)
    assert [one.line.text for one in search.search(job=job, by=1, text="says 2", source=FIRST).lines] == wanted[2:]
    assert "".join(search.stream_text(job=job, source=DRIVER)).count("says") == 3


def test_another_attempts_replica_of_that_name_is_another_one(job, lab):
    for _ in range(2):
        lab.cluster.finish(job.run, job.attempt, "head", index=0, exit_code=1)
    job = lab.visit(job, times=6)
    assert texts(reader.read(job=job, source=DRIVER, attempt=1)) == [f"head-0 says {seq}" for seq in range(3)]
    assert texts(reader.read(job=job, source=LogSource(replica=("head", 1)), attempt=1)) == []


def test_the_api_takes_a_replica_and_names_those_that_there_are(owner, job):
    for path in ("logs", "logs/search", "logs/text"):
        said = whole(
            owner.get(f"/api/v1/jobs/{job.pk}/{path}?replica=worker-1{'&text=says' if path == 'logs/search' else ''}")
        )
        assert said.count("worker-1 says") == 3 and "worker-0 says" not in said
    both = owner.get(f"/api/v1/jobs/{job.pk}/logs?replica=head-0&rank=-1").json()["lines"]
    assert [line["replica"] for line in both] == ["head-0"] * 3
    for wrong in ("worker-2", "head-1", "worker", "nobody-0", "worker-\u00b2", "worker-01", "-0", ""):
        answer = owner.get(f"/api/v1/jobs/{job.pk}/logs", {"replica": wrong})
        (problem,) = answer.json()["errors"]
        assert (answer.status_code, problem["field"]) == (422, "replica")
        assert "has head-0, worker-0 to worker-1" in problem["message"]


def test_the_page_offers_the_driver_and_each_worker(owner, job):
    page = owner.get(f"/jobs/{job.pk}").text
    links = re.search(r'aria-label="Whose log"[^>]*>(.*?)</nav>', page, re.S)[1]
    assert re.findall(r">([^<]+)</a>", links) == ["All", "head-0", "worker-0", "worker-1"]
    one = owner.get(f"/jobs/{job.pk}/logs?replica=worker-0").text
    assert one.count("worker-0 says") == 3 and "worker-1 says" not in one
    assert re.search(r'replica=worker-0"[^>]*aria-current="true">worker-0<', one)
    found = owner.get(f"/jobs/{job.pk}/logs/find?replica=worker-0&q=says").text
    assert found.count("worker-0 says") == 3 and "worker-1 says" not in found
    file = owner.get(f"/jobs/{job.pk}/logs.txt?replica=head-0")
    assert "replica-head-0" in file["Content-Disposition"]
    assert owner.get(f"/jobs/{job.pk}/logs?replica=nobody-7").text.count("says") == 9

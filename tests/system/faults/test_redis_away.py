"""Redis is stopped: nothing waits for it, jobs still run, and Celery consumes again once Redis continues."""

import os
import signal
import statistics
import time

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.support.patience import until
from tests.system.faults.phase_jobs import timed

SUBMISSIONS = 10
USUAL_TIMES, USUAL_PLUS = 5, 0.5  # generous: a submission that waits for Redis takes seconds


def consumes(installation) -> bool:
    """Whether the Celery queue is empty and a worker is waiting for messages."""
    with Redis.from_url(installation.muster.env["REDIS_URL"], socket_timeout=1) as redis:
        return redis.llen("celery") == 0 and any(client["cmd"] == "brpop" for client in redis.client_list())


def submission_seconds(installation) -> list[float]:
    jobs: list[int] = []
    found = [timed(lambda: jobs.append(installation.submit(nodes=1))) for _ in range(SUBMISSIONS)]
    for job in jobs:
        installation.api.act(job, "cancel")
    return found


@pytest.mark.full
def test_a_stopped_redis_delays_neither_submissions_nor_jobs(installation, phase_jobs, matrix):
    usual = statistics.median(submission_seconds(installation))
    phase_jobs.assemble()
    redis = installation.pid("redis")
    os.kill(redis, signal.SIGSTOP)
    try:
        stopped = submission_seconds(installation)
        assert statistics.median(stopped) <= USUAL_TIMES * usual + USUAL_PLUS, (usual, stopped)
        matrix.add(
            "SIGSTOP redis", "20 submissions", f"{usual * 1000:.0f} > {statistics.median(stopped) * 1000:.0f} ms"
        )
        meanwhile = installation.submit(nodes=1)
        took = timed(lambda: phase_jobs.until_phase(meanwhile, "running"))
        matrix.add("SIGSTOP redis", "a job runs meanwhile", "right", took)
    finally:
        os.kill(redis, signal.SIGCONT)
    since = time.time()
    phase_jobs.go_on()
    seconds = phase_jobs.settle(since)
    until(lambda: consumes(installation))
    matrix.add_all("SIGSTOP redis", {**seconds, "celery consumes": time.time() - since})
    phase_jobs.jobs["meanwhile"] = meanwhile
    phase_jobs.dismiss("starting", "stopping", "new", "meanwhile", "running", "queued", "suspended")


@pytest.mark.full
def test_celery_reconnects_after_redis_was_killed(installation, matrix):
    """A known weak spot of Celery's consumer. Three times, because a fault may show only at a later reconnection."""
    for turn in range(3):
        old = installation.pid("redis")
        os.kill(old, signal.SIGKILL)
        since = time.time()
        until(lambda old=old: installation.muster.pids.get("redis") not in (None, old))
        until(lambda: _is_well(installation))
        matrix.add_all("kill -9 redis", {f"celery consumes, {turn + 1}": time.time() - since})


def _is_well(installation) -> bool:
    try:
        return consumes(installation)
    except RedisError:
        return False

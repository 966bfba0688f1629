"""All processes die at once, as when the machine loses power, and the installation is started again."""

import time

from tests.support.patience import until
from tests.system.faults.checks import check


def test_a_reboot_leaves_nothing_stuck(installation, phase_jobs, matrix):
    phase_jobs.jobs["running"] = installation.submit(max_retries=1)
    phase_jobs.assemble()
    failing = installation.submit(nodes=1)
    phase_jobs.until_phase(failing, "running")
    phase_jobs.stopped.clear()
    before = dict(phase_jobs.jobs)
    installation.kill_all()
    phase_jobs.had_power = False
    assert not installation.agents()
    assert not installation.carriers()
    since = time.time()
    installation.start()
    matrix.add("reboot", "start", "answers", time.time() - since)
    who = {"username": installation.muster.user, "password": installation.muster.password, "name": "after the reboot"}
    assert installation.api.ask("POST", "/login", json=who)["user"] == installation.muster.user
    seconds = {}
    wanted = {
        "queued": ("running", "queued"),  # the job that held its quota failed
        "running": ("running",),
        "suspended": ("suspended",),
        "stopping": ("cancelled",),
        "starting": ("failed",),  # its agent was lost, and it has no retries
        "failing": ("failed",),
    }
    # Its row says RUNNING until the first visit, so its phase alone proves nothing.
    until(lambda: installation.api.job(before["running"])["attempt"] == 2, says="running: its second attempt")
    for phase, job in {**before, "failing": failing}.items():
        until(
            lambda job=job, phase=phase: installation.api.job(job)["phase"] in wanted[phase], says=f"{phase}: job {job}"
        )
        seconds[phase] = time.time() - since
    matrix.add_all("reboot", seconds)
    phase_jobs.jobs = {
        "running": before["running"],
        "suspended": before["suspended"],
        "new": installation.submit(nodes=1),
    }
    phase_jobs.dismiss("running", "suspended", "new")
    check(installation, phase_jobs.holder, phases=("failed",), had_power=False)
    check(installation, failing, phases=("failed",), had_power=False)
    check(installation, before["starting"], phases=("failed",), had_power=False)
    check(installation, before["stopping"], phases=("cancelled",), had_power=False)
    phase_jobs.jobs["queued"] = before["queued"]
    phase_jobs.let_end(before["queued"])
    check(installation, before["queued"])
    phase_jobs.jobs.clear()

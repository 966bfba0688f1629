"""Everything is gone at once, as when the machine loses its power, and is started again."""

import time

from tests.faults.checks import check
from tests.faults.house import until


def test_a_reboot_leaves_nothing_stuck(house, cast, matrix):
    cast.jobs["running"] = house.submit(max_retries=1)
    cast.assemble()
    failing = house.submit(nodes=1)
    cast.until_phase(failing, "running")
    cast.stopped.clear()
    before = dict(cast.jobs)
    house.kill_all()
    cast.had_power = False
    assert not house.agents()
    assert not house.carriers()
    since = time.time()
    house.start()
    matrix.add("reboot", "start", "answers", time.time() - since)
    who = {"username": house.muster.user, "password": house.muster.password, "name": "after the reboot"}
    assert house.api.ask("POST", "/login", json=who)["user"] == house.muster.user
    seconds = {}
    wanted = {
        "queued": ("running", "queued"),  # its neighbour failed, so that there is room
        "running": ("running",),
        "suspended": ("suspended",),
        "stopping": ("cancelled",),
        "starting": ("failed",),  # its agent was lost, and it has no retry
        "failing": ("failed",),
    }
    # By its row it runs until somebody has looked, so its phase alone says nothing.
    until(lambda: house.api.job(before["running"])["attempt"] == 2, what="running: its second attempt")
    for phase, job in {**before, "failing": failing}.items():
        until(lambda job=job, phase=phase: house.api.job(job)["phase"] in wanted[phase], what=f"{phase}: job {job}")
        seconds[phase] = time.time() - since
    matrix.add_all("reboot", seconds)
    cast.jobs = {"running": before["running"], "suspended": before["suspended"], "new": house.submit(nodes=1)}
    cast.dismiss("running", "suspended", "new")
    check(house, cast.holder, phases=("failed",), had_power=False)
    check(house, failing, phases=("failed",), had_power=False)
    check(house, before["starting"], phases=("failed",), had_power=False)
    check(house, before["stopping"], phases=("cancelled",), had_power=False)
    cast.jobs["queued"] = before["queued"]
    cast.let_end(before["queued"])
    check(house, before["queued"])
    cast.jobs.clear()

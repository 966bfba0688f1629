"""One job in each phase, held there until released, so that one fault hits all phases at once."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.patience import until
from tests.system.faults.checks import check
from tests.system.faults.installation import RIGHT_SECONDS, RunningInstallation

RUNS = ("running", "starting", "admitted", "new")  # jobs that run once everything has recovered


@dataclass
class PhaseJobs:
    """`jobs`: phase -> job. Jobs that a fault of the control plane must not affect are kept for the next fault."""

    installation: RunningInstallation
    jobs: dict[str, int] = field(default_factory=dict)
    holder: int = 0  # runs in the narrow queue, so that another job waits there
    checked: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)  # processes stopped at a fault point
    had_power: bool = True  # checks.py

    def assemble(self) -> None:
        """Prepare all phases except `admitted`, which requires the tasks process to be stopped."""
        installation, jobs = self.installation, self.jobs
        if "queued" not in jobs:
            self.holder = installation.submit(queue="narrow")
            self.until_phase(self.holder, "running")
            jobs["queued"] = installation.submit(queue="narrow", nodes=1)
        jobs.setdefault("running", installation.submit() if "running" not in jobs else 0)
        if "suspended" not in jobs:
            jobs["suspended"] = installation.submit(nodes=1)
            self.until_phase(jobs["suspended"], "running")
            installation.api.act(jobs["suspended"], "suspend")
        jobs["stopping"] = installation.submit("--stubborn", nodes=1, grace_seconds=600)
        self.until_phase(jobs["running"], "running")
        self.until_phase(jobs["stopping"], "running")
        until(lambda: list(installation.shared(jobs["stopping"]).glob("claims/1-0")))
        installation.api.act(jobs["stopping"], "cancel")
        self.until_phase(jobs["suspended"], "suspended")
        self.until_phase(jobs["stopping"], "stopping")
        # Held before the code is fetched: an agent about to spawn has already reported that it runs.
        jobs["starting"] = self._held_at("agent.list.before", "starting")

    def admit(self) -> None:
        """Stop the tasks process right after it admitted a job."""
        self.jobs["admitted"] = self._held_at("scheduler.queue.after", "admitted")

    def _held_at(self, point: str, phase: str) -> int:
        self.installation.arm(point, number="STOP")
        job = self.installation.submit(nodes=1)
        self._until_stopped(point, phase)
        while self.installation.api.job(job)["phase"] == "queued":  # a pass that began before this job was submitted
            self.installation.arm(point, number="STOP")
            self.go_on()
            self._until_stopped(point, phase)
        self.until_phase(job, phase)
        return job

    def _until_stopped(self, point: str, phase: str) -> None:
        self.stopped.append(until(lambda: self.installation.fired(point), says=f"{point} for {phase}"))

    def until_phase(self, job: int, *phases: str) -> None:
        until(lambda: self.installation.api.job(job)["phase"] in phases, says=f"job {job} in {phases}")

    def go_on(self) -> None:
        """Continue all stopped processes."""
        while self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.stopped.pop(), signal.SIGCONT)

    def settle(self, since: float) -> dict[str, float]:
        """Seconds from the fault's end until each job was in its expected phase, and a new one ran."""
        self.jobs["new"] = self.installation.submit(nodes=1)
        waiting, seconds = dict(self.jobs), {}
        end = time.monotonic() + 10 * RIGHT_SECONDS
        while waiting:
            for phase, job in list(waiting.items()):
                if self.is_right(phase, job, since):
                    seconds[phase] = time.time() - since
                    del waiting[phase]
            assert time.monotonic() < end, {phase: self.installation.api.job(job) for phase, job in waiting.items()}
            time.sleep(0.05)
        return seconds

    def is_right(self, phase: str, job: int, since: float) -> bool:
        now = self.installation.api.job(job)["phase"]
        if phase == "running":
            return now == "running" and self._has_line_after(job, since)
        return now == ("running" if phase in RUNS else phase)

    def _has_line_after(self, job: int, since: float) -> bool:
        page = self.installation.api.ask("GET", f"/jobs/{job}/logs", params={"tail": 1, "rank": 0})
        return any(line["at_ms"] / 1000 > since for line in page["lines"])

    def dismiss(self, *phases: str) -> None:
        """Let the jobs in these phases end, and check them."""
        going = {phase: self.jobs.pop(phase) for phase in phases if phase in self.jobs}
        for phase, job in going.items():
            if phase == "suspended":
                self.installation.api.act(job, "resume")
            if phase == "queued":
                self.installation.finish(self.holder)
        for job in going.values():
            self.let_end(job)
        for phase, job in going.items():
            if phase == "queued":
                self.let_end(self.holder)
                self.verify(self.holder, "succeeded", attempts=1)
            self.verify(job, *(("cancelled",) if phase == "stopping" else ("succeeded",)))

    def let_end(self, job: int) -> None:
        """Finish the job, and wait until it is over; it may start to run only now."""

        def is_over() -> bool:
            with contextlib.suppress(ValueError, OSError):
                self.installation.finish(job)
            return bool(self.installation.api.job(job)["is_finished"])

        until(is_over, says=f"job {job} over")

    def verify(self, job: int, *phases: str, attempts: int | None = None) -> None:
        check(self.installation, job, phases=phases, attempts=attempts, had_power=self.had_power)
        self.checked.append(job)


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began

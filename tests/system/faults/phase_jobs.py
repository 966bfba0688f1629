"""One job in each phase, held there until it is told to go on, so that one fault meets all of them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.system.faults.checks import check
from tests.system.faults.installation import RIGHT_SECONDS, RunningInstallation, until

RUNS = ("running", "starting", "admitted", "new")  # held or made so that they run when all is right


@dataclass
class PhaseJobs:
    """`jobs`: phase -> job. Those that a fault of the control plane must not touch stay for the next fault."""

    installation: RunningInstallation
    jobs: dict[str, int] = field(default_factory=dict)
    holder: int = 0  # runs in the narrow queue, so that another one waits there
    checked: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)  # processes that a point has stopped
    had_power: bool = True  # checks.py

    def assemble(self) -> None:
        """Everybody but `admitted`, for whom the tasks process is to stand still."""
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
        # Before its code is there: an agent about to spawn has already said that it runs.
        jobs["starting"] = self._held_at("agent.list.before", "starting")

    def admit(self) -> None:
        """The tasks process stands still right after a job was admitted."""
        self.jobs["admitted"] = self._held_at("scheduler.queue.after", "admitted")

    def _held_at(self, point: str, phase: str) -> int:
        self.installation.arm(point, number="STOP")
        job = self.installation.submit(nodes=1)
        self._until_stopped(point, phase)
        while self.installation.api.job(job)["phase"] == "queued":  # by a pass that began before this job was there
            self.installation.arm(point, number="STOP")
            self.go_on()
            self._until_stopped(point, phase)
        self.until_phase(job, phase)
        return job

    def _until_stopped(self, point: str, phase: str) -> None:
        self.stopped.append(until(lambda: self.installation.fired(point), what=f"{point} for {phase}"))

    def until_phase(self, job: int, *phases: str) -> None:
        until(lambda: self.installation.api.job(job)["phase"] in phases, what=f"job {job} in {phases}")

    def go_on(self) -> None:
        """Whoever was made to stand still may move again."""
        while self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.stopped.pop(), signal.SIGCONT)

    def settle(self, since: float) -> dict[str, float]:
        """Seconds from the fault's end until each job was where it belongs, and a new one ran."""
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
        """Let these come to their end, and look at them closely."""
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
        """Until it is over: it may only now come to run."""

        def is_over() -> bool:
            with contextlib.suppress(ValueError, OSError):
                self.installation.finish(job)
            return bool(self.installation.api.job(job)["is_finished"])

        until(is_over, what=f"job {job} over")

    def verify(self, job: int, *phases: str, attempts: int | None = None) -> None:
        check(self.installation, job, phases=phases, attempts=attempts, had_power=self.had_power)
        self.checked.append(job)


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began

"""Invariants of a job after any fault, checked against its history, its ranks' own claims, its log and the machine."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from jobs.core.lifecycle import STEPS, Phase
from tests.support.patience import until
from tests.system.faults.installation import RunningInstallation

Key = tuple[int, int]  # attempt and rank


@dataclass(frozen=True)
class Claim:
    """A rank's own record (code/rank.py)."""

    began: float
    alive: float
    lines: int


def check(
    installation: RunningInstallation,
    job: int,
    *,
    phases: tuple[str, ...] = ("succeeded",),
    attempts: int | None = None,
    had_power: bool = True,
) -> None:
    """Check one job at rest. `attempts` is the expected number of attempts. Without `had_power` the machine lost power,
    and with it the last lines of the running attempts.
    """
    found = installation.api.job(job)
    assert found["phase"] in phases, found
    assert attempts is None or found["attempt"] == attempts, found
    check_steps(installation.api.events(job))
    claims = read_claims(installation, job)
    check_attempts(claims)
    assert found["is_finished"], found
    complete = found["attempt"] if found["phase"] == "succeeded" else None
    check_lines(installation.api.lines(job), claims, complete=complete, had_power=had_power)
    until(lambda: not installation.carriers(job), says=f"job {job} left processes")
    until(lambda: not installation.agents(job), says=f"job {job} left agents")


def check_told(installation: RunningInstallation, job: int, end: str) -> None:
    """Check that the webhook was told of each start that was seen and of the end; what came twice has the same id."""

    def told() -> dict[tuple[str, int], set[str]]:
        found: dict[tuple[str, int], set[str]] = defaultdict(set)
        for one in list(installation.receiver.got if installation.receiver else ()):
            about = one.json["data"].get("job")
            if about and about["id"] == job:
                found[one.json["type"], about["attempt"]].add(one.id)
        return found

    steps = [one for one in installation.api.events(job) if one["kind"] == "step"]
    wanted = {("job.started", one["attempt"]) for one in steps if one["phase"] == Phase.RUNNING}
    wanted |= {(f"job.{end}", steps[-1]["attempt"])}
    until(lambda: wanted <= set(told()), says=f"job {job} is told of {wanted}")
    assert [event for event, ids in told().items() if len(ids) > 1] == []


def check_steps(events: list[dict[str, Any]]) -> None:
    phases = [Phase(event["phase"]) for event in events if event["kind"] == "step"]
    taken = [(a, b) for a, b in zip(phases, phases[1:], strict=False) if a is not b]
    assert [step for step in taken if step not in STEPS] == [], phases
    assert phases[0] is Phase.QUEUED
    ends = [phase for phase in phases if phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)]
    assert len(ends) <= 1, phases


def read_claims(installation: RunningInstallation, job: int) -> dict[Key, Claim]:
    """Read the ranks' claims; fails if two processes were the same rank of the same attempt."""
    found = {}
    for folder in (installation.folder / "local/jobs").glob(f"{job}-*/shared/claims"):
        for path in folder.iterdir():
            assert not path.name.startswith("doubled"), f"job {job}: {path.name}: a replica ran twice"
            attempt, rank = map(int, path.name.split("-"))
            words = path.read_text().split()
            if words:  # else the rank was killed between creating the file and writing it
                found[attempt, rank] = Claim(float(words[0]), float(words[1]), int(words[2]))
    return found


def check_attempts(claims: dict[Key, Claim]) -> None:
    """No attempt begins while a rank of an earlier one is alive."""
    for attempt in sorted({attempt for attempt, _ in claims})[1:]:
        began = min(claim.began for (of, _), claim in claims.items() if of == attempt)
        alive = max(claim.alive for (of, _), claim in claims.items() if of < attempt)
        assert began > alive, (attempt, claims)


def check_lines(
    lines: list[dict[str, Any]], claims: dict[Key, Claim], *, complete: int | None, had_power: bool = True
) -> None:
    """All lines of every rank are stored once, in order and without a hole. A rank claims each line before it writes it,
    so a killed rank may have claimed one line more.
    """
    assert not any(line["is_gap"] for line in lines)
    numbers: dict[Key, list[int]] = defaultdict(list)
    for line in lines:
        if line["rank"] >= 0:
            numbers[line["attempt"], line["rank"]].append(int(line["text"].split()[1]))
    for key, found in numbers.items():
        assert found == list(range(len(found))), (key, _first_wrong(found))
        assert len(found) <= claims[key].lines, key
    for key, claim in claims.items():
        missing = claim.lines - len(numbers[key])
        if key[0] == complete:
            assert missing == 0, (key, claim, missing)
        elif had_power:
            assert missing in (0, 1), (key, claim, missing)


def _first_wrong(found: list[int]) -> str:
    at = next(at for at, number in enumerate(found) if at != number)
    return f"{len(found)} lines; line {at} is {found[at]}; around it {found[max(0, at - 3) : at + 4]}"

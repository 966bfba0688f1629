"""What happens after a failure, in the words of Kubernetes and PyTorchJob: `restart_policy` is another way to say `max_retries`."""

from collections.abc import Iterable
from typing import Any

from common.errors import InvalidSpec, Problem

NEVER, ON_FAILURE = "Never", "OnFailure"
POLICIES = (NEVER, ON_FAILURE)
# Of OnFailure without a number, where the queue gives none either: retries are 0 otherwise, and 0 is no restart. A lost
# node or a network that failed is overcome by three, and an error in the code does not hold GPUs for a whole night.
RETRIES_ON_FAILURE = 3

_REFUSED = {
    "Always": "would start a job again that has succeeded, and a training job is done then; use OnFailure, with "
    "max_retries for how many times",
    "ExitCode": "is said by other fields here: use OnFailure, with retry_on or never_retry_on for the exit codes",
}


def retries(policy: Any, *, given: int | None, below: int) -> int:
    """Return the retries that a policy means. `given`: `max_retries` said beside it; `below`: what holds without both.

    Raises InvalidSpec for an unknown policy, and for one that contradicts the number beside it.
    """
    if policy not in POLICIES:
        message = _REFUSED.get(policy) if isinstance(policy, str) else None
        raise InvalidSpec(
            Problem("restart_policy", policy, message or f"is not one of {' and '.join(POLICIES)}; use one of these")
        )
    if problem := contradiction(policy, given):
        raise InvalidSpec(problem)
    if policy == NEVER:
        return 0
    return given or below or RETRIES_ON_FAILURE


def contradiction(policy: Any, given: int | None) -> Problem | None:
    """Return the problem of a policy and a number of retries, said together, that exclude each other."""
    if given is None or policy not in POLICIES or (policy == NEVER) == (given == 0):
        return None
    means = "means no retries" if policy == NEVER else "means at least one retry"
    return Problem("restart_policy", policy, f"{means}, but max_retries is {given}; remove one of the two fields")


def on_failure(
    max_retries: int, *, retry_on: Iterable[int] = (), never_retry_on: Iterable[int] = (), is_elastic: bool = False
) -> str:
    """Say what happens when a replica fails, as a sentence without its end."""
    begin = "lost replicas are replaced while enough are left; with too few, " if is_elastic else "if a replica fails, "
    if not max_retries:
        return f"{begin}the job fails: it has no retries"
    times = f"all replicas start again, up to {max_retries} time{'' if max_retries == 1 else 's'}"
    only, never = _codes(retry_on), _codes(never_retry_on)
    return begin + times + (f", only after {only}" if only else "") + (f", but not after {never}" if never else "")


def _codes(codes: Iterable[int]) -> str:
    numbers = [str(code) for code in codes]
    return f"exit code{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}" if numbers else ""

"""Run by Ray in each of its worker processes before any task. Ray Train sets RANK in a process that already runs
(ray/train/torch/config.py), and what its `report` is given are metrics of that rank."""

from __future__ import annotations

import functools
import os
from typing import Any, Dict

from . import late_ranks, on_import

NAME = f"{__name__}.setup"
# What Ray runs is in this variable (ray/_private/ray_constants.py); a hook in a job's own runtime_env replaces it.
VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
PREFIX = "ray/"  # distinguishes them from the series of `muster.report`
_STEPS = ("step", "global_step", "training_iteration", "epoch")


def setup() -> None:
    late_ranks.watch()
    if os.environ.get("MUSTER_IGNORE_PRINTED") != "1":
        # Of both generations of Ray Train; `ray.train` takes its `report` from one of them.
        on_import.change(dict.fromkeys(("ray.train.v2.api.train_fn_utils", "ray.train._internal.session"), _hear))


def _hear(module: Any) -> None:
    """Have `report` of this module tell Muster, too."""
    original = module.report

    @functools.wraps(original)
    def report(metrics: Dict[str, Any], *given: Any, **named: Any) -> Any:
        _tell(metrics)
        return original(metrics, *given, **named)

    module.report = report


def _tell(metrics: Any) -> None:
    """Report the numbers among these metrics. Whatever they are, training goes on."""
    try:
        import muster

        numbers = {name: value for name, value in metrics.items() if _is_number(value)}
        step = next((int(numbers[name]) for name in _STEPS if name in numbers), None)
        values = {f"{PREFIX}{name}": value for name, value in numbers.items() if name != "step"}
        if values and (os.environ.get("RANK") or _is_first()):
            muster.report(step=step, **values)
    except Exception:  # noqa: S110 - a report that cannot be read must not end the rank
        pass


def _is_first() -> bool:
    """Return whether this is the first of workers that have no RANK: they would all report as the same rank."""
    import ray.train

    return bool(ray.train.get_context().get_world_rank() == 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

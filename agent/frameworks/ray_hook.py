"""Run by Ray in each of its worker processes before any task. Ray Train sets RANK in a process that already runs
(ray/train/torch/config.py)."""

from __future__ import annotations

from .late_ranks import watch

NAME = f"{__name__}.setup"
# What Ray runs is in this variable (ray/_private/ray_constants.py); a hook in a job's own runtime_env replaces it.
VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


def setup() -> None:
    watch()

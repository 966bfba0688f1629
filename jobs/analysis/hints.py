"""What to change after an error that says nothing of it, because the job is started by Muster and not by hand. Pure.

Verdicts are not made of them: a hint is one more sentence below a headline.
"""

import re

_HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"environment variable (RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected|KeyError: '(RANK|LOCAL_RANK|WORLD_SIZE)'"),
        "A single process has no RANK, so that scripts which take it for a sign of other ranks work. Set distributed=1, or "
        "start the script with torchrun",
    ),
    (
        re.compile(r"coordinator_address should be defined"),
        "jax.distributed.initialize() finds the other processes of a plain job. Set framework=plain with nodes of at least 2, or "
        "leave the call out of a single process",
    ),
    (
        re.compile(r"When connecting to an existing cluster, (num_cpus|resources|labels|object_store_memory)"),
        "The job's Ray cluster is running already: call ray.init() without num_cpus, num_gpus and other sizes, which nodes and "
        "nproc_per_node decide",
    ),
)  # fmt: skip


def of(headline: str) -> str:
    """Return what to change after this error, as one or two sentences without a full stop; empty if nothing is known."""
    return next((words for pattern, words in _HINTS if pattern.search(headline)), "")

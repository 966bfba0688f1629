"""Starts ranks as torchrun does, with its words, environment, sessions and signals, and imports no torch.

Read in torch 2.15: elastic/agent/server/local_elastic_agent.py (the environment), distributed/run.py (PYTHON_EXEC, -u),
elastic/multiprocessing (a session for each rank; when one fails the groups of the others get SIGTERM, then SIGKILL).
Its rendezvous is static: PET_NODE_RANK numbers the ranks, and nobody waits for other nodes.
"""

import os
import signal
import subprocess
import sys
import time

NODES, NODE = int(os.environ.get("PET_NNODES", "1")), int(os.environ.get("PET_NODE_RANK", "0"))
STOP_SECONDS = float(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))  # local_elastic_agent.py


def start(script: list[str], *, local: int, count: int) -> "subprocess.Popen[bytes]":
    numbers = {
        "LOCAL_RANK": local, "RANK": NODE * count + local, "GROUP_RANK": NODE, "ROLE_RANK": NODE * count + local,
        "LOCAL_WORLD_SIZE": count, "WORLD_SIZE": NODES * count, "GROUP_WORLD_SIZE": NODES, "ROLE_WORLD_SIZE": NODES * count,
        "MASTER_ADDR": os.environ.get("PET_MASTER_ADDR", "127.0.0.1"), "MASTER_PORT": os.environ.get("PET_MASTER_PORT", "0"),
        "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_RUN_ID": "none",
    }  # fmt: skip
    env = {**os.environ, **{name: str(value) for name, value in numbers.items()}}
    words = [os.environ.get("PYTHON_EXEC", sys.executable), "-u", *script]
    return subprocess.Popen(words, env=env, start_new_session=True)


def main(words: list[str]) -> int:
    count = int(os.environ.get("PET_NPROC_PER_NODE", "1"))
    while words[0].startswith("--"):
        name, _, value = words.pop(0).partition("=")
        count = int(value) if name.replace("-", "_") == "__nproc_per_node" else count
    ranks = [start(words, local=local, count=count) for local in range(count)]
    stopped_at, is_asked = 0.0, [False]
    signal.signal(signal.SIGTERM, lambda *_: is_asked.append(True))
    while any(one.poll() is None for one in ranks):
        if not stopped_at and (is_asked[-1] or any(one.poll() for one in ranks)):
            stopped_at = time.monotonic()
            end(ranks, signal.SIGTERM)
        if stopped_at and time.monotonic() - stopped_at > STOP_SECONDS:
            end(ranks, signal.SIGKILL)
        time.sleep(0.02)
    return 1 if any(one.returncode for one in ranks) else 0


def end(ranks: "list[subprocess.Popen[bytes]]", number: int) -> None:
    for one in ranks:
        if one.poll() is None:
            os.killpg(one.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Real agents on a real state folder, against the fake control plane of tests/support."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.fake_control_plane import FakeControlPlane, Received
from tests.support.patience import PATIENCE_SECONDS

ENDED = ("succeeded", "failed")


class Bench:
    """One attempt with as many replicas as a test needs."""

    def __init__(self, root: Path, *, pyz: Path, control_plane: FakeControlPlane) -> None:
        self.root, self.pyz, self.control_plane = root, pyz, control_plane
        self.mark = f"test-{uuid.uuid4().hex[:12]}"
        self.attempt = root / "jobs" / "42" / "1"
        self.attempt.mkdir(parents=True)
        self.shared = root / "jobs" / "42" / "shared"
        self.shared.mkdir()
        self.agents: list[subprocess.Popen[bytes]] = []
        self.point_to(control_plane.url)

    def point_to(self, url: str) -> None:
        (self.root / "control.json").write_text(json.dumps({"url": url}))

    def replica(self, command: list[str], *, index: int = 0, files: dict[str, str] | None = None, **told: Any) -> Path:
        """Write the folder of one replica; `files` become its code without a workspace."""
        folder = self.attempt / f"{told.get('role', 'worker')}-{index}"
        (folder / "code").mkdir(parents=True)
        for name, text in (files or {}).items():
            (folder / "code" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "code" / name).write_text(text)
        spec = {
            "run": "42", "attempt": 1, "role": "worker", "index": index, "processes": 1, "command": command, "env": {},
            "hold_port": None, "grace_seconds": 5, "shared": str(self.shared), "mark": self.mark,
            "control": {"file": str(self.root / "control.json")}, "wants_workspace": False, "mirror": False,
        }  # fmt: skip
        (folder / "replica.json").write_text(json.dumps({**spec, **told}))
        (folder / "token").write_text(folder.name)
        return folder

    def start(
        self, folder: Path, *, how: str = "--state", python: str = sys.executable, **env: str
    ) -> subprocess.Popen[bytes]:
        words = [python, str(self.pyz), how, str(folder)]
        with open(folder / "agent.log", "ab") as log:
            agent = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env={**os.environ, "MUSTER_DRAIN_SECONDS": "60", **env},
            )  # fmt: skip
        self.agents.append(agent)
        return agent

    def run(self, command: list[str], **told: Any) -> Received:
        """Run one replica from start to end. Return what the control plane received."""
        folder = self.replica(command, **told)
        self.start(folder).wait(PATIENCE_SECONDS)
        return self.control_plane.of(folder.name)

    def status(self, index: int = 0) -> dict[str, Any]:
        try:
            return json.loads((self.attempt / f"worker-{index}" / "status.json").read_text())
        except FileNotFoundError:
            return {}

    def wait_for(self, is_so: Callable[[], Any]) -> Any:
        """Poll until the condition holds. Raises AssertionError with the agents' logs after PATIENCE_SECONDS."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            found = is_so()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError("\n".join(path.read_text() for path in self.attempt.glob("*/agent.log")))

    def carriers(self) -> list[int]:
        """Return the live processes of this bench: ranks, launchers, shims."""
        wanted = f"MUSTER_MARK={self.mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                pass
        return found

    def close(self) -> list[int]:
        """End the agents. Return the processes that survived them."""
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGKILL)
            agent.wait()
            if agent.stdout:
                agent.stdout.close()
        give_up = time.monotonic() + PATIENCE_SECONDS
        while self.carriers() and time.monotonic() < give_up:
            time.sleep(0.02)
        return self.carriers()


def torch_env(index: int, *, nodes: int = 2, per_node: int = 2, port: int) -> dict[str, str]:
    """Return the environment as jobs/frameworks/torchrun.py builds it."""
    return {
        "PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(per_node), "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port), "PET_MAX_RESTARTS": "0",
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }  # fmt: skip

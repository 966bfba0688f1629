"""python -m tests.cluster.rig build | up [--nodes N] [--lifted]"""

import argparse
import signal
import sys

from . import programs
from .plane import ControlPlane
from .world import NAMESPACE, fill


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.cluster.rig")
    words.add_argument("act", choices=["build", "up"])
    words.add_argument("--nodes", type=int, default=20, help="fake nodes with 8 GPUs each")
    words.add_argument("--lifted", action="store_true", help="lift the controllers' and the scheduler's request limits")
    said = words.parse_args()
    try:
        print(programs.build(), flush=True)
    except programs.CanNotBuild as problem:
        print(problem, file=sys.stderr)
        return 1
    return up(said.nodes, has_lifted_limits=said.lifted) if said.act == "up" else 0


def up(nodes: int, *, has_lifted_limits: bool) -> int:
    plane = ControlPlane(has_lifted_limits=has_lifted_limits)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plane.start()
        mine = fill(plane, nodes=nodes)
        print(f"administrator: {plane.kubeconfig}\nmuster:        {mine}  (namespace {NAMESPACE})", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        plane.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m rig build | up [--nodes N] [--lifted] [--real] | lend FILE"""

import argparse
import contextlib
import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from . import definitions, helm, image, network, objects, programs
from .lending import lend, raised
from .node import NAME, Node, why_not
from .plane import ControlPlane
from .world import NAMESPACE, fill

END = (signal.SIGINT, signal.SIGTERM)


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m rig")
    words.add_argument("act", choices=["build", "up", "lend"])
    words.add_argument(
        "file", nargs="?", type=Path, help="lend: where to say how pods are had (JSON), once they can be"
    )
    words.add_argument("--nodes", type=int, default=20, help="fake nodes with 8 GPUs each")
    words.add_argument("--lifted", action="store_true", help="lift the controllers' and the scheduler's request limits")
    words.add_argument("--real", action="store_true", help="with a node that runs pods (root only)")
    options = words.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        build(is_real=options.real or options.act == "lend" or (options.act == "build" and os.geteuid() == 0))
        if options.act == "lend":
            lend_to(options.file)
        elif options.act == "up":
            up(options.nodes, has_lifted_limits=options.lifted, is_real=options.real)
    except (programs.CanNotBuild, network.NoNetwork) as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def build(*, is_real: bool) -> None:
    """Build what is missing; a node's programs only where it could run."""
    if is_real and (problem := why_not()):
        raise programs.CanNotBuild(problem)
    real = (
        (
            programs.NODE_SOURCES,
            programs.PROXY_SOURCES,
            programs.FIREWALL_SOURCES,
            programs.KUBECTL_SOURCES,
            helm.SOURCES,
        )
        if is_real
        else ()
    )
    for sources in (programs.SOURCES, programs.SIMULATOR_SOURCES, objects.SOURCES, *real):
        programs.build(sources)
    if is_real:
        definitions.fetch()
    print(programs.folder(), flush=True)


def up(nodes: int, *, has_lifted_limits: bool, is_real: bool) -> None:
    """Run a cluster until interrupted."""
    with contextlib.suppress(KeyboardInterrupt), ExitStack() as at_the_end:
        cable = network.lay() if is_real else None
        if cable:
            at_the_end.callback(cable.remove)
        plane = ControlPlane(has_lifted_limits=has_lifted_limits, address=cable.host if cable else "127.0.0.1")
        at_the_end.callback(plane.stop)
        plane.start()
        mine = fill(plane, nodes=nodes)
        print(f"administrator: {plane.kubeconfig}\nmuster:        {mine}  (namespace {NAMESPACE})", flush=True)
        if cable:
            node = Node(plane, cable)
            at_the_end.callback(node.stop)
            node.start()
            print(f"real node:     {NAME}, image {image.NAME}, this machine is {cable.host}", flush=True)
        until_stopped()


def until_stopped() -> None:
    """Return, or raise KeyboardInterrupt, once SIGINT or SIGTERM arrives.

    `signal.pause` would sleep on where one arrives just before it: Python notes it and runs the handler when C returns.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, END)  # runs the handler of one that has arrived
    signal.sigwait(END)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END)


def lend_to(file: Path) -> None:
    """Run a cluster with one real node until interrupted, for an installation that listens on this end of its cable."""
    with contextlib.suppress(KeyboardInterrupt), raised() as (plane, node):
        draft = file.with_name(f"{file.name}.new")
        draft.write_text(json.dumps({"host": node.cable.host, "options": lend(plane, node)}))
        draft.rename(file)
        until_stopped()


if __name__ == "__main__":
    sys.exit(main())

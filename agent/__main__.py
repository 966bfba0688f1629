"""Entry point of `python3 agent.pyz`: run a replica, drain one that ended, keep a claim, look at a cluster, or be a program around a rank, a Ray node or torchrun."""

from __future__ import annotations

import sys

USAGE = "usage: agent.pyz --state DIR | --drain DIR | --keep DIR | --probe"


def main() -> int:
    words = sys.argv[1:]
    # The shim first, with nothing else imported: every rank's start waits for it.
    if words[:1] == ["--shim"]:
        from .ranks import shim

        return shim.main(words[1:])
    if words[:1] in (["--ray-head"], ["--ray-worker"]):
        from .frameworks import ray_node

        return ray_node.head(words[1:]) if words[0] == "--ray-head" else ray_node.worker()
    if words[:1] == ["--keep"]:
        from .errands import keeper

        return keeper.main(words[1:])
    if words == ["--probe"]:
        from .errands import probe

        return probe.main()
    if words[:1] == ["--once-known"]:
        from . import names

        return names.main(words[1:])
    if len(words) != 2 or words[0] not in ("--state", "--drain"):
        print(USAGE, file=sys.stderr)
        return 2
    from . import replica

    return replica.run(words[1]) if words[0] == "--state" else replica.drain(words[1])


if __name__ == "__main__":
    sys.exit(main())

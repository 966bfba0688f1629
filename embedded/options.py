"""bin/demo's options, and the location of its data."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .programs import CHECKOUT, FRAMEWORKS, LIGHT


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "bin/demo", description="Muster on this machine: no Docker, no database, no cluster.", epilog=_ENDING
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8000, help="first port to try (default: 8000; 0: any free port)")
    parser.add_argument(
        "--cluster",
        choices=["local", "rig"],
        default="local",
        help="rig: real pods, on a Kubernetes that runs as long as this command (root only)",
    )
    parser.add_argument(
        "--once", action="store_true", help="run the sample job, stop everything, exit 0 if it succeeded"
    )
    parser.add_argument(
        "--light", action="store_true", help="without PyTorch, which is 3 GB: the sample job is a plain one"
    )
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, help="of the sample job (default: torchrun, with --light plain)"
    )
    parser.add_argument("--no-job", action="store_true", help="do not submit the sample job")
    parser.add_argument("--resume", action="store_true", help="resume suspended jobs without asking")
    parser.add_argument(
        "--fetch-pytorch", action="store_true", help=argparse.SUPPRESS
    )  # bin/demo adds it where PyTorch is not installed yet
    parser.add_argument("--stop", action="store_true", help="stop the instance that is running")
    parser.add_argument("--reset", action="store_true", help="stop it, then delete all of its data")
    parser.add_argument("--yes", action="store_true", help="with --reset: do not ask")
    parser.add_argument("--reset-password", action="store_true", help="print a new password for the administrator")
    parser.add_argument(
        "--temporary", action="store_true", help=argparse.SUPPRESS
    )  # tests: no fsync, all deleted at the end
    options = parser.parse_args(arguments)
    if options.light and options.framework not in (None, LIGHT):
        parser.error(f"--framework {options.framework} needs more packages than --light installs; leave out --light")
    if options.light and options.cluster != "local":
        parser.error(f"--cluster {options.cluster} needs PyTorch; leave out --light")
    options.framework = options.framework or (LIGHT if options.light else "torchrun")
    return options


_ENDING = "Data lies in .muster of the checkout, or in MUSTER_DATA_DIR. DATABASE_URL and REDIS_URL name servers to use instead."


def data_folder(environ: Mapping[str, str] = os.environ, *, cluster: str = "local") -> Path:
    """Return the data folder. The rig's is beside the default one: it lasts no longer than its cluster."""
    path = Path(environ.get("MUSTER_DATA_DIR") or CHECKOUT / ".muster").absolute()
    return path if cluster == "local" else path.with_name(f"{path.name}-{cluster}")


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return number

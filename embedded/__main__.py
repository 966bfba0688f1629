"""`python -m embedded demo [options]`: what bin/demo runs."""

import sys
from pathlib import Path

from common.machine import trees

from . import EmbeddedError, instance
from .demo import Demo
from .home import remove_home
from .local_home import remove_local_home
from .options import data_folder, parse
from .password import reset_password
from .terminal import complain, is_terminal, say


def main(arguments: list[str]) -> int:
    options = parse(arguments[1:])
    data = data_folder(cluster=options.cluster)
    try:
        if options.stop:
            return _stop(data)
        if options.reset:
            return _reset(data, is_sure=options.yes)
        if options.reset_password:
            return reset_password(data)
        return Demo(data, options=options).run()
    except EmbeddedError as error:
        complain(error)
        return 1


def _stop(data: Path) -> int:
    say("Stopped; the state is kept." if instance.stop(data) else f"Nothing is running in {data}.")
    return 0


def _reset(data: Path, *, is_sure: bool) -> int:
    if not data.exists():
        say(f"There is nothing in {data}.")
        return 0
    if not (is_sure or _confirmed(data)):
        say("Nothing was deleted.")
        return 1
    instance.stop(data)
    if not instance.Instance(data).claim():
        raise EmbeddedError(f"Muster is still starting or stopping in {data}; try again in a moment.")
    remove_local_home(data)
    remove_home(data)
    trees.remove(data)
    if data.exists():
        raise EmbeddedError(f"{data} could not be deleted completely; look at what is left there, and try again.")
    say(f"Deleted {data}: database, jobs, logs and checkpoints.")
    return 0


def _confirmed(data: Path) -> bool:
    if not is_terminal():
        say(f"This deletes {data} with all jobs, logs and checkpoints; add --yes to do it.")
        return False
    return input(f"Delete {data} with all jobs, logs and checkpoints? [y/N] ").strip().lower() in ("y", "yes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

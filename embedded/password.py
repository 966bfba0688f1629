"""bin/demo --reset-password: through the running instance, or with Postgres started just for this."""

import os
from pathlib import Path

from . import EmbeddedError
from .instance import Instance, running
from .launch import Launch
from .terminal import say


def reset_password(data: Path) -> int:
    if not (data / "secrets.json").exists():
        raise EmbeddedError(
            f"There is no installation in {data} yet; bin/demo creates one and prints the first password."
        )
    instance = Instance(data)
    launch = Launch(instance, host="127.0.0.1", port=0, given=os.environ)
    if note := running(data):
        launch.env = note["env"]
        made = launch.step("reset-password")
    else:
        made = _with_servers(launch, instance)
    say(f"  user      {made['user']}\n  password  {made['password']}")
    return 0


def _with_servers(launch: Launch, instance: Instance) -> dict[str, str]:
    if not instance.claim():
        raise EmbeddedError("Muster is starting or stopping; try again in a moment.")
    try:
        launch.open_database()
        return launch.step("reset-password")
    finally:
        launch.stop()

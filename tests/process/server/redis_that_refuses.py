"""A Redis of one test, which refuses Muster in each way that a Redis that runs can, and accepts it again."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from embedded.binaries import find_binaries
from embedded.ports import free_port
from tests.support.patience import until

USER, PASSWORD = "muster", "hunter2-of-redis"


class RedisThatRefuses:
    """Muster is its user `muster`; the test is `default`, which may do everything."""

    def __init__(self, port: int):
        self._port = port
        self.url = f"redis://{USER}:{PASSWORD}@127.0.0.1:{port}/0"
        self.without_password = f"redis://127.0.0.1:{port}/0"
        self.admin = Redis(port=port, username="admin", password=PASSWORD)

    def accept(self) -> None:
        self.admin.execute_command("REPLICAOF", "NO", "ONE")
        self._user(USER, "resetpass", f">{PASSWORD}", "+@all")

    def refuse(self, how: str) -> None:
        """`how`: WRONGPASS, NOPERM or READONLY, as Redis calls it."""
        if how == "WRONGPASS":
            self._user(USER, "resetpass", ">another-one")
        elif how == "NOPERM":
            self._user(USER, "-@all", "+@connection")
        else:
            self.admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        # A password is asked for once per connection, and a client that waits for a list is not refused before it wakes.
        for kind in ("normal", "pubsub"):
            self.admin.execute_command("CLIENT", "KILL", "TYPE", kind)

    def _user(self, name: str, *rules: str) -> None:
        self.admin.execute_command("ACL", "SETUSER", name, *rules)

    def set_up(self) -> None:
        with Redis(port=self._port) as first:
            until(lambda: _answers(first))
            for name in ("admin", USER):
                first.execute_command("ACL", "SETUSER", name, "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
            first.execute_command("ACL", "SETUSER", "default", "resetpass", ">of-nobody")


def _answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except RedisError:
        return False


@contextmanager
def redis_that_refuses(folder: Path) -> Iterator[RedisThatRefuses]:
    port = free_port()
    program = find_binaries(account=None, shelf=folder).redis
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"]
    with (folder / "redis.log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            found = RedisThatRefuses(port)
            found.set_up()
            yield found
        finally:
            process.kill()

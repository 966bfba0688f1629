"""Postgres and Redis in one folder:

    with Servers(Path("...")) as servers:
        servers.database_url, servers.redis_url

A given URL is used as it is, and that server is not started.
"""

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from .account import Account, server_account
from .binaries import Binaries, find_binaries
from .files import private_folder, read_json, write_json
from .home import Home, find_home, remove_home
from .ports import free_port
from .postgres import Postgres
from .processes import Identity, end, identity
from .redis_server import Redis


class Server(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def stop_signals(self) -> tuple[tuple[int, float], ...]: ...
    def prepare(self) -> None: ...
    def spawn(self) -> "subprocess.Popen[bytes]": ...
    def wait_ready(self, process: "subprocess.Popen[bytes]") -> None: ...


class Servers:
    """The servers; `is_temporary`: for tests; no fsync, and `stop` deletes what is outside the folder.

    `template`: a folder of Postgres data that a new database begins with, instead of an empty one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database_url: str = "",
        redis_url: str = "",
        is_temporary: bool = False,
        template: Path | None = None,
    ):
        self.template = template
        self.folder = folder.absolute()
        self.database_url, self.redis_url = database_url, redis_url
        self.is_temporary = is_temporary
        self.servers: list[Server] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.prepare()
        try:
            for server in self.servers:
                self.running[server.name] = server.spawn()
            note_running(self.folder, pids={name: process.pid for name, process in self.running.items()})
            for server in self.servers:
                server.wait_ready(self.running[server.name])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for server in reversed(self.servers):
            process = self.running.pop(server.name, None)
            if process is not None:
                stop_process(process, signals=server.stop_signals)
        self.clear()

    def hand_over(self) -> "list[tuple[Server, subprocess.Popen[bytes]]]":
        """Return the running servers, for a supervisor that ends them itself and then calls `clear`."""
        given = [(server, self.running[server.name]) for server in self.servers]
        self.running.clear()
        return given

    def clear(self) -> None:
        """Clean up after they have ended."""
        (self.folder / "running.json").unlink(missing_ok=True)
        if self.is_temporary:
            remove_home(self.folder)

    def prepare(self) -> None:
        """Do everything but start them: folders, programs, passwords, the empty database. Raises EmbeddedError."""
        self.reserve()
        for server in self.servers:
            server.prepare()

    def reserve(self) -> None:
        """Choose where they will be, so that their URLs are known before anything is created. Raises EmbeddedError."""
        if self.database_url and self.redis_url:
            return
        private_folder(self.folder)
        end_leftovers(self.folder)
        account = server_account()
        home = find_home(self.folder, account=account, is_temporary=self.is_temporary)
        binaries = find_binaries(account=account, shelf=home.shelf)
        private_folder(self.folder / "logs")
        if not self.database_url:
            self._add_postgres(home, binaries=binaries, account=account)
        if not self.redis_url:
            self._add_redis(home, binaries=binaries, account=account)

    def _add_postgres(self, home: Home, *, binaries: Binaries, account: Account | None) -> None:
        postgres = Postgres(
            home=home,
            program=binaries.postgres,
            initdb=binaries.initdb,
            account=account,
            password=secret(self.folder, name="postgres"),
            log=self.folder / "logs/postgres.log",
            is_temporary=self.is_temporary,
            template=self.template,
        )
        self.servers.append(postgres)
        self.database_url = postgres.url

    def _add_redis(self, home: Home, *, binaries: Binaries, account: Account | None) -> None:
        redis = Redis(
            folder=home.path,
            program=binaries.redis,
            account=account,
            password=secret(self.folder, name="redis"),
            port=free_port(),
            log=self.folder / "logs/redis.log",
        )
        self.servers.append(redis)
        self.redis_url = redis.url


def secret(folder: Path, *, name: str) -> str:
    """Return the secret of that name, created at its first use and kept in secrets.json (0600)."""
    known: dict[str, str] = read_json(folder / "secrets.json") or {}
    if name not in known:
        known[name] = secrets.token_urlsafe(32)
        write_json(folder / "secrets.json", value=known)
    return known[name]


def stop_process(process: "subprocess.Popen[bytes]", *, signals: tuple[tuple[int, float], ...]) -> None:
    """Send each signal and wait its seconds. The process is our child, so its pid is not reused before the wait."""
    for number, seconds in signals:
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue


def note_running(folder: Path, *, pids: Mapping[str, int]) -> None:
    """Record the running processes of this folder, for a later start that finds them still ending."""
    known = {name: identity(pid) for name, pid in pids.items()}
    write_json(folder / "running.json", value={name: who.as_json() for name, who in known.items() if who})


def end_leftovers(folder: Path) -> None:
    """End what a killed supervisor left behind: the kernel signalled these processes, but they may still be ending."""
    known = {name: Identity(**who) for name, who in (read_json(folder / "running.json") or {}).items()}
    ending = [
        Thread(target=end, args=[who], kwargs={"signals": _leftover_signals(name)}) for name, who in known.items()
    ]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join()


def _leftover_signals(name: str) -> tuple[tuple[int, float], ...]:
    return Postgres.stop_signals if name == "postgres" else Redis.stop_signals

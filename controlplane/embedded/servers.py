"""Postgres and Redis in one folder:

    with Servers(Path("...")) as servers:
        servers.database_url, servers.redis_url

A URL that is given is used as it is, and that server is not started.
"""

import secrets
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from .account import server_account
from .binaries import find_binaries
from .doorbell_server import Redis
from .files import private_folder, read_json, write_json
from .home import find_home, remove_home
from .ports import free_port
from .postgres import Postgres
from .processes import Identity, end, identity


class Server(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def stop_signals(self) -> tuple[tuple[int, float], ...]: ...
    def spawn(self) -> "subprocess.Popen[bytes]": ...
    def wait_ready(self, process: "subprocess.Popen[bytes]") -> None: ...


class Servers:
    """`is_temporary`: for tests; no fsync, and `stop` deletes what lies outside the folder."""

    def __init__(self, folder: Path, *, database_url: str = "", redis_url: str = "", is_temporary: bool = False):
        self.folder = folder.absolute()
        self.database_url, self.redis_url = database_url, redis_url
        self.is_temporary = is_temporary
        self.servers: list[Server] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self.prepare()
        try:
            for server in self.servers:
                self.running[server.name] = server.spawn()
            note_running(self.folder, processes=self.running)
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
        (self.folder / "servers.json").unlink(missing_ok=True)
        if self.is_temporary:
            remove_home(self.folder)

    def prepare(self) -> None:
        """Everything but starting them: folders, programs, passwords, the empty database."""
        if self.database_url and self.redis_url:
            return
        private_folder(self.folder)
        end_leftovers(self.folder)
        account = server_account()
        home = find_home(self.folder, account=account, is_temporary=self.is_temporary)
        binaries = find_binaries(account=account, shelf=home.shelf)
        logs = private_folder(self.folder / "logs")
        if not self.database_url:
            self._add_postgres(Postgres(home, binaries.postgres, binaries.initdb, account, self._password("postgres"), logs / "postgres.log", self.is_temporary))
        if not self.redis_url:
            redis = Redis(home.path, binaries.redis, account, self._password("redis"), free_port(), logs / "redis.log")
            self.servers.append(redis)
            self.redis_url = redis.url

    def _add_postgres(self, postgres: Postgres) -> None:
        postgres.prepare()
        self.servers.append(postgres)
        self.database_url = postgres.url

    def _password(self, name: str) -> str:
        return secret(self.folder, name=name)


def secret(folder: Path, *, name: str) -> str:
    """The secret of that name, made at its first use and kept in secrets.json (0600)."""
    known: dict[str, str] = read_json(folder / "secrets.json") or {}
    if name not in known:
        known[name] = secrets.token_urlsafe(32)
        write_json(folder / "secrets.json", value=known)
    return known[name]


def stop_process(process: "subprocess.Popen[bytes]", *, signals: tuple[tuple[int, float], ...]) -> None:
    """Ask, then insist. The process is a child of ours, so its number can not be anybody else's before we waited."""
    for number, seconds in signals:
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue


def note_running(folder: Path, *, processes: dict[str, "subprocess.Popen[bytes]"]) -> None:
    known = {name: identity(process.pid) for name, process in processes.items()}
    write_json(folder / "servers.json", value={name: who.as_json() for name, who in known.items() if who})


def end_leftovers(folder: Path) -> None:
    """What a supervisor that was killed left behind: the kernel told them to end, but that may still be under way."""
    known = read_json(folder / "servers.json") or {}
    ending = [
        threading.Thread(target=end, args=[Identity(**who)], kwargs={"signals": _leftover_signals(name)}) for name, who in known.items()
    ]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join()


def _leftover_signals(name: str) -> tuple[tuple[int, float], ...]:
    return Postgres.stop_signals if name == "postgres" else Redis.stop_signals

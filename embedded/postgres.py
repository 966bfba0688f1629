"""Embedded Postgres: initialised once, reached through a socket in a folder of mode 0700, with a password. No TCP."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from . import EmbeddedError
from .account import Account, give
from .files import last_lines, open_log, write_text
from .home import Home
from .processes import spawn

USER = DATABASE = "muster"
START_SECONDS = 60.0  # a recovery after a crash replays at most max_wal_size
# pg_ctl(1): smart waits for clients, fast ends them, immediate is a crash that the next start recovers from.
STOP_SIGNALS = ((signal.SIGTERM, 2.0), (signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))

# For one small installation that is idle most of the time. Durability is not sacrificed: fsync stays on.
_SETTINGS = {
    "listen_addresses": "''",
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "max_connections": "50",
    "superuser_reserved_connections": "2",
    "shared_buffers": "16MB",
    "work_mem": "4MB",
    "maintenance_work_mem": "16MB",
    "huge_pages": "off",
    "jit": "off",
    "io_method": "sync",  # no I/O worker processes
    "max_worker_processes": "0",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_buffers": "1MB",
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
    "wal_writer_delay": "1s",  # it writes only commits that do not wait
    "bgwriter_delay": "1s",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "5min",
    "autovacuum_max_workers": "1",
    "autovacuum_worker_slots": "1",
    "track_activities": "on",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
    "lc_messages": "'C'",
    "log_line_prefix": "'%m [%p] '",
    "log_checkpoints": "off",
    # Errors are returned to the client, which is us; the log contains no statement and no row (they hold commands and
    # environments).
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
}
_THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Postgres:
    home: Home
    program: Path
    initdb: Path
    account: Account | None
    password: str
    log: Path
    is_temporary: bool = False  # for tests: what a power cut would lose is not worth keeping
    template: Path | None = None  # data of a stopped server to begin with

    name = "postgres"
    stop_signals = STOP_SIGNALS
    dies_by = signal.SIGINT

    @property
    def url(self) -> str:
        return f"postgres://{USER}:{quote(self.password, safe='')}@/{DATABASE}?host={self.home.socket_folder}&port=5432"

    @property
    def data(self) -> Path:
        return self.home.path / "data"

    def prepare(self) -> None:
        """Create the database if there is none, and rewrite its settings."""
        if not self.data.exists():
            self._initialise()
        self._configure()

    def spawn(self) -> "subprocess.Popen[bytes]":
        log = open_log(self.log)
        try:
            argv: list[str | Path] = [self.program, "-D", self.data, "-c", f"config_file={self._settings_file}"]
            return spawn(
                argv, log=log, account=self.account, dies_by=self.dies_by, env=_environment(), folder=self.home.path
            )
        finally:
            os.close(log)

    def wait_ready(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until Postgres is ready; raises EmbeddedError.

        The postmaster reports it on line 8 of its pid file (miscinit.h); pg_ctl reads the same.
        """
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if process.poll() is not None:
                raise EmbeddedError(
                    f"Postgres ended with code {process.returncode}; {self.log} ends with:\n{last_lines(self.log)}"
                )
            if self._says(process.pid) == "ready":
                return
            time.sleep(0.02)
        raise EmbeddedError(f"Postgres was not ready in {START_SECONDS:.0f} s; its log is {self.log}")

    @property
    def _settings_file(self) -> Path:
        return self.home.path / "postgresql.conf"

    def _says(self, pid: int) -> str:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        return lines[7].strip() if len(lines) > 7 and lines[0] == str(pid) else ""

    def _initialise(self) -> None:
        """Initialise under another name until complete: an interrupted start leaves nothing that looks finished."""
        draft = self.home.path / "data.new"
        _run(["rm", "-rf", draft], account=self.account, log=self.log)
        if self.template is None:
            self._create(draft)
        else:
            self._copy(self.template, draft)
        draft.rename(self.data)

    def _create(self, draft: Path) -> None:
        secret = self.home.path / "password"
        write_text(secret, text=self.password + "\n")
        give(secret, account=self.account)
        try:
            _run(self._initdb_command(draft, secret=secret), account=self.account, log=self.log)
        finally:
            secret.unlink()
        self._execute(f"CREATE DATABASE {DATABASE}", folder=draft)

    def _copy(self, template: Path, draft: Path) -> None:
        """Begin with another server's data, and with a password of our own. `secrets` writes no quote into it."""
        shutil.copytree(template, draft)
        for path in (draft, *draft.rglob("*")):
            give(path, account=self.account)
        self._execute(f"ALTER ROLE {USER} PASSWORD '{self.password}'", folder=draft)

    def _execute(self, statement: str, *, folder: Path) -> None:
        """Execute a statement without a server."""
        argv: list[str | Path] = [self.program, "--single", "-D", folder, "postgres"]
        _run(argv, account=self.account, log=self.log, text=f"{statement}\n")

    def _initdb_command(self, folder: Path, *, secret: Path) -> list[str | Path]:
        options = ["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--wal-segsize", "4"]
        locale = ["--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
        sync = ["--no-sync"] if self.is_temporary else []
        return [self.initdb, "-D", folder, "--pwfile", secret, *options, *locale, *sync]

    def _configure(self) -> None:
        settings = _SETTINGS | {
            "unix_socket_directories": f"'{self.home.socket_folder}'",
            "hba_file": f"'{self.home.path}/pg_hba.conf'",
        }
        settings |= _THROWAWAY if self.is_temporary else {}
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        for path, content in (
            (self._settings_file, text),
            (self.home.path / "pg_hba.conf", "local all all scram-sha-256\n"),
        ):
            write_text(path, text=content)
            give(path, account=self.account)


def _environment() -> dict[str, str]:
    """Return a minimal environment: the caller's PGDATA, LC_ALL or tokens must not reach the server."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _run(argv: list[str | Path], *, account: Account | None, log: Path, text: str = "") -> None:
    file = open_log(log)
    try:
        process = spawn(argv, log=file, account=account, env=_environment(), folder=Path("/"), stdin=subprocess.PIPE)
        process.communicate(text.encode())
    finally:
        os.close(file)
    if process.returncode:
        raise EmbeddedError(f"{argv[0]} ended with code {process.returncode}; {log} ends with:\n{last_lines(log)}")

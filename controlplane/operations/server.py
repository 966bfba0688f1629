"""muster-server: one word for each process and each task of an installation, in the image, in compose and in the chart.

    muster-server web | tasks | beat | watcher       run a process; it waits for the database and its tables
    muster-server migrate [--first-admin NAME]       create or change the tables; the first person, if there is none
    muster-server check                              what is misconfigured, and what to write instead
    muster-server backup FILE                        database, files and keys as one archive (docs/backup.md)
    muster-server restore FILE                       that archive into an empty database
    muster-server move-files                         from the store of MUSTER_OLD_FILES to that of MUSTER_FILES
    muster-server secrets FOLDER                     what compose needs before its first start

A process waits without end and says for what: whatever order they are started in, and however long a database is away,
none of them is restarted again and again without a word.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from . import processes

CHECKOUT = Path(__file__).resolve().parents[2]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Run the processes of a Muster installation. Settings come from the environment (docs/settings.md)."""


@cli.command()
@click.option("--host", default="0.0.0.0", show_default=True)  # noqa: S104 - in a container, everything is outside
@click.option("--port", default=8000, show_default=True, type=click.IntRange(1, 65535), envvar="MUSTER_LISTEN_PORT")
def web(host: str, port: int) -> None:
    """Serve the pages, the API and the agents."""
    _become(*processes.WEB, "--host", host, "--port", str(port), role="web")


@cli.command()
def tasks() -> None:
    """Drive jobs: admit, launch, observe and end them. Any number may run at once."""
    _become(*processes.TASKS, role="tasks")


@cli.command()
def beat() -> None:
    """Start what is due regularly. Of several, one does and the others stand by."""
    _become(*processes.BEAT, role="beat")


@cli.command()
def watcher() -> None:
    """Follow the clusters' changes. Of several, one does and the others stand by."""
    _become(*processes.WATCHER, role="watcher")


@cli.command()
@click.option("--first-admin", metavar="NAME", help="create this platform administrator if there are no people yet")
@click.option(
    "--within", metavar="SECONDS", type=click.FloatRange(min=1), help="give up waiting for Postgres after this"
)
def migrate(first_admin: str | None, within: float | None) -> None:
    """Create or change the database's tables. Safe beside running processes of the release before."""
    _read_settings()
    from . import migrating

    try:
        for line in migrating.migrate(first_admin=first_admin, say=_say, within=within):
            click.echo(line)
    except migrating.MigrationFailed as error:
        raise click.ClickException(str(error)) from None


@cli.command()
def check() -> None:
    """Print what is set up wrong, and what to write instead; exit 1 if something is."""
    _read_settings()
    from . import checking

    found = checking.look()
    click.echo(checking.table(found))
    sys.exit(1 if any(one.is_wrong for one in found) else 0)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--without-keys", is_flag=True, help="leave out the secret key, which must then be kept elsewhere")
def backup(file: Path, without_keys: bool) -> None:
    """Write database, files and keys to FILE, or to standard output if it is -. Jobs go on meanwhile."""
    _read_settings()
    from . import backup, migrating

    migrating.wait_for_server(say=_say)
    with _one_line_errors(), _written(file) as out:
        backup.write(out, with_keys=not without_keys, say=_say)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--print-key", is_flag=True, help="print the backup's secret key and restore nothing")
@click.option("--print-old-keys", is_flag=True, help="print its earlier keys, as MUSTER_OLD_SECRET_KEYS takes them")
def restore(file: Path, print_key: bool, print_old_keys: bool) -> None:
    """Restore FILE, or standard input if it is -, into a database without jobs and people."""
    from . import archive

    with _one_line_errors(), click.open_file(str(file), "rb") as source:
        found = archive.Reader(source)
        if print_key:
            click.echo(found.secret_key)
        if print_old_keys and found.old_secret_keys:
            click.echo(",".join(found.old_secret_keys))
        if print_key or print_old_keys:
            return
        _read_settings()
        from . import migrating, restore

        try:
            for line in restore.restore(found, say=_say):
                click.echo(line)
        except migrating.MigrationFailed as error:
            message = f"the backup is loaded, and its jobs rest until the tables are up to date: {error}"
            raise click.ClickException(message) from None


@cli.command(name="move-files")
def move_files() -> None:
    """Move code and logs to the store of MUSTER_FILES while jobs run; MUSTER_OLD_FILES is where they are."""
    _read_settings()
    from . import migrating, moving

    migrating.wait_until_usable(say=_say)
    try:
        with _one_line_errors():
            for line in moving.move(say=_say):
                click.echo(line)
    except moving.NothingToMove as error:
        raise click.ClickException(str(error)) from None


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--from", "backup", type=click.Path(path_type=Path, allow_dash=True), help="a backup, whose secret keys are used"
)
def secrets(folder: Path, backup: Path | None) -> None:
    """Create the secrets that compose needs in FOLDER; existing ones are kept."""
    from . import archive, first_secrets

    with _one_line_errors():
        key, old_keys = "", []
        if backup:
            with click.open_file(str(backup), "rb") as source:
                found = archive.Reader(source)
            key, old_keys = found.secret_key, found.old_secret_keys
        for line in first_secrets.make(folder, key=key, old_keys=old_keys):
            click.echo(line)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn what may go wrong with an archive, its disk or the database into one line."""
    from django.db import DatabaseError

    from .archive import BadArchive

    try:
        yield
    except (BadArchive, OSError) as error:
        raise click.ClickException(str(error)) from None
    except DatabaseError as error:
        raise click.ClickException(f"the database refused it: {' '.join(str(error).split())}") from None


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that only its owner may read, and that has its name once it is complete; or standard output."""
    if str(path) == "-":
        if sys.stdout.isatty():
            raise click.ClickException("a backup on a terminal helps nobody: muster-server backup - > FILE")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():  # a pipe, a tape
        with path.open("wb") as out:
            yield out
        return
    draft = path.with_name(f".{path.name}.partial")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    draft.rename(path)


def _read_settings() -> None:
    """Make Django ready; a wrong setting is one line, not a traceback. Commands import what needs Django after it."""
    import django
    from django.core.exceptions import ImproperlyConfigured

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise click.ClickException(str(error)) from None


def _become(*words: str, role: str) -> None:
    """Wait until the database can be used, then replace this process with the role's own."""
    _read_settings()
    from jobs import clusters

    from . import migrating

    if problem := clusters.configuration_problem():
        raise click.ClickException(problem)
    log = logging.getLogger(__name__)  # as this role's own lines are written, JSON included
    migrating.wait_until_usable(say=lambda line: log.warning("%s: %s", role, line))
    os.chdir(CHECKOUT)
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - our own words


def _say(line: str) -> None:
    click.echo(line, err=True)


def main() -> None:
    # In a container this is process 1, which the kernel sends no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cli(prog_name="muster-server")


if __name__ == "__main__":
    main()

"""muster submit and muster plan: turn a folder and a command into a job, or only show what it would become."""

from __future__ import annotations

import contextlib
import sys
import uuid
from typing import Any

import click

from muster.client import Client
from muster.code.program import check_is_sent
from muster.code.progress import Upload
from muster.code.sending import Scanned
from muster.code.workspace import LeftOut, Tree, walk
from muster.commands.following import LineWriter, detached, follow, leave
from muster.commands.job_file import FIELDS
from muster.commands.job_options import check_known, job_fields, job_options
from muster.commands.output import Output, note, reading
from muster.commands.planning import plan_lines, summary
from muster.commands.secrets import secret_values
from muster.commands.session import open_client
from muster.errors import MusterError, WorkspaceError
from muster.jobs.calls import job_spec
from muster.jobs.models import Job
from muster.render import printable, size

# Not part of the job's description, so irrelevant to a plan.
SHOWN = 4  # of what is left out
SENDING = ("directory", "workspace", "idempotency_key", "secrets")


# The first word that is no option begins the command, so a forgotten `--` does no harm.
@click.command(context_settings={"allow_interspersed_args": False})
@job_options
@click.option(
    "--dir", "directory", metavar="FOLDER", help="Folder with the code to send (default: the current folder)."
)
@click.option("--no-workspace", is_flag=True, help="Do not send code.")
@click.option("--workspace", metavar="ID", type=int, help="Use code that was sent before.")
@click.option("--secrets-stdin", is_flag=True, help="Read secrets from standard input, as KEY=VALUE lines.")
@click.option("--yes", "is_sure", is_flag=True, help="Send the folder also where that is much more than the last time.")
@click.option("--idempotency-key", metavar="KEY", help="Repeating the request with the same key creates no second job.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be submitted, as `muster plan` does.")
@click.option(
    "--follow", "is_following", is_flag=True, help="Print the log until the job ends, and exit with its exit code."
)
@reading
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
def submit(
    *,
    file: str | None,
    no_workspace: bool,
    secrets_stdin: bool,
    is_sure: bool,
    is_dry: bool,
    is_following: bool,
    output: Output,
    **flags: Any,
) -> None:
    """Submit COMMAND as a job, together with the code in a folder."""
    fields = job_fields(file, flags=flags)
    with open_client() as client:
        check_known(fields, client=client)
        if is_dry:
            return _show_plan(client, fields=fields, output=output)
        fields["secrets"] = secret_values(fields.get("secrets", ()), is_piped=secrets_stdin) or None
        if no_workspace or "workspace" in fields:
            fields["directory"] = None
        if "gpus" in fields and output == Output():
            _tell_distribution(client, fields=fields)
        job = _submitted(client, fields=fields, scanned=lambda tree, before: _tell_scan(tree, before, is_sure=is_sure))
        _announce(job, output=output, is_following=is_following)
        if not is_following:
            return
        try:
            job = follow(client, job=job, writer=LineWriter(is_json=output.form == "json"))
        except KeyboardInterrupt:
            detached(job)
    leave(job)


@click.command(context_settings={"allow_interspersed_args": False})
@job_options
@click.option("--dir", "directory", metavar="FOLDER", help="Also say what of this folder would be sent.")
@reading
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
def plan(*, file: str | None, directory: str | None, output: Output, **flags: Any) -> None:
    """Show the job that COMMAND would become, and any problems, without submitting it."""
    fields = job_fields(file, flags=flags)
    if directory is not None:
        tree = walk(directory)
        amount = f"{len(tree.files):,} file{'s' if len(tree.files) != 1 else ''}, {size(tree.size_bytes)}"
        note(printable(f"Would send {amount}; the largest are {tree.largest()}"))
        check_is_sent(fields["command"], tree=tree)
        _tell_scan(tree, None, is_sure=True)
    with open_client() as client:
        check_known(fields, client=client)
        _show_plan(client, fields=fields, output=output)


@click.command()
@reading
def fields(*, output: Output) -> None:
    """List the job fields that the server supports, with their bounds and defaults."""
    with open_client() as client:
        found = client.job_fields()
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("FIELD", "OF", "TYPE", "BOUNDS", "DEFAULT", "MEANING"),
        row=lambda one: (
            one.name,
            one.framework or "all",
            one.type,
            one.bounds,
            "" if one.default is None else one.default,
            one.help,
        ),
        empty="This server lists no fields.",
    )


def _show_plan(client: Client, *, fields: dict[str, Any], output: Output) -> None:
    found = client.plan(_spec(fields))
    output.item(found, ident=found.queue, lines=lambda: plan_lines(found))


def _tell_distribution(client: Client, *, fields: dict[str, Any]) -> None:
    """Print the plan before the submission, since 8 GPUs may be on one machine or on eight.

    Errors are left to the submission to report.
    """
    with contextlib.suppress(MusterError):
        note(summary(client.plan(_spec(fields))))


def _spec(fields: dict[str, Any]) -> dict[str, Any]:
    about = {name: value for name, value in fields.items() if name not in SENDING}
    return job_spec(about.pop("command"), **about)


def _tell_scan(tree: Tree, before: int | None, *, is_sure: bool) -> None:
    """Say what is not sent, and ask where a new release of this client would send much more. Raises Abort."""
    if words := left_out_words(tree):
        note(printable(words))
    if tree.missing:
        note(printable(missing_words(tree)))
    if before is None or is_sure:
        return
    question = (
        f"This release also sends what git tracks in ignored folders: {size(tree.size_bytes)}, where {size(before)} "
        f"were sent last. The largest are {tree.largest()}; .musterignore leaves files out."
    )
    if not sys.stdin.isatty():
        raise WorkspaceError(f"{question} Add --yes to send it.")
    click.confirm(printable(f"{question} Send it?"), abort=True, err=True)


def left_out_words(tree: Tree) -> str:
    """Return in one sentence what git and .musterignore leave out, the largest first; empty if that is nothing."""
    shown = [_left_out(one) for one in tree.left_out[:SHOWN]]
    more = len(tree.left_out) - len(shown)
    shown += [f"{more} more"] if more else []
    return f"Not sent, since ignored: {', '.join(shown)}" if shown else ""


def missing_words(tree: Tree) -> str:
    names = ", ".join(tree.missing[:SHOWN]) + (
        f" and {len(tree.missing) - SHOWN} more" if len(tree.missing) > SHOWN else ""
    )
    are = "Submodules that are" if len(tree.missing) > 1 else "A submodule that is"
    return f"{are} not checked out, and therefore not sent: {names}. To send: git submodule update --init"


def _left_out(one: LeftOut) -> str:
    most = "" if one.is_whole else "more than "
    count = f"{most}{one.files:,} file{'s' if one.files != 1 else ''}, " if one.path.endswith("/") else ""
    return f"{one.path} ({count}{most}{size(one.size)})"


def _submitted(client: Client, *, fields: dict[str, Any], scanned: Scanned) -> Job:
    fields = dict(fields)
    key = fields.pop("idempotency_key", None) or str(uuid.uuid4())
    directory = fields.pop("directory", ".")
    with contextlib.closing(Upload()) as progress:
        command = fields.pop("command")
        more = {name: fields.pop(name) for name in set(fields) - set(FIELDS)}
        return client.submit(
            command, directory=directory, idempotency_key=str(key), progress=progress, scanned=scanned, fields=more,
            **fields,
        )  # fmt: skip


def _announce(job: Job, *, output: Output, is_following: bool) -> None:
    message = f"Submitted job {job.id} ({job.name}) to {job.queue}"
    if is_following and output == Output():
        return note(printable(f"{message}  {job.url}".rstrip()))
    ways = [message, f"  follow   muster logs -f {job.id}", f"  look     muster status {job.id}"]
    ways += [f"  page     {job.url}"] if job.url else []
    output.item(job, ident=job.id, lines=lambda: [printable(line) for line in ways])

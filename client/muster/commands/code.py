"""muster workspaces, diff, files, cat: the code that jobs run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from muster.commands.output import Output, echo_lines, limited, reading
from muster.commands.session import job_argument, job_names, open_client
from muster.jobs.reading import CodeDiff, CodeFile
from muster.render import clock, inert, size, terminal_of

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("old", metavar="JOB", shell_complete=job_names)
@click.argument("new", metavar="JOB", shell_complete=job_names)
@reading
def diff(*, old: str, new: str, output: Output) -> None:
    """Show the code changes between two jobs. Exits with 1 if there are any."""
    with open_client() as client:
        found = client.workspace_diff(old, new)
    if not (found.is_empty and output.is_quiet):
        paths = "\n".join([*_paths(found.added), *_paths(found.removed), *(one.path for one in found.changed)])
        output.item(found, ident=paths, lines=lambda: _diff_lines(found))
    if not found.is_empty:
        click.get_current_context().exit(1)


@click.command()
@click.argument("ident", metavar="[ID]", required=False, type=int)
@click.option("--team", metavar="TEAM", help="Code sent by anyone in this team, not only by you.")
@limited(20)
@reading
def workspaces(*, ident: int | None, team: str | None, limit: int, output: Output) -> None:
    """List the code you sent, newest first, or show one. `muster submit --workspace ID` runs it again."""
    with open_client() as client:
        found = list(client.workspaces(team=team, limit=limit)) if ident is None else [client.workspace(ident)]
    output.items(
        found,
        ident=lambda one: one.id,
        headers=("ID", "TEAM", "USER", "FILES", "SIZE", "SENT"),
        row=lambda one: (one.id, one.team, one.user, one.files, size(one.size_bytes), clock(one.created_at)),
        empty="No code was sent yet: `muster submit` sends the current folder.",
    )


@click.command()
@job_argument
@reading
def files(*, job: str, output: Output) -> None:
    """List the files in the code of a job."""
    with open_client() as client:
        found = client.files(job)
    output.items(
        found,
        ident=lambda one: one.path,
        headers=("PATH", "KIND", "SIZE"),
        row=lambda one: (one.path, _kind(one), size(one.size) if one.kind == "file" else ""),
        empty="No files: the job was submitted without code.",
    )


@click.command()
@job_argument
@click.argument("path")
def cat(*, job: str, path: str) -> None:
    """Print one file from the code of a job. On a terminal, control characters are escaped."""
    with open_client() as client:
        content = client.file(job, path)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    echo_lines([inert(line) for line in content.decode("utf-8", "replace").splitlines()])


def _paths(files: Sequence[CodeFile]) -> list[str]:
    return [one.path for one in files]


def _kind(one: CodeFile) -> str:
    if one.kind == "link":
        return f"link to {one.target}"
    return "executable" if one.executable else "file"


def _diff_lines(diff: CodeDiff) -> list[str]:
    lines = [f"- {one.path}" for one in diff.removed] + [f"+ {one.path}" for one in diff.added]
    for change in diff.changed:
        lines += [f"--- {change.path}", f"+++ {change.path}"]
        lines += (change.lines or f"@ {change.why or 'changed'}").split("\n")
    terminal = terminal_of()
    return [terminal.coloured(inert(line), colour=COLOURS.get(line[:1], "white")) for line in lines] or ["No changes"]

"""muster diff, files, cat: the code that jobs run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click

from muster.commands.output import Output, echo_lines, reading
from muster.commands.session import job_argument, job_names, open_client
from muster.render import inert, size, terminal_of

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class Plain:
    """Code is answered as plainly as the API has it: the fields of the models are the API's own."""

    raw: Mapping[str, Any]


@click.command()
@click.argument("old", metavar="JOB", shell_complete=job_names)
@click.argument("new", metavar="JOB", shell_complete=job_names)
@reading
def diff(*, old: str, new: str, output: Output) -> None:
    """Show what changed in the code between two jobs; exits with 1 where something did."""
    with open_client() as client:
        found: Any = client.workspace_diff(old, new)  # type: ignore[attr-defined]
    answer = Plain(asdict(found))
    changes = [one for kind in ("added", "removed", "changed") for one in answer.raw[kind]]
    if changes or not output.is_quiet:
        paths = "\n".join(str(one["path"]) for one in changes)
        output.item(answer, ident=paths, lines=lambda: _diff_lines(answer.raw))
    if changes:
        click.get_current_context().exit(1)


@click.command()
@job_argument
@reading
def files(*, job: str, output: Output) -> None:
    """List the files of the code that a job runs."""
    with open_client() as client:
        found = [Plain(asdict(one)) for one in client.files(job)]  # type: ignore[attr-defined]
    output.items(
        found,
        ident=lambda one: one.raw["path"],
        headers=("PATH", "KIND", "SIZE"),
        row=lambda one: (one.raw["path"], _kind(one.raw), size(one.raw.get("size"))),
        empty="No files: the job was submitted without code.",
    )


@click.command()
@job_argument
@click.argument("path")
def cat(*, job: str, path: str) -> None:
    """Print one file of the code that a job runs; to a terminal, with control characters shown."""
    with open_client() as client:
        content: bytes = client.file(job, path)  # type: ignore[attr-defined]
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    echo_lines([inert(line) for line in content.decode("utf-8", "replace").splitlines()])


def _kind(entry: Mapping[str, Any]) -> str:
    if entry.get("kind") == "link":
        return f"link to {entry.get('target')}"
    return "executable" if entry.get("executable") else "file"


def _diff_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"- {one['path']}" for one in found["removed"]] + [f"+ {one['path']}" for one in found["added"]]
    for change in found["changed"]:
        lines += [f"--- {change['path']}", f"+++ {change['path']}"]
        lines += (change.get("lines") or f"@ {change.get('why') or 'changed'}").split("\n")
    terminal = terminal_of()
    return [terminal.coloured(inert(line), colour=COLOURS.get(line[:1], "white")) for line in lines] or ["No change"]

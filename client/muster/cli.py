"""The `muster` command."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import click

from muster.commands import (
    about,
    audit,
    clusters,
    code,
    completion,
    control,
    jobs,
    login,
    logs,
    metrics,
    nodes,
    parts,
    queues,
    quota,
    requests,
    servers,
    status,
    submit,
    team_secrets,
    teams,
    tokens,
    usage,
    volumes,
    waiting,
    webhooks,
)  # fmt: skip
from muster.errors import Forbidden, MusterError, NotLoggedIn, ServerError, TooManyRequests, Unauthorized, Unreachable
from muster.http.version import VERSION
from muster.render import printable

# Exit codes that scripts may distinguish; docs/cli.md lists them. The numbers are those of sysexits.h.
NO_CONTACT = 75
NOT_ALLOWED = 77
WRONG_USAGE = 2
INTERRUPTED = 130

CODES: tuple[tuple[type[MusterError], int], ...] = (
    (Unreachable, NO_CONTACT),
    (TooManyRequests, NO_CONTACT),
    (ServerError, NO_CONTACT),
    (NotLoggedIn, NOT_ALLOWED),
    (Unauthorized, NOT_ALLOWED),
    (Forbidden, NOT_ALLOWED),
)


class Problem(click.ClickException):
    """One line on stderr: what is wrong and how to fix it."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(printable(" ".join(message.split())))
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it on the class, and reads it off the error

    def show(self, file: Any = None) -> None:
        click.echo(f"muster: {self.message}", err=file is None, file=file)


class OneLineErrors(click.Group):
    """Turn every error into one line that says what to do; MUSTER_DEBUG=1 shows where it comes from."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _problems():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _problems():
            return super().invoke(ctx)


@click.group("muster", cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="muster", message="%(prog)s %(version)s")
@click.option(
    "--server", metavar="NAME", envvar="MUSTER_SERVER", help="Use this saved server instead of the current one."
)
@click.pass_context
def cli(ctx: click.Context, *, server: str | None) -> None:
    """Submit, follow and manage training jobs on a Muster server.

    Start with `muster login URL`, then `muster submit --queue QUEUE -- torchrun train.py`.
    """
    ctx.obj = server


for command in (
    login.login, login.logout, servers.servers, about.me,
    submit.submit, submit.plan, submit.fields, jobs.jobs, status.status, logs.logs, waiting.wait,
    control.cancel, control.suspend, control.resume, control.priority, control.resubmit, control.delete_log,
    parts.attempts, parts.ranks, parts.replicas, parts.events, parts.checkpoints, metrics.metrics,
    code.workspaces, code.diff, code.files, code.cat,
    queues.queues, quota.quota, requests.requests, usage.usage, teams.teams, tokens.tokens,
    team_secrets.secrets, volumes.volumes, webhooks.webhooks, clusters.clusters, nodes.nodes, audit.audit,
    about.open_page, about.schema, about.version, completion.completion,
):  # fmt: skip
    cli.add_command(command)
cli.add_command(about.me, "whoami")


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="muster")


@contextlib.contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except (click.exceptions.Exit, click.Abort, Problem):
        raise
    except MusterError as error:
        code = next((code for kind, code in CODES if isinstance(error, kind)), 1)
        raise _as_problem(str(error), exit_code=code) from error
    except click.UsageError as error:
        # Without any argument click shows the whole help, which is more useful.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        path = error.ctx.command_path if error.ctx else "muster"
        message = error.format_message().rstrip(".")
        raise Problem(f"{message}: see `{path} --help`", exit_code=WRONG_USAGE) from error
    except KeyboardInterrupt as error:
        raise click.exceptions.Exit(INTERRUPTED) from error
    except (BrokenPipeError, click.ClickException):
        raise  # click exits quietly when the reader of a pipe is gone
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        message = f"internal error ({text}): please report it; MUSTER_DEBUG=1 adds the traceback"
        raise _as_problem(message, exit_code=1) from error


def _as_problem(message: str, *, exit_code: int) -> Problem:
    if os.environ.get("MUSTER_DEBUG"):
        traceback.print_exc()
    return Problem(message, exit_code=exit_code)


if __name__ == "__main__":
    main()

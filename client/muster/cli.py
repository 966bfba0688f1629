"""The `muster` command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from muster.commands import about, control, jobs, login, logs, status, submit
from muster.errors import MusterError
from muster.version import VERSION


class Problem(click.ClickException):
    """One line on stderr: what is wrong and the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: Any = None) -> None:
        click.echo(f"muster: {self.message}", err=file is None, file=file)


class WrongUsage(Problem):
    exit_code = 2


class OneLineErrors(click.Group):
    """Turns every error that a person can do something about into one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _problems():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _problems():
            return super().invoke(ctx)


@click.group("muster", cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="muster", message="%(prog)s %(version)s")
@click.option("--server", metavar="NAME", envvar="MUSTER_SERVER", help="Use this saved login, not the current one.")
@click.pass_context
def cli(ctx: click.Context, *, server: str | None) -> None:
    """Submit, follow and manage training jobs on a Muster server.

    Begin with `muster login URL`, then `muster submit --queue QUEUE -- torchrun train.py`.
    """
    ctx.obj = server


for command in (
    login.login,
    submit.submit,
    jobs.jobs,
    status.status,
    logs.logs,
    control.cancel,
    control.suspend,
    control.resume,
    control.resubmit,
    about.queues,
    about.whoami,
):
    cli.add_command(command)


def main() -> None:
    cli(prog_name="muster")


@contextlib.contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except MusterError as error:
        raise Problem(str(error)) from error
    except click.UsageError as error:
        # Without any argument click shows the whole help, which is the better answer.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        path = error.ctx.command_path if error.ctx else "muster"
        message = error.format_message().rstrip(".")
        raise WrongUsage(f"{message}: `{path} --help` shows how") from error


if __name__ == "__main__":
    main()

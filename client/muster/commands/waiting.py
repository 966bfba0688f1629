"""muster wait: wait until a job has ended or is suspended, for scripts."""

from __future__ import annotations

import click

from muster.commands.following import detached, leave
from muster.commands.interruptible import run_interruptibly
from muster.commands.output import Output, reading
from muster.commands.session import job_argument, open_client
from muster.render import printable, terminal_of


@click.command()
@job_argument
@click.option(
    "--timeout", metavar="S", type=click.FloatRange(min=0), help="Stop waiting after S seconds; the job keeps running."
)
@reading
def wait(*, job: str, timeout: float | None, output: Output) -> None:
    """Wait until a job ends, and exit with its exit code; with 121 if the job is suspended."""
    with open_client() as client:
        found = client.job(job)
        try:
            seen = run_interruptibly(lambda: client.wait(found, timeout=timeout))
        except KeyboardInterrupt:
            detached(found)
    text = printable(seen.message or seen.reason)
    line = f"job {seen.id} ({printable(seen.name)}): {terminal_of().phase(seen.phase)}{f': {text}' if text else ''}"
    output.item(seen, ident=seen.id, lines=lambda: [line])
    leave(seen)

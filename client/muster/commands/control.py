"""muster cancel, suspend, resume, priority, resubmit, delete-log: acts on jobs."""

from __future__ import annotations

import click

from muster.client import Client
from muster.commands.output import Output, echo_lines, note, reading
from muster.commands.parts import may_start
from muster.commands.session import job_argument, jobs_argument, open_client
from muster.errors import Conflict, Forbidden, NotFound
from muster.jobs.models_jobs import Acted
from muster.jobs.models_waiting import PriorityEffect
from muster.render import printable, terminal_of


@click.command()
@jobs_argument
@click.option("--now", is_flag=True, help="Skip the grace period, also for jobs that are already stopping.")
@reading
def cancel(*, jobs: tuple[str, ...], now: bool, output: Output) -> None:
    """Cancel jobs permanently. Their processes get a grace period to exit."""
    _act_on(jobs, verb="cancel", output=output, now=now)


@click.command()
@jobs_argument
@reading
def suspend(*, jobs: tuple[str, ...], output: Output) -> None:
    """Stop jobs and release their quota. `muster resume` returns them to the queue."""
    _act_on(jobs, verb="suspend", output=output)


@click.command()
@jobs_argument
@reading
def resume(*, jobs: tuple[str, ...], output: Output) -> None:
    """Return suspended jobs to their queue."""
    _act_on(jobs, verb="resume", output=output)


@click.command(context_settings={"ignore_unknown_options": True})
@job_argument
@click.argument("number", metavar="N", type=int)
@click.option("--dry-run", is_flag=True, help="Only print what it would do.")
@reading
def priority(*, job: str, number: int, dry_run: bool, output: Output) -> None:
    """Give JOB the priority N. Of the jobs that wait in a queue those with a higher one come first."""
    with open_client() as client:
        effect = client.priority_effect(job, number)
        if dry_run:
            output.item(effect, ident=number, lines=lambda: _effects(effect))
            return
        changed = client.set_priority(job, number)
    message = f"job {changed.id} ({changed.name}) has priority {changed.priority}"
    output.item(changed, ident=changed.id, lines=lambda: [*_effects(effect), printable(message)])


def _effects(effect: PriorityEffect) -> list[str]:
    found = [*effect.effects]
    if effect.waiting is not None:
        start = may_start(effect.waiting)
        found.append(f"It waits then: {effect.waiting.sentence}{f'; may start {start}' if start else ''}.")
    return [printable(one) for one in found]


@click.command()
@job_argument
@click.option("--idempotency-key", metavar="KEY", help="Repeating the request with the same key creates no second job.")
@reading
def resubmit(*, job: str, idempotency_key: str | None, output: Output) -> None:
    """Submit a copy of JOB as a new job, with the same code."""
    with open_client() as client:
        made = client.resubmit(job, idempotency_key=idempotency_key)
    message = f"Submitted job {made.id} ({made.name}), a copy of {job}; follow it with `muster logs -f {made.id}`"
    output.item(made, ident=made.id, lines=lambda: [printable(message)])


@click.command("delete-log")
@jobs_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@reading
def delete_log(*, jobs: tuple[str, ...], yes: bool, output: Output) -> None:
    """Delete the logs of finished jobs to free disk space. History and metrics are kept."""
    with open_client() as client:
        found, refused = _found(client, jobs)
        if found and not yes:
            numbers = ", ".join(str(number) for number in found)
            click.confirm(f"Permanently delete the log of job {numbers}?", abort=True, err=True)
        done = []
        for number in found:
            try:
                done.append(client.delete_log(number))
            except (Conflict, Forbidden, NotFound) as error:
                note(f"muster: {printable(str(error))}")
                refused += 1
    if output == Output():
        echo_lines([f"job {one.id}: log deleted" for one in done])
    else:
        output.items(done, ident=lambda one: one.id, headers=(), row=lambda one: (), empty="")
    if refused:
        click.get_current_context().exit(1)


def _act_on(jobs: tuple[str, ...], *, verb: str, output: Output, now: bool = False) -> None:
    """Act on each job separately: one that the server refuses does not stop the others."""
    with open_client() as client:
        found, refused = _found(client, jobs)
        done = client.act_on_many(verb, found, now=now) if found else []
    accepted = [one for one in done if not one.is_refused]
    for one in done:
        if one.is_refused:
            note(f"muster: {_refusal(one)}")
    if output == Output():
        echo_lines([_acceptance(one, verb=verb) for one in accepted])
    else:
        shown = accepted if output.is_quiet else done
        output.items(shown, ident=lambda one: one.id, headers=(), row=lambda one: (), empty="")
    if refused or len(accepted) < len(done):
        click.get_current_context().exit(1)


def _refusal(one: Acted) -> str:
    reason = printable(one.problem) or f"refused ({one.status})"
    return reason if reason.startswith(f"job {one.id} ") else f"job {one.id}: {reason}"


def _found(client: Client, jobs: tuple[str, ...]) -> tuple[list[int], int]:
    """Return the ids, and how many names match no job."""
    found, missing = [], 0
    for ref in jobs:
        try:
            found.append(int(ref) if ref.isdigit() else client.job(ref).id)
        except NotFound as error:
            note(f"muster: {printable(str(error))}")
            missing += 1
    return found, missing


def _acceptance(one: Acted, *, verb: str) -> str:
    # The server has recorded the request; the phase follows within moments, and may still be the old one.
    return f"job {one.id}: {verb} requested, now {terminal_of().phase(one.phase)}"

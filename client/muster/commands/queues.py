"""muster queues: which exist, how full they are, and their quotas."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

import click

from muster.commands.durations import seconds_of, span
from muster.commands.job_options import content, set_fields
from muster.commands.output import Output, reading
from muster.commands.queue_file import read_template, written
from muster.commands.session import open_client, queue_names
from muster.jobs.models import LIMITS, Queue
from muster.render import ago, printable

POLICIES = ("strict", "backfill", "best_effort")
HEADERS = ("QUEUE", "TEAM", "CLUSTER", "RESOURCE", "USED", "FREE", "GPUS/NODE", "STATE")


def limit(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | str | None:
    """Read a limit: a whole number, or `all` for none."""
    if value is None or value == "all":
        return value
    if not (value.isascii() and value.isdecimal()):
        raise click.BadParameter(f"{value!r} is no whole number; write all for no limit")
    return int(value)


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a queue by the API's names, with those that are to be null."""
    found, nulls = dict(fields), []
    borrow = found.pop("borrow", None)
    if borrow == "all":
        nulls.append("borrowing_limit")
    elif borrow is not None:
        found["borrowing_limit"] = borrow
    for name in ("flavor", *LIMITS):
        if found.get(name) == "none":
            nulls.append(name)
            del found[name]
    return {**found, **({"to_null": nulls} if nulls else {})}


def whole_or_none(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | str | None:
    """Read a limit: a whole number, or `none`."""
    if value is None or value == "none":
        return value
    if not re.fullmatch(r"-?[0-9]+", value):
        raise click.BadParameter(f"{value!r} is no whole number; write none for no limit")
    return int(value)


def time_or_none(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | str | None:
    """Read a limit in time, such as 24h, or `none`."""
    if value is None or value == "none":
        return value
    try:
        return seconds_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write none for no limit") from error


@click.group(invoke_without_command=True)
@reading
@click.pass_context
def queues(ctx: click.Context, *, output: Output) -> None:
    """List the queues you may submit to and how full they are."""
    if ctx.invoked_subcommand is None:
        _list(output)


@queues.command("list")
@reading
def list_queues(*, output: Output) -> None:
    """List the queues you may submit to and how full they are."""
    _list(output)


@queues.command()
@click.argument("queue", shell_complete=queue_names)
@reading
def show(*, queue: str, output: Output) -> None:
    """Show one queue."""
    with open_client() as client:
        found = client.queue(queue)
    output.item(found, ident=found.name, lines=lambda: _about(found))


@queues.command("set")
@click.argument("queue", shell_complete=queue_names)
@click.option("--slots", metavar="N", type=click.IntRange(min=1), help="Quota, in slots.")
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(min=0), help="GPUs per machine.")
@click.option("--open/--close", "is_open", default=None, help="Whether jobs of the queue may start.")
@click.option("--drain", is_flag=True, default=None, help="Close it, and let running jobs stop and wait, too.")
@click.option("--policy", type=click.Choice(POLICIES), help="Whether a job may start before one that does not fit yet.")
@click.option("--flavor", metavar="NAME", help="Flavor that it takes from its team's quota, or none.")
@click.option("--borrow", metavar="N", callback=limit, help="How much beyond its slots it may take: a number, or all.")
@click.option(
    "--preempt/--no-preempt", "preempts", default=None, help="Whether a higher priority takes a lower one's place."
)
@click.option(
    "--highest-priority", metavar="N", callback=whole_or_none, help="Highest priority of its jobs: a number, or none."
)
@click.option("--largest-job", metavar="N", callback=whole_or_none, help="Slots that one job may take, or none.")
@click.option(
    "--longest",
    "longest_seconds",
    metavar="TIME",
    callback=time_or_none,
    help="Longest deadline of its jobs, such as 24h, or none; jobs without a deadline get it.",
)
@click.option(
    "--per-user",
    "slots_per_user",
    metavar="N",
    callback=whole_or_none,
    help="Slots that one user's jobs may hold at once, or none.",
)
@click.option(
    "--budget",
    "budget_hours",
    metavar="HOURS",
    callback=whole_or_none,
    help="Hours times slots that its jobs may use in a month, or none.",
)
@click.option("--description", metavar="TEXT", help="Description of the queue.")
@click.option(
    "--default",
    "defaults",
    metavar="NAME=VALUE",
    multiple=True,
    callback=set_fields,
    help="Field that its jobs have unless they say otherwise; an empty value removes it; may be repeated.",
)
@click.option(
    "--from-file", "file", metavar="FILE", help="Replace defaults and template by this file (`muster queues template`)."
)
@click.option("--reason", metavar="TEXT", help="Reason, recorded in the audit log.")
@reading
def set_queue(
    *, queue: str, output: Output, defaults: dict[str, Any], file: str | None, drain: bool | None, **fields: Any
) -> None:
    """Change a queue (administrators of its team only)."""
    if drain:
        if fields["is_open"]:
            raise click.UsageError("--drain closes the queue; leave out --open")
        fields |= {"is_open": False, "drains": True}
    if not defaults and file is None and all(value is None for name, value in fields.items() if name != "reason"):
        words = (
            "--slots, --gpus-per-node, --open, --close, --drain, --policy, --flavor, --borrow, --preempt, "
            "--no-preempt, --highest-priority, --largest-job, --longest, --per-user, --budget, --description, "
            "--default or --from-file"
        )
        raise click.UsageError(f"nothing to change: give {words}")
    with open_client() as client:
        if file is not None:
            fields |= read_template(content(file), source=file)
        if defaults:
            before = fields["defaults"] if "defaults" in fields else client.queue(queue).defaults
            fields["defaults"] = {**before, **defaults}
        found = client.set_queue(queue, **renamed(fields))
    output.item(found, ident=found.name, lines=lambda: _about(found))


@queues.command()
@click.argument("queue", shell_complete=queue_names)
def template(*, queue: str) -> None:
    """Print what a queue says of its jobs' pods as YAML, for `set --from-file`."""
    with open_client() as client:
        found = client.queue(queue)
    click.echo(written(found), nl=False)


@queues.command()
@click.argument("queue", shell_complete=queue_names)
@reading
def versions(*, queue: str, output: Output) -> None:
    """List the versions of a queue's defaults and template."""
    with open_client() as client:
        found = client.queue_versions(queue)
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda one: one.number,
        headers=("VERSION", "WHEN", "BY", "CHECKED", "CHANGED"),
        row=lambda one: (
            one.number,
            ago(one.created_at, now=now),
            one.created_by or "",
            one.check_state,
            ", ".join(one.changed),
        ),
        empty="No version yet: the first one is made with the first job or change.",
    )


@queues.command()
@click.argument("queue")
@click.option("--team", metavar="TEAM", required=True, help="Team that owns the queue.")
@click.option("--slots", metavar="N", type=click.IntRange(min=1), required=True, help="Quota, in slots.")
@click.option("--cluster", metavar="NAME", required=True, help="Cluster that runs its jobs.")
@click.option("--resource", metavar="NAME", help="Resource that one slot stands for: gpu or cpu.")
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(min=0), help="GPUs per machine.")
@click.option("--description", metavar="TEXT", help="Description of the queue.")
@reading
def create(*, queue: str, output: Output, **fields: Any) -> None:
    """Create a queue (platform administrators only)."""
    with open_client() as client:
        found = client.create_queue(queue, **fields)
    lines = [
        f"Created queue {found.name} of team {found.team}",
        *([f"Notice: {found.notice}"] if found.notice else []),
    ]
    output.item(found, ident=found.name, lines=lambda: [printable(line) for line in lines])


@queues.command()
@click.argument("team")
@click.argument("resource", required=False)
@click.argument("slots", required=False)
@click.option("--reason", metavar="TEXT", default="", help="Reason, recorded in the audit log.")
@reading
def ceiling(*, team: str, resource: str | None, slots: str | None, reason: str, output: Output) -> None:
    """Show how much all queues of a team together may hold, or set it.

    Platform administrators set it: RESOURCE is gpu or cpu, SLOTS a number, or none for no ceiling.
    """
    if resource is not None and (slots is None or not (slots == "none" or slots.isdecimal())):
        raise click.UsageError("SLOTS is needed after RESOURCE: a whole number, or none for no ceiling")
    with open_client() as client:
        if resource is None:
            found = client.ceilings(team)
        else:
            found = [client.set_ceiling(team, resource, None if slots == "none" else int(slots or 0), reason=reason)]
    output.items(
        found,
        ident=lambda one: one.resource,
        headers=("RESOURCE", "CEILING", "QUOTA"),
        row=lambda one: (one.resource, "none" if one.slots is None else one.slots, one.quota),
        empty=f"Team {team} has no queue, and no ceiling is set for it.",
    )


def _list(output: Output) -> None:
    with open_client() as client:
        found = client.queues()
    output.items(
        found,
        ident=lambda queue: queue.name,
        headers=HEADERS,
        row=_row,
        empty="No queue is open to you: ask an administrator to add you to a team that has one.",
    )


def _row(queue: Queue) -> tuple[object, ...]:
    used = f"{queue.used} of {queue.nominal}"
    free = max(0, queue.nominal - queue.used) if queue.free is None else queue.free
    return (queue.name, queue.team, queue.cluster, queue.resource, used, free, queue.gpus_per_node or "", _state(queue))


def _about(queue: Queue) -> list[str]:
    facts = {
        "queue": queue.name,
        "about": queue.description,
        "team": queue.team,
        "cluster": queue.cluster,
        "resource": queue.resource,
        "used": f"{queue.used} of {queue.nominal}",
        "per node": f"{queue.gpus_per_node} GPUs" if queue.gpus_per_node else "",
        "state": _state(queue),
        "order": queue.policy.replace("_", " ") + (", higher priorities preempt" if queue.preempts else ""),
        "flavor": queue.flavor or "",
        "borrows": _borrows(queue),
        "limits": _limits(queue),
        "defaults": ", ".join(f"{name}={value}" for name, value in sorted(queue.defaults.items())),
        "template": f"version {queue.version}, {', '.join(sorted(queue.template))}" if queue.template else "",
        "checked": _check(queue),
        "notice": queue.notice,
    }
    return [f"{name:<9} {printable(text)}" for name, text in facts.items() if text]


def _state(queue: Queue) -> str:
    return "open" if queue.is_open else "draining" if queue.drains else "closed"


def _limits(queue: Queue) -> str:
    longest = None if queue.longest_seconds is None else span(queue.longest_seconds)
    known = {
        "priority": queue.highest_priority, "slots of a job": queue.largest_job, "length of a job": longest,
        "slots of a user": queue.slots_per_user, "hours a month": queue.budget_hours,
    }  # fmt: skip
    return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)


def _borrows(queue: Queue) -> str:
    if queue.flavor is None or queue.borrowing_limit == 0:
        return ""
    return "as much as its team may" if queue.borrowing_limit is None else f"at most {queue.borrowing_limit}"


def _check(queue: Queue) -> str:
    """Return what the cluster said of such a pod."""
    words = {"valid": "the cluster takes such pods", "invalid": "the cluster refuses such pods"}
    state = words.get(queue.check_state, "")
    return f"{state}: {queue.check_words}" if state and queue.check_words else state

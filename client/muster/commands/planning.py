"""Format a plan: one sentence before a submission, or the whole of it."""

from __future__ import annotations

from muster.commands.parts import may_start, pod_words
from muster.jobs.models_jobs import Plan
from muster.render import command_line, printable, table, terminal_of


def summary(plan: Plan) -> str:
    """Return a sentence such as: 2 nodes x 4 processes, 8 gpu of research; room for it now."""
    where = plan.distribution
    least = "" if where.min_nodes is None else f"{where.min_nodes} to "
    nodes = f"{least}{where.nodes} node{'s' if where.nodes != 1 else ''}"
    processes = f"{where.nproc_per_node} process{'es' if where.nproc_per_node != 1 else ''}"
    takes = "".join(f", {count} {resource}" for resource, count in plan.asked.items())
    room = "room for it now" if plan.fits_now else f"waits: {plan.wait_reason or 'no room now'}"
    start = may_start(plan.waiting)
    room = f"{room}; may start {start}" if start else room
    return printable(f"{nodes} x {processes}{takes} of {plan.queue}; {room}")


def plan_lines(plan: Plan) -> list[str]:
    headers = ("ROLE", "REPLICAS", "PROCESSES", "COMMAND")
    rows = [(role.name, role.replicas, role.processes, command_line(role.command)) for role in plan.roles]
    pods = {role.name: ", ".join(pod_words(role.pod)) for role in plan.roles}
    facts = [summary(plan), f"  framework  {printable(plan.framework)}"]
    facts += [printable(f"  {role:<9}  {words}") for role, words in pods.items() if words]
    notes = ["", *(printable(f"Note: {one}") for one in plan.notes)] if plan.notes else []
    return [*facts, "", *table(headers, rows=rows, terminal=terminal_of()), *notes] if rows else [*facts, *notes]

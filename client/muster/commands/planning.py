"""How a plan reads: one sentence before a submission, or the whole of it."""

from __future__ import annotations

import shlex

from muster.models_jobs import Plan
from muster.render import printable, table, terminal_of


def summary(plan: Plan) -> str:
    """2 nodes x 4 processes, 8 GPUs on research; room for it now."""
    where = plan.distribution
    nodes = f"{where.nodes} node{'s' if where.nodes != 1 else ''}"
    processes = f"{where.nproc_per_node} process{'es' if where.nproc_per_node != 1 else ''}"
    gpus = f", {where.gpus} GPU{'s' if where.gpus != 1 else ''}" if where.gpus else ""
    room = "room for it now" if plan.fits_now else f"waits: {plan.wait_reason or 'no room now'}"
    return printable(f"{nodes} x {processes}{gpus} on {plan.queue}; {room}")


def plan_lines(plan: Plan) -> list[str]:
    headers = ("ROLE", "REPLICAS", "PROCESSES", "GPUS")
    rows = [(role.name, role.replicas, role.processes, role.gpus) for role in plan.roles]
    command = plan.spec.get("command") or plan.asked.get("command") or ()
    facts = [summary(plan), f"  framework  {printable(plan.framework)}"]
    if command:
        facts.append(f"  command    {printable(shlex.join(str(word) for word in command))}")
    return [*facts, "", *table(headers, rows=rows, terminal=terminal_of())] if rows else facts

"""muster nodes: nodes of clusters: one of them, and those that new pods stay away from."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from muster.commands.output import Output, reading, say
from muster.commands.session import open_client
from muster.render import ago, printable
from muster.teams.models_clusters import ClusterNode


@click.group()
def nodes() -> None:
    """Nodes: one of them, and for platform administrators those that are excluded, or failed several jobs."""


@nodes.command("list")
@reading
def list_nodes(*, output: Output) -> None:
    """List the nodes that are excluded."""
    with open_client() as client:
        found = client.excluded_nodes()
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("NODE", "CLUSTER", "EXCLUDED", "BY", "REASON"),
        row=lambda one: (one.name, one.cluster, ago(one.excluded_at, now=now), one.excluded_by or "", one.reason),
        empty="No node is excluded. `muster nodes suspected` lists those that failed several jobs within a day.",
    )


@nodes.command()
@click.argument("node")
@click.option("--cluster", metavar="NAME", required=True, help="Whose node it is.")
@reading
def show(*, node: str, cluster: str, output: Output) -> None:
    """Show a node: what its GPUs do, the verdicts that blame it, and how it changed."""
    with open_client() as client:
        found = client.cluster_node(cluster, node)
    output.item(found, ident=found.key, lines=lambda: [printable(line) for line in _lines(found)])


def _lines(found: ClusterNode) -> list[str]:
    now = datetime.now(timezone.utc)
    free = f"{found.free} free{' at most' if found.others is None else ''}"
    numbers = f"{found.gpus} {found.product or 'GPUs'}, {found.held} held by Muster's jobs, {free}"
    problems = [f"problem: {words}" for words in found.problems]
    whose = [f"job {one.job} {one.job_name}" if one.job else "jobs of other teams" for one in found.jobs]
    jobs = [f"{job}: {one.gpus} GPUs, {one.idle} idle" for job, one in zip(whose, found.jobs)]
    blames = [
        f"{ago(one.judged_at, now=now)}: {one.kind}{f' of job {one.job}: {one.headline}' if one.job else ''}"
        for one in found.failures
    ]
    changes = [f"{ago(one.at, now=now)}: {one.kind} {one.words}".rstrip() for one in found.history]
    return [f"{found.name}: {numbers}", *problems, *jobs, *blames, *changes]


@nodes.command()
@reading
def suspected(*, output: Output) -> None:
    """List the nodes that verdicts blame for the failures of several jobs within a day."""
    with open_client() as client:
        found = client.suspected_nodes()
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("NODE", "CLUSTER", "JOBS", "LAST FAILURE"),
        row=lambda one: (
            one.name,
            one.cluster,
            ", ".join(str(failure.job) for failure in one.failures),
            one.failures[0].headline if one.failures else "",
        ),
        empty="No node failed several jobs within a day.",
    )


@nodes.command()
@click.argument("cluster")
@click.argument("node")
@click.option("--reason", metavar="TEXT", required=True, help="What is wrong with it; kept in the audit.")
@reading
def exclude(*, cluster: str, node: str, reason: str, output: Output) -> None:
    """Keep new pods off a node. Those that run there go on."""
    with open_client() as client:
        made = client.exclude_node(cluster, node, reason=reason)
    line = f"New pods stay away from node {made.name} of cluster {made.cluster}"
    output.item(made, ident=made.name, lines=lambda: [printable(line)])


@nodes.command()
@click.argument("cluster")
@click.argument("node")
def readmit(*, cluster: str, node: str) -> None:
    """Let new pods on a node again."""
    with open_client() as client:
        client.readmit_node(cluster, node)
    say(f"node {node} of cluster {cluster} is readmitted")

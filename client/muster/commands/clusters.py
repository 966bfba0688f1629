"""muster clusters: the clusters of the server, and whether they have what it needs."""

from __future__ import annotations

import click

from muster.commands.interruptible import run_interruptibly
from muster.commands.output import Output, reading
from muster.commands.session import open_client, queue_names


@click.group()
def clusters() -> None:
    """Clusters of the server, and whether they have what it needs (platform administrators only)."""


@clusters.command("list")
@reading
def list_clusters(*, output: Output) -> None:
    """List the clusters of the server."""
    with open_client() as client:
        found = client.clusters()
    output.items(
        found,
        ident=lambda one: one.name,
        headers=("CLUSTER", "REPLICAS", "NAMESPACE", "QUEUES"),
        row=lambda one: (one.name, "pods" if one.makes_pods else "processes", one.namespace, ", ".join(one.queues)),
        empty="The server has no clusters: MUSTER_CLUSTERS names them.",
    )


@clusters.command()
@click.argument("name")
@click.option("--pods", is_flag=True, help="Look by two small pods too, which takes seconds to minutes.")
@click.option("--image", metavar="IMAGE", help="Image of these pods (default: the cluster's own).")
@click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Queue whose image and nodes they have.")
@reading
def check(*, name: str, pods: bool, image: str | None, queue: str | None, output: Output) -> None:
    """Look at a cluster: version, rights, nodes, storage, operators.

    With --pods also whether pods start, resolve names, reach the server and each other, and what their image holds.
    Exits with 1 if something is wrong.
    """
    if (image or queue) and not pods:
        raise click.UsageError("--image and --queue are of the pods that look at the cluster; add --pods")
    if image and queue:
        raise click.UsageError("a queue has an image of its own; leave out --image or --queue")
    with open_client() as client:
        found = client.check_cluster(name)
        if pods:
            found += run_interruptibly(lambda: client.check_pods(name, image=image, queue=queue)).findings
    output.items(
        found,
        ident=lambda one: f"{one.state} {one.about}",
        headers=("STATE", "ABOUT", "WHAT", "REMEDY", "WHO"),
        row=lambda one: (one.state, one.about, one.words, one.remedy, one.who),
        empty="Nothing was looked at.",
    )
    if any(one.state == "wrong" for one in found):
        raise click.exceptions.Exit(1)

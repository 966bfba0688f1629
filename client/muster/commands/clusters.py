"""muster clusters: the clusters of the server, whether they have what it needs, and their nodes."""

from __future__ import annotations

import click

from muster.commands.output import Output, reading
from muster.commands.session import open_client


@click.group()
def clusters() -> None:
    """Clusters of the server, whether they have what it needs (for platform administrators), and their nodes."""


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
@reading
def check(*, name: str, output: Output) -> None:
    """Look at a cluster: version, rights, nodes, storage, operators.

    Exits with 1 if something is wrong.
    """
    with open_client() as client:
        found = client.check_cluster(name)
    output.items(
        found,
        ident=lambda one: f"{one.state} {one.about}",
        headers=("STATE", "ABOUT", "WHAT", "REMEDY", "WHO"),
        row=lambda one: (one.state, one.about, one.words, one.remedy, one.who),
        empty="Nothing was looked at.",
    )
    if any(one.state == "wrong" for one in found):
        raise click.exceptions.Exit(1)


@clusters.command()
@click.argument("name")
@reading
def nodes(*, name: str, output: Output) -> None:
    """List the nodes of a cluster whose queues you may submit to, and who holds what of them."""
    with open_client() as client:
        found = client.cluster_nodes(name)
    output.items(
        found,
        ident=lambda one: one.key,
        headers=("NODE", "GPU", "GPUS", "HELD", "OTHERS", "FREE", "IDLE", "JOBS", "PROBLEMS"),
        row=lambda one: (
            one.name,
            one.product,
            one.gpus,
            one.held,
            "?" if one.others is None else one.others,
            one.free,
            one.idle or "",
            ", ".join(held.job_name or "of other teams" for held in one.jobs),
            ", ".join(one.problems),
        ),
        empty=f"No node of cluster {name} is known.",
        is_sparse=True,
    )

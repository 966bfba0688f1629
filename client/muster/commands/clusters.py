"""muster clusters: whether clusters have what the server needs, their nodes, and those that are added."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, TextIO

import click

from muster.commands.interruptible import run_interruptibly
from muster.commands.job_file import read_job
from muster.commands.output import Output, reading, say
from muster.commands.session import open_client, queue_names
from muster.render import ago, printable


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
        empty="The server has no clusters: `muster clusters add` adds one.",
    )


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what a cluster is, and where the password comes from."""
    for option in reversed(
        (
            click.option("--kubeconfig", type=click.File("r"), help="A file, or - for standard input."),
            click.option("--context", metavar="NAME", default="", help="Of several in the kubeconfig."),
            click.option("--namespace", metavar="NAME", help="Of the pods of its jobs."),
            click.option("--image", metavar="IMAGE", help="Of pods whose queue and job name none."),
            click.option("--control-url", metavar="URL", help="The address at which pods reach the server."),
            click.option("--options", type=click.File("r"), help="A YAML file of OPTIONS, as in MUSTER_CLUSTERS."),
            click.option("--password-stdin", is_flag=True, help="Read your password from standard input."),
        )
    ):
        command = option(command)
    return command


@clusters.command()
@click.argument("name")
@described
@click.option("--in-cluster", is_flag=True, help="Use the account of the pods that the server itself runs in.")
@reading
def add(*, name: str, in_cluster: bool, output: Output, **given: Any) -> None:
    """Add a cluster, by a kubeconfig or by the account of the server's own pods. Your password is asked for.

    The cluster is asked first. Nothing is restarted: a queue on it can be created at once.
    """
    _need_one_input(given)
    with open_client() as client:
        made = client.add_cluster(
            name, options=_options(given, known={}), kubeconfig=_text(given["kubeconfig"]), context=given["context"],
            in_cluster=in_cluster, password=_password(given),
        )  # fmt: skip
    line = f"Cluster {made.name} is added: `muster clusters check {made.name}` looks at it, and a queue on it runs jobs"
    output.item(made, ident=made.name, lines=lambda: [printable(line)])


@clusters.command("set")
@click.argument("name")
@described
@reading
def set_cluster(*, name: str, output: Output, **given: Any) -> None:
    """Change options of an added cluster, or replace its kubeconfig. Jobs that run there go on."""
    _need_one_input(given)
    with open_client() as client:
        known = client.cluster(name)
        made = client.set_cluster(
            name, options=_options(given, known=known.options), kubeconfig=_text(given["kubeconfig"]),
            context=given["context"], version=known.version or 1, password=_password(given),
        )  # fmt: skip
    line = f"Cluster {made.name} is changed, and is version {made.version}"
    output.item(made, ident=made.name, lines=lambda: [printable(line)])


@clusters.command()
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read your password from standard input.")
def remove(*, name: str, password_stdin: bool) -> None:
    """Forget an added cluster that no queue, volume and unfinished job needs."""
    with open_client() as client:
        client.remove_cluster(name, password=_password({"password_stdin": password_stdin}))
    say(f"cluster {name} is removed")


@clusters.command()
@click.argument("name")
@reading
def namespaces(*, name: str, output: Output) -> None:
    """List the namespaces of a cluster that belong to teams."""
    with open_client() as client:
        found = client.team_namespaces(name)
    now = datetime.now(timezone.utc)
    output.items(
        found,
        ident=lambda one: one.team,
        headers=("TEAM", "NAMESPACE", "SINCE", "BY"),
        row=lambda one: (one.team, one.namespace, ago(one.bound_at, now=now), one.bound_by or ""),
        empty=f"No team has a namespace of its own on cluster {name}: all share the cluster's.",
    )


@clusters.command()
@click.argument("name")
@click.argument("team")
@click.argument("namespace")
@click.option(
    "--make",
    is_flag=True,
    help="Have Muster make the namespace first (deploy/team-namespaces.yaml).",
)
@reading
def bind(*, name: str, team: str, namespace: str, make: bool, output: Output) -> None:
    """Have a team's jobs made in a namespace of its own, from the next one on.

    Refused, with the line that mends it, for each right and each claim that the namespace lacks.
    """
    with open_client() as client:
        made = client.bind_namespace(name, team, namespace, make=make)
    line = f"New jobs of team {made.team} on cluster {made.cluster} are made in namespace {made.namespace}"
    output.item(made, ident=made.namespace, lines=lambda: [printable(line)])


@clusters.command()
@click.argument("name")
@click.argument("team")
def release(*, name: str, team: str) -> None:
    """Have a team's jobs made in the cluster's own namespace again, from the next one on."""
    with open_client() as client:
        client.release_namespace(name, team)
    say(f"new jobs of team {team} on cluster {name} are made in the cluster's own namespace")


def _need_one_input(given: Mapping[str, Any]) -> None:
    """Refuse two things on standard input."""
    piped = [name for name in ("kubeconfig", "options") if given[name] is sys.stdin]
    if len(piped) + bool(given["password_stdin"]) > 1:
        raise click.UsageError("standard input can be one of --kubeconfig, --options and --password-stdin")


def _options(given: Mapping[str, Any], *, known: Mapping[str, Any]) -> dict[str, Any]:
    file = given["options"]
    found = {**known, **(read_job(file.read(), source=file.name) if file else {})}
    named = {"NAMESPACE": given["namespace"], "IMAGE": given["image"], "CONTROL_URL": given["control_url"]}
    return found | {name: value for name, value in named.items() if value is not None}


def _text(file: TextIO | None) -> str:
    return file.read() if file else ""


def _password(given: Mapping[str, Any]) -> str:
    if given["password_stdin"]:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Your password", hide_input=True, err=True))


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

"""The Python SDK.

    with Client() as muster:
        job = muster.submit("torchrun train.py", queue="research", nodes=2, nproc_per_node=4)
        for line in muster.logs(job, follow=True):
            print(line.rank, line.text)

A job is given as a `Job`, an id, or a name (the newest of that name). Everything raises `muster.errors.MusterError`.

Both clients are one core, `Core`, whose operations are asynchronous methods. `AsyncClient` is that core over asyncio;
`Client` has the same methods for ordinary code, listed below. A new operation is a method of the core and a line here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Callable, TypeVar

from muster.code.sending import Sending
from muster.http.blocking import blocking
from muster.http.config import find_server
from muster.http.port import AsyncPort, BlockingPort, async_sleep
from muster.http.wire import Retry, Wire
from muster.jobs.logs import Logs
from muster.jobs.reading import Reading
from muster.teams.clusters import Clusters
from muster.teams.nodes import Nodes
from muster.teams.operations import Teams
from muster.teams.quotas import Quotas
from muster.teams.secrets import TeamSecrets
from muster.teams.volumes import Volumes
from muster.teams.webhooks import Webhooks

__all__ = ["AsyncClient", "Client"]

A = TypeVar("A", bound="AsyncClient")
C = TypeVar("C", bound="Client")


class Core(Sending, Logs, Reading, Teams, Webhooks, TeamSecrets, Volumes, Nodes, Clusters, Quotas):
    """All operations, over a port."""

    async def close(self) -> None:
        """Close the connections. Nothing can be sent afterwards."""
        await self._port.close()


class AsyncClient(Core):
    """See `muster.client.Client`; `jobs`, `audit`, `logs` and `follow` are asynchronous iterators."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = async_sleep,
        on_retry: Callable[[Retry], None] = lambda retry: None,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        wire = Wire(found.url, found.token, timeout_seconds)
        super().__init__(wire, port=AsyncPort(wire.settings(), sleep=sleep), on_retry=on_retry)

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class Client:
    """One server, chosen by the arguments, else the environment (MUSTER_URL, MUSTER_TOKEN), else the saved login."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        on_retry: Callable[[Retry], None] = lambda retry: None,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        wire = Wire(found.url, found.token, timeout_seconds)
        self._core = Core(wire, port=BlockingPort(wire.settings(), sleep=sleep), on_retry=on_retry)
        self.url = found.url

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        # An interrupt may have come just as the connection pool took its lock, which closing needs too.
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.close()

    close = blocking(Core.close)

    submit = blocking(Core.submit)
    upload = blocking(Core.upload)
    jobs = blocking(Core.jobs)
    job = blocking(Core.job)
    cancel = blocking(Core.cancel)
    suspend = blocking(Core.suspend)
    resume = blocking(Core.resume)
    priority_effect = blocking(Core.priority_effect)
    set_priority = blocking(Core.set_priority)
    wait = blocking(Core.wait)
    attempts = blocking(Core.attempts)
    replicas = blocking(Core.replicas)
    ranks = blocking(Core.ranks)
    events = blocking(Core.events)
    cluster_events = blocking(Core.cluster_events)
    checkpoints = blocking(Core.checkpoints)
    metrics = blocking(Core.metrics)
    plan = blocking(Core.plan)
    job_fields = blocking(Core.job_fields)
    act_on_many = blocking(Core.act_on_many)
    resubmit = blocking(Core.resubmit)
    delete_log = blocking(Core.delete_log)
    schema = blocking(Core.schema)

    logs = blocking(Core.logs)
    log_pages = blocking(Core.log_pages)
    log_page = blocking(Core.log_page)
    log_text = blocking(Core.log_text)
    follow = blocking(Core.follow)
    follow_pages = blocking(Core.follow_pages)
    search_logs = blocking(Core.search_logs)

    workspaces = blocking(Core.workspaces)
    workspace = blocking(Core.workspace)
    files = blocking(Core.files)
    file = blocking(Core.file)
    workspace_diff = blocking(Core.workspace_diff)

    login = blocking(Core.login)
    me = blocking(Core.me)
    tokens = blocking(Core.tokens)
    create_token = blocking(Core.create_token)
    revoke_token = blocking(Core.revoke_token)
    revoke_own_token = blocking(Core.revoke_own_token)

    teams = blocking(Core.teams)
    team = blocking(Core.team)
    create_team = blocking(Core.create_team)
    members = blocking(Core.members)
    set_member = blocking(Core.set_member)
    remove_member = blocking(Core.remove_member)
    service_accounts = blocking(Core.service_accounts)
    create_service_account = blocking(Core.create_service_account)
    remove_service_account = blocking(Core.remove_service_account)
    audit = blocking(Core.audit)

    queues = blocking(Core.queues)
    queue = blocking(Core.queue)
    create_queue = blocking(Core.create_queue)
    set_queue = blocking(Core.set_queue)
    ceilings = blocking(Core.ceilings)
    queue_versions = blocking(Core.queue_versions)
    allowed_objects = blocking(Core.allowed_objects)
    allow_object = blocking(Core.allow_object)
    forbid_object = blocking(Core.forbid_object)
    set_ceiling = blocking(Core.set_ceiling)
    flavors = blocking(Core.flavors)
    make_flavor = blocking(Core.make_flavor)
    cohorts = blocking(Core.cohorts)
    set_cohort = blocking(Core.set_cohort)
    quotas = blocking(Core.quotas)
    usage = blocking(Core.usage)
    quota_requests = blocking(Core.quota_requests)
    ask_for_quota = blocking(Core.ask_for_quota)
    decide_quota = blocking(Core.decide_quota)
    withdraw_quota = blocking(Core.withdraw_quota)
    set_quota = blocking(Core.set_quota)
    remove_flavor = blocking(Core.remove_flavor)
    remove_cohort = blocking(Core.remove_cohort)
    remove_quota = blocking(Core.remove_quota)

    clusters = blocking(Core.clusters)
    cluster = blocking(Core.cluster)
    add_cluster = blocking(Core.add_cluster)
    set_cluster = blocking(Core.set_cluster)
    remove_cluster = blocking(Core.remove_cluster)
    check_cluster = blocking(Core.check_cluster)
    team_namespaces = blocking(Core.team_namespaces)
    bind_namespace = blocking(Core.bind_namespace)
    release_namespace = blocking(Core.release_namespace)
    cluster_nodes = blocking(Core.cluster_nodes)
    cluster_node = blocking(Core.cluster_node)
    check_pods = blocking(Core.check_pods)
    pod_check = blocking(Core.pod_check)
    excluded_nodes = blocking(Core.excluded_nodes)
    suspected_nodes = blocking(Core.suspected_nodes)
    exclude_node = blocking(Core.exclude_node)
    readmit_node = blocking(Core.readmit_node)

    volumes = blocking(Core.volumes)
    volume = blocking(Core.volume)
    create_volume = blocking(Core.create_volume)
    set_volume = blocking(Core.set_volume)
    delete_volume = blocking(Core.delete_volume)
    team_secrets = blocking(Core.team_secrets)
    team_secret = blocking(Core.team_secret)
    create_team_secret = blocking(Core.create_team_secret)
    set_team_secret = blocking(Core.set_team_secret)
    delete_team_secret = blocking(Core.delete_team_secret)
    webhooks = blocking(Core.webhooks)
    webhook = blocking(Core.webhook)
    create_webhook = blocking(Core.create_webhook)
    set_webhook = blocking(Core.set_webhook)
    rotate_webhook = blocking(Core.rotate_webhook)
    test_webhook = blocking(Core.test_webhook)
    delete_webhook = blocking(Core.delete_webhook)
    deliveries = blocking(Core.deliveries)
    send_again = blocking(Core.send_again)

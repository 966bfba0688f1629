"""The operations that both clients share, each named once.

An `Operation` is made of a flow (`muster.http.call`). On a `Client` it is a function that returns the result; on an
`AsyncClient` one that returns an awaitable. So each has one definition, and one documentation.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar, overload

from muster.http.call import Call, Flow, Page, page_size
from muster.jobs import calls, calls_jobs, reading
from muster.teams import calls_teams, calls_webhooks

if TYPE_CHECKING:
    # For type checkers only: the package itself needs neither, and Python 3.9 has no ParamSpec.
    from typing_extensions import ParamSpec

    from muster.http.async_transport import AsyncTransport
    from muster.http.transport import Transport

    P = ParamSpec("P")
else:
    P = TypeVar("P")

T = TypeVar("T")


class Operation(Generic[P, T]):
    def __init__(self, flow: Callable[P, Flow[T]]) -> None:
        self._flow = flow

    @overload
    def __get__(self, client: None, kind: Any) -> Callable[P, Flow[T]]: ...
    @overload
    def __get__(self, client: Transport, kind: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncTransport, kind: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, kind: Any) -> Any:
        if client is None:
            return self._flow  # so that `help(Client.plan)` shows the arguments, not this machinery

        @functools.wraps(self._flow)
        def perform(*args: Any, **options: Any) -> Any:
            return client._run(self._flow(*args, **options))

        return perform


class Listing(Generic[P, T]):
    """Like an operation, for a list that may be long: items come page by page, as they are needed, at most `limit`."""

    def __init__(self, first: Callable[P, Call[Page[T]]]) -> None:
        self._first = first

    @overload
    def __get__(self, client: None, kind: Any) -> Callable[P, Call[Page[T]]]: ...
    @overload
    def __get__(self, client: Transport, kind: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncTransport, kind: Any) -> Callable[P, AsyncIterator[T]]: ...

    def __get__(self, client: Any, kind: Any) -> Any:
        if client is None:
            return self._first

        first: Callable[..., Call[Page[T]]] = self._first

        @functools.wraps(first)
        def begin(*args: Any, limit: int | None = None, **options: Any) -> Any:
            return client._items(first(*args, limit=page_size(limit), **options), limit=limit)

        return begin


class Operations:
    """Mixed into both clients."""

    login = Operation(calls_teams.login)
    me = Operation(calls_teams.me)

    jobs = Listing(calls.jobs)
    job = Operation(calls.find_job)
    cancel = Operation(calls_jobs.cancel)
    suspend = Operation(calls_jobs.suspend)
    resume = Operation(calls_jobs.resume)
    attempts = Operation(calls_jobs.attempts)
    replicas = Operation(calls_jobs.replicas)
    ranks = Operation(calls_jobs.ranks)
    events = Operation(calls_jobs.events)
    metrics = Operation(calls_jobs.metrics)
    search_logs = Operation(calls_jobs.search_logs)
    plan = Operation(calls_jobs.plan)
    job_fields = Operation(calls_jobs.job_fields)
    act_on_many = Operation(calls_jobs.act_on_many)
    resubmit = Operation(calls_jobs.resubmit)
    delete_log = Operation(calls_jobs.delete_log)
    schema = Operation(calls_jobs.schema)

    workspaces = Listing(reading.workspaces)
    workspace = Operation(reading.workspace)
    files = Operation(reading.files)
    file = Operation(reading.file)
    workspace_diff = Operation(reading.diff)

    queues = Operation(calls_teams.queues)
    queue = Operation(calls_teams.queue)
    create_queue = Operation(calls_teams.create_queue)
    set_queue = Operation(calls_teams.set_queue)
    ceilings = Operation(calls_teams.ceilings)
    set_ceiling = Operation(calls_teams.set_ceiling)

    tokens = Operation(calls_teams.tokens)
    create_token = Operation(calls_teams.create_token)
    revoke_token = Operation(calls_teams.revoke_token)
    revoke_own_token = Operation(calls_teams.revoke_own_token)

    teams = Operation(calls_teams.teams)
    team = Operation(calls_teams.team)
    create_team = Operation(calls_teams.create_team)
    members = Operation(calls_teams.members)
    set_member = Operation(calls_teams.set_member)
    remove_member = Operation(calls_teams.remove_member)
    service_accounts = Operation(calls_teams.service_accounts)
    create_service_account = Operation(calls_teams.create_service_account)
    remove_service_account = Operation(calls_teams.remove_service_account)

    webhooks = Operation(calls_webhooks.webhooks)
    webhook = Operation(calls_webhooks.webhook)
    create_webhook = Operation(calls_webhooks.create_webhook)
    set_webhook = Operation(calls_webhooks.set_webhook)
    rotate_webhook = Operation(calls_webhooks.rotate_webhook)
    test_webhook = Operation(calls_webhooks.test_webhook)
    delete_webhook = Operation(calls_webhooks.delete_webhook)
    deliveries = Listing(calls_webhooks.deliveries)
    send_again = Operation(calls_webhooks.send_again)

    audit = Listing(calls_teams.audit)

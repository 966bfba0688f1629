"""/jobs/new: the form, the preview of the job's shape, and the submission."""

import secrets
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from common.errors import Conflict, InvalidInput, NotAllowed, Problem
from jobs import frameworks, services
from jobs.core.fields import MAX_NODES, MAX_PROCESSES_PER_NODE
from jobs.core.plan import Role, slots_of, world_size
from jobs.core.spec import JobSpec
from jobs.models import Job
from jobs.scheduling.quota_use import free_now
from queues.models import Queue
from queues.trees import most
from workspaces import packing
from workspaces.models import Workspace

from . import plan
from .forms import RECENT, SubmitForm, from_job, submittable_queues
from .responses import Context, HtmxRequest, answer, readable_job, target_id, whole

DRAWN = 16  # nodes, and ranks per node, that the preview draws


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HtmxRequest) -> HttpResponse:
    if request.method == "POST":
        return _show_plan(request) if "show" in request.POST else _submit(request)
    if target_id(request) == "shape":
        return answer(request, template="jobs/_shape.html", context=shape(request, data=request.GET))
    if target_id(request) == "own":
        form = SubmitForm(user=request.user, initial={"framework": request.GET.get("framework", "")})
        return answer(request, template="jobs/_own_fields.html", context={"form": form})
    form = SubmitForm(user=request.user, initial=_initial(request))
    return _show(request, form=form)


def _submit(request: HtmxRequest) -> HttpResponse:
    form = SubmitForm(request.POST, request.FILES, user=request.user)
    if form.is_valid():
        if job := _make(request, form):
            return redirect("job", pk=job.pk)
    else:
        _look_further(request, form)
    form.describe_errors()
    if request.htmx:  # in place, so that the files and secrets in the browser's form stay
        return _show(request, form=form, template="jobs/_submit_form.html")
    return _show(request, form=form, status=422)


def _look_further(request: HtmxRequest, form: SubmitForm) -> None:
    """Add what else is wrong with a form that has errors already, and keep the files that came with it."""
    known = set(form.errors)
    if form.cleaned_data.get("queue") is None:
        return
    with _problems_at_fields(form, known=known):
        code = form.cleaned_data.get("workspace") if form.cleaned_data.get("code") == "earlier" else None
        if form.cleaned_data.get("code") == "upload" and form.uploads():
            code = _stored(request, form)
        services.preview(user=request.user, queue=form.cleaned_data["queue"], sent=form.sent(), workspace=code)


def _show_plan(request: HtmxRequest) -> HttpResponse:
    """Show what a submission would start, or everything that is wrong with it. Nothing is created but uploaded code."""
    form = SubmitForm(request.POST, request.FILES, user=request.user)
    found = None
    if form.is_valid():
        found = _planned(request, form)
    else:
        _look_further(request, form)
    context = {
        "plan": found,
        "plan_rows": plan.rows(found) if found else [],
        "plan_problems": [
            (form.fields[name].label or name if name in form.fields else "", str(error))
            for name, errors in form.errors.items()
            for error in errors
        ],
    }
    if request.htmx:
        return answer(request, template="jobs/_plan.html", context=context)
    form.describe_errors()
    return _show(request, form=form, status=200 if found else 422, more=context)


def _planned(request: HtmxRequest, form: SubmitForm) -> services.Preview | None:
    """Return the plan; None with every problem at its field. Code that is yet to be uploaded is not looked into."""
    with _problems_at_fields(form):
        has_files = form.cleaned_data["code"] != "upload" or form.uploads()
        code = _code(request, form) if has_files else None
        if not form.errors:
            queue = form.cleaned_data["queue"]
            return services.preview(user=request.user, queue=queue, sent=form.sent(), workspace=code)
    return None


def _make(request: HtmxRequest, form: SubmitForm) -> Job | None:
    """Return the job, or None with every problem at its field. Uploaded files are kept either way."""
    with _problems_at_fields(form):
        code = _code(request, form)
        if form.errors:
            _look_further(request, form)
        else:
            queue, key = form.cleaned_data["queue"], form.cleaned_data["idempotency_key"]
            sent = form.sent()
            return services.submit(user=request.user, queue=queue, sent=sent, workspace=code, idempotency_key=key)[0]
    return None


@contextmanager
def _problems_at_fields(form: SubmitForm, *, known: Container[str] = ()) -> Iterator[None]:
    """Attach what a service refuses to the fields it is about; 403 for what the user may not do.

    `known`: fields that are wrong already, and were left out of what the service saw.
    """
    try:
        yield
    except InvalidInput as error:
        for problem in error.problems:
            if form.field_of(problem) not in known:
                form.take(problem)
    except Conflict as error:
        if error.field == services.KEY_FIELD:
            form.renew_key()
        else:
            form.take(Problem(error.field, error.value, str(error)))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error


def _code(request: HtmxRequest, form: SubmitForm) -> Workspace | None:
    match form.cleaned_data["code"]:
        case "earlier":
            chosen: Workspace | None = form.cleaned_data["workspace"]
            if chosen is None:
                form.add_error("workspace", "is missing; choose one, or upload files")
            return chosen
        case "upload" if form.uploads():
            return _stored(request, form)
        case "upload":
            form.add_error(
                "upload", "no files were chosen; choose files or a folder, or state that the job needs no code"
            )
    return None


def _stored(request: HtmxRequest, form: SubmitForm) -> Workspace:
    stored = packing.store_files(team=form.cleaned_data["queue"].team, by=request.user, files=form.uploads())
    form.keep(stored)
    return stored


def _initial(request: HtmxRequest) -> dict[str, Any]:
    queue = _queue_named(request)
    fresh = {"idempotency_key": secrets.token_urlsafe(16), "queue": queue.pk if queue else None}
    if named := request.GET.get("framework"):  # a link, and the way to its fields without JavaScript
        fresh["framework"] = named
    origin = whole(request.GET.get("from"))
    if origin is None:
        return fresh
    start = {"from_job": origin} if request.GET.get("checkpoints") else {}
    if start and (step := whole(request.GET.get("step"), most=2**53)) is not None:
        start["from_step"] = step
    return {**from_job(readable_job(request, pk=origin)), **start, "idempotency_key": fresh["idempotency_key"]}


def _queue_named(request: HtmxRequest) -> Queue | None:
    """Return the queue named in the link, or the one this user used last."""
    name = request.GET.get("queue", "").replace("\0", "")
    queues = submittable_queues(request.user)
    if name:
        return queues.filter(name=name).first()
    return queues.filter(jobs__user=request.user).order_by("-jobs__id").first()


def _show(
    request: HtmxRequest, *, form: SubmitForm, status: int = 200, more: Context | None = None, template: str = "jobs/new.html"
) -> HttpResponse:  # fmt: skip
    values = {name: form[name].value() for name in ("queue", "nodes", "nproc_per_node", "framework")}
    recent = list(form.workspaces.select_related("team", "created_by")[:RECENT])
    context = {
        "form": form,
        "queues": list(form.queues),
        "recent": _with_chosen(recent, form),
        "origin": whole(request.GET.get("from")),
        **shape(request, data=values),
        **(more or {}),
    }
    return answer(request, template=template, context=context, status=status)


def _with_chosen(recent: list[Workspace], form: SubmitForm) -> list[Workspace]:
    """Add the chosen workspace even if it is not a recent one."""
    chosen = whole(str(form["workspace"].value() or ""))
    if chosen is None or any(one.pk == chosen for one in recent):
        return recent
    return [*form.workspaces.filter(pk=chosen), *recent]


def shape(request: HtmxRequest, *, data: Any) -> Context:
    """Return what the numbers mean: "2 x 2 = 4 ranks", and whether they fit now, later or never.

    A framework may start one rank in a replica whatever its devices: then slots and ranks differ.
    """
    queues = submittable_queues(request.user)
    chosen = whole(str(data.get("queue") or ""))
    queue = queues.filter(pk=chosen).first() if chosen else queues.first()
    nodes, per_node = (whole(str(data.get(name) or "")) for name in ("nodes", "nproc_per_node"))
    framework = frameworks.REGISTRY.get(str(data.get("framework") or "")) or frameworks.get("torchrun")
    roles: tuple[Role, ...] = ()
    if nodes and per_node and nodes <= MAX_NODES and per_node <= MAX_PROCESSES_PER_NODE:
        roles = framework.roles(JobSpec(("true",), framework=framework.NAME, nodes=nodes, nproc_per_node=per_node))
    total = slots_of(roles) if roles else None
    return {
        "shape_queue": queue,
        "shape_per_node_label": framework.PER_NODE,
        "shape_nodes": nodes,
        "shape_per_node": per_node,
        "shape_total": total,
        "shape_ranks": world_size(roles),
        **_formation(nodes, per_node),
        **_room(queue, total),
    }


def _room(queue: Queue | None, total: int | None) -> Context:
    if queue is None or total is None:
        return {}
    free = free_now(queue)
    verdict = "never" if total > most(queue) else "later" if total > free else "now"
    return {"shape_free": free, "shape_verdict": verdict}


def _formation(nodes: int | None, per_node: int | None) -> Context:
    """Return the small drawing of nodes and their ranks; large shapes are cut."""
    rows, dots = min(nodes or 0, DRAWN), min(per_node or 0, DRAWN)
    is_cut = (rows, dots) != (nodes or 0, per_node or 0)
    return {"shape_rows": range(rows), "shape_dots": range(dots), "shape_is_cut": is_cut}

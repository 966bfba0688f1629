"""/new-cluster and /clusters/NAME/settings: clusters that platform administrators add, change and remove in the browser."""

import os
from collections.abc import Mapping
from typing import Any

import yaml
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.pages.parts import allowed
from accounts.permissions import require_platform_admin
from accounts.signin import flow
from common import yaml_input
from common.errors import Conflict, InvalidInput, Problem
from jobs.submission import cluster_entries
from queues.models import AddedCluster

from .responses import HtmxRequest, answer

# Options with an input of their own; the others are written as YAML.
OWN = {"namespace": "NAMESPACE", "image": "IMAGE", "control_url": "CONTROL_URL"}
USUAL = {"namespace": "muster-jobs"}
METHODS = ["GET", "HEAD", "POST"]


@login_required
@sensitive_post_parameters("kubeconfig", "password")
@require_http_methods(METHODS)
def new(request: HtmxRequest) -> HttpResponse:
    """Add a cluster. A refused kubeconfig is sent back to the form of the one who sent it, and kept nowhere."""
    allowed(lambda: require_platform_admin(request.user, "add clusters"))
    if request.method != "POST":
        return _form(request, given={**USUAL, "control_url": settings.PUBLIC_URL, "access": "kubeconfig"})
    try:
        _confirm(request)
        row = cluster_entries.add(
            by=request.user, name=_text(request, "name"), options=_options(request), context=_text(request, "context"),
            kubeconfig=_kubeconfig(request), in_cluster=request.POST.get("access") == "in_cluster",
        )  # fmt: skip
    except (InvalidInput, Conflict) as error:
        return _refused(request, error)
    messages.success(request, f"Cluster {row.name} was added. Create a queue on it to run jobs there.")
    return redirect("cluster", row.name)


@login_required
@sensitive_post_parameters("kubeconfig", "password")
@require_http_methods(METHODS)
def edit(request: HtmxRequest, name: str) -> HttpResponse:
    """Change an added cluster, or remove it with `act`."""
    allowed(lambda: require_platform_admin(request.user, "change clusters"))
    row = get_object_or_404(AddedCluster.objects.select_related("changed_by"), name=name)
    if request.method != "POST":
        return _form(request, row=row, given=_given(row))
    try:
        _confirm(request)
        if request.POST.get("act") == "remove":
            cluster_entries.remove(by=request.user, row=row)
            messages.success(request, f"Cluster {name} was removed, and its credentials with it.")
            return redirect("clusters")
        version = request.POST.get("version", "")
        cluster_entries.change(
            by=request.user, row=row, version=int(version) if version.isdecimal() and len(version) < 10 else 0,
            options=_options(request), kubeconfig=_kubeconfig(request), context=_text(request, "context"),
        )  # fmt: skip
    except (InvalidInput, Conflict) as error:
        return _refused(request, error, row=row)
    messages.success(request, f"Cluster {name} was changed. Jobs that run there go on.")
    return redirect("cluster", name)


def _confirm(request: HtmxRequest) -> None:
    if not flow.is_password_of(request, request.user, request.POST.get("password", "")):
        raise InvalidInput(Problem("password", None, "is not your current password"))


def _options(request: HtmxRequest) -> dict[str, Any]:
    """Return OPTIONS from the inputs and the YAML. Raises InvalidInput for YAML that is no mapping."""
    try:
        more = yaml_input.parse(request.POST.get("more", "").replace("\0", "")) or {}
    except ValueError as error:
        raise InvalidInput(Problem("more", None, str(error))) from error
    if not isinstance(more, Mapping):
        raise InvalidInput(Problem("more", None, "must be options, one NAME: value a line"))
    if twice := sorted(set(more) & set(OWN.values())):
        raise InvalidInput(Problem("more", None, f"has {', '.join(twice)}, which has a field of its own above"))
    return {**more, **{option: _text(request, name) for name, option in OWN.items()}}


def _kubeconfig(request: HtmxRequest) -> str:
    if request.POST.get("access", "kubeconfig") != "kubeconfig":
        return ""
    return request.POST.get("kubeconfig", "").replace("\0", "").strip()


def _text(request: HtmxRequest, name: str) -> str:
    return request.POST.get(name, "").replace("\0", "").strip()


def _given(row: AddedCluster) -> dict[str, Any]:
    more = {name: value for name, value in row.options.items() if name not in OWN.values()}
    return {
        **{name: row.options.get(option, "") for name, option in OWN.items()},
        "more": yaml.safe_dump(more, sort_keys=True) if more else "", "version": row.version,
        "access": "kubeconfig" if row.server else "in_cluster",
    }  # fmt: skip


def _refused(request: HtmxRequest, error: InvalidInput | Conflict, *, row: AddedCluster | None = None) -> HttpResponse:
    """Show the form as it was sent, each problem at its input; the password is typed again."""
    given = {name: value for name, value in request.POST.items() if name != "password"}
    if isinstance(error, Conflict):
        return _form(request, row=row, given=given, errors=[str(error)], status=409)
    wrong: dict[str, str] = {}
    for problem in error.problems:
        name = _input_of(problem.field)
        words = problem.message[:1].upper() + problem.message[1:]
        if name in ("kubeconfig", "more") and problem.field != name:
            words = f"{problem.field.partition('.')[2]} {problem.message}"
        wrong[name] = f"{wrong[name]}. {words}" if name in wrong else words
    return _form(request, row=row, given=given, wrong=wrong, status=422)


def _input_of(field: str) -> str:
    """Return the name of the input that a problem is about."""
    place, _, rest = field.partition(".")
    if place != "options":
        return place
    return next((name for name, option in OWN.items() if option == rest), "more")


def _form(request: HtmxRequest, *, row: AddedCluster | None = None, status: int = 200, **more: Any) -> HttpResponse:
    context = {"row": row, "may_be_in_cluster": bool(os.environ.get("KUBERNETES_SERVICE_HOST")), **more}
    return answer(request, template="jobs/cluster_form.html", context=context, status=status)

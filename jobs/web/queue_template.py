"""/queues/NAME/template: what a queue's jobs are as pods, as a form and as YAML side by side. Each follows the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from accounts.permissions import Act, may, require
from common import yaml_input
from common.errors import Conflict, InvalidInput, NotAllowed, Problem
from jobs.analysis.usage import with_use
from jobs.core.pod_template import PARTS
from jobs.submission import pods
from jobs.submission.resolving import queue_defaults
from queues import services, templates
from queues.readable import readable_queues

from .responses import Context, HtmxRequest, answer, target_id, whole

SHOWN = 20  # versions
TEXT, WORDS, PAIRS = "text", "words", "pairs"


@dataclass(frozen=True)
class Input:
    """One input of the form: the path of its value in the document, and how it is written."""

    path: str
    label: str
    hint: str
    kind: str = TEXT

    @property
    def name(self) -> str:
        return self.path.replace(".", "_")

    def written(self, document: Mapping[str, Any]) -> str:
        value = _at(document, self.path)
        if self.kind == PAIRS and isinstance(value, Mapping):
            return "\n".join(f"{key}={one}" for key, one in value.items())
        if self.kind == WORDS and isinstance(value, list):
            return " ".join(map(str, value))
        return "" if value is None else str(value)

    def read(self, text: str) -> Any:
        """Return the value of what was entered; what is wrong with it, the document's own check says."""
        if self.kind == PAIRS:
            pairs = (line.partition("=") for line in text.replace("\r", "").split("\n") if line.strip())
            return {key.strip(): value.strip() for key, _, value in pairs}
        return text.replace(",", " ").split() if self.kind == WORDS else text.strip()


INPUTS = (
    Input("defaults.image", "Image", "what its pods run, such as pytorch/pytorch:2.9"),
    Input("defaults.cpu", "CPU of a replica", "cores, such as 8; empty: the part of a node that its GPUs are"),
    Input("defaults.memory", "Memory of a replica", "such as 64Gi; empty: the part of a node that its GPUs are"),
    Input("defaults.shm", "Shared memory", "the most that /dev/shm holds, such as 16Gi"),
    Input("node.cpus", "CPUs of a node", "what jobs may have of a node, such as 96"),
    Input("node.memory", "Memory of a node", "such as 512Gi"),
    Input("node.gpu_type", "Type of GPU", "for people, such as h100-80gb"),
    Input("node.resource", "Resource of a GPU", "as nodes offer it: nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-1g.10gb"),
    Input("shm_per_gpu", "Shared memory for each GPU", "such as 8Gi"),
    Input("defaults.node_selector", "Node selector", "labels that a node must have: key=value, one per line", PAIRS),
    Input("defaults.tolerations", "Tolerations", "taints to tolerate, such as gpu=true:NoSchedule", WORDS),
    Input("defaults.priority_class", "Priority class", "one of the cluster's"),
    Input("defaults.team_secrets", "Team secrets", "that every job gets", WORDS),
    Input("defaults.volumes", "Volumes", "that every job mounts: name, or name:/path", WORDS),
    Input("defaults.working_dir", "Working directory", "where commands start"),
    Input("pods.service_account", "Service account", "one that the platform's administrators allow the team"),
    Input("pods.pull_secrets", "Pull secrets", "Secrets of the cluster that the team may name", WORDS),
    Input("pods.scheduler", "Scheduler", "in place of the cluster's"),
    Input("locked", "Fields that jobs may not set", "such as image tolerations", WORDS),
)  # fmt: skip


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def template(request: HtmxRequest, name: str) -> HttpResponse:
    """Show a queue's template and its versions; administrators of the team change it."""
    queue = get_object_or_404(with_use(readable_queues(request.user)), name=name)
    document = _document(queue)
    if request.method != "POST":
        return _page(request, queue, document)
    try:
        require(request.user, Act.MANAGE, queue.team)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    if target_id(request) in ("template-form", "template-yaml"):
        return _other_side(request, queue, document)
    return _save(request, queue, document)


def _document(queue: Any) -> dict[str, Any]:
    return {**({"defaults": queue.defaults} if queue.defaults else {}), **queue.template}


def _other_side(request: HtmxRequest, queue: Any, document: dict[str, Any]) -> HttpResponse:
    """Return the form as the YAML says it, or the YAML as the form does; what is wrong stays where it was entered."""
    is_form = target_id(request) == "template-form"
    try:
        found = _of_yaml(request.POST) if is_form else _of_form(request.POST, _of_yaml(request.POST, document))
        problems = []
    except ValueError as error:
        found, problems = document, [str(error)]
    context = {"queue": queue, "inputs": _inputs(found), "yaml": _yaml(found), "problems": problems, "may_manage": True}
    name = "queues/_template_form.html" if is_form and not problems else "queues/_template_yaml.html"
    if problems:
        context["yaml"] = request.POST.get("yaml", "")
        response = answer(request, template="queues/_template_yaml.html", context=context)
        response["HX-Retarget"] = "#template-yaml"
        return response
    return answer(request, template=name, context=context)


def _save(request: HtmxRequest, queue: Any, document: dict[str, Any]) -> HttpResponse:
    """Save what was entered: the YAML where it differs from what was shown, otherwise the form."""
    entered = request.POST.get("yaml", "")
    is_yaml = _plain(entered) != _plain(request.POST.get("shown", ""))
    try:
        found = _of_yaml(request.POST) if is_yaml else _of_form(request.POST, document)
    except ValueError as error:
        return _page(request, queue, document, problems=[str(error)], entered=entered, status=422)
    try:
        defaults, given = found.get("defaults") or {}, {name: found[name] for name in PARTS if name in found}
        if not isinstance(defaults, Mapping):
            raise ValueError("defaults must be fields of a job, one per line, such as image: pytorch/pytorch:2.9")
        if unknown := sorted(str(one) for one in set(found) - {"defaults", *PARTS}):
            raise ValueError(f"{unknown[0]} is not known; known are defaults, {', '.join(PARTS)}")
        problems = _problems(queue, defaults, given, request)
        if problems:
            return _page(request, queue, found, problems=problems, entered=entered if is_yaml else "", status=422)
        version = whole(request.POST.get("version"), most=10**6)
        services.set_template(
            queue=queue,
            by=request.user,
            defaults=queue_defaults(queue, defaults),
            template=pods.checked(queue, given, by=request.user),
            expected=version,
        )
    except ValueError as error:
        return _page(request, queue, document, problems=[str(error)], entered=entered, status=422)
    except Conflict as error:
        return _page(request, queue, found, problems=[str(error)], entered=entered if is_yaml else "", status=409)
    messages.success(request, f"Jobs submitted to queue {queue.name} from now on have this template.")
    return redirect("queue-template", name=queue.name)


def _problems(queue: Any, defaults: Mapping[str, Any], given: Mapping[str, Any], request: HtmxRequest) -> list[str]:
    """Return everything that is wrong with both parts, at once."""
    found: list[Problem] = []
    try:
        queue_defaults(queue, defaults)
    except InvalidInput as error:
        found += error.problems
    try:
        pods.checked(queue, given, by=request.user)
    except InvalidInput as error:
        found += error.problems
    return [f"{one.field} {one.message}" for one in found]


def _of_yaml(data: QueryDict, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the document that the YAML says. Raises ValueError; `otherwise` is for a form without it."""
    if otherwise is not None and "yaml" not in data:
        return otherwise
    found = yaml_input.parse(data.get("yaml", "")) or {}
    if not isinstance(found, dict):
        raise ValueError("must be parts such as defaults: {image: pytorch/pytorch:2.9}")
    return found


def _of_form(data: QueryDict, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the inputs of the form over it; an input that was changed to nothing removes its value."""
    found = dict(document)
    for one in INPUTS:
        text = data.get(one.name, "")
        if _plain(text) != _plain(one.written(document)):
            found = _with(found, one.path.split("."), one.read(text))
    return found


def _at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _with(document: Any, path: list[str], value: Any) -> dict[str, Any]:
    """Return the document with a value at a path; without it where the value is empty."""
    found = dict(document) if isinstance(document, Mapping) else {}
    first, *rest = path
    inner = _with(found.get(first), rest, value) if rest else value
    if inner in ("", [], {}, None):
        found.pop(first, None)
    else:
        found[first] = inner
    return found


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True) if document else ""


def _inputs(document: Mapping[str, Any]) -> list[tuple[Input, str]]:
    return [(one, one.written(document)) for one in INPUTS]


def _page(
    request: HtmxRequest, queue: Any, document: Mapping[str, Any], *, problems: list[str] | None = None,
    entered: str = "", status: int = 200,
) -> HttpResponse:  # fmt: skip
    rows = list(queue.versions.select_related("created_by").order_by("-number")[: SHOWN + 1])
    before = [*(row.content for row in rows[1:]), None][: len(rows)]
    versions = [
        (row, [] if old is None else templates.changes(old, row.content)) for row, old in zip(rows, before, strict=True)
    ]
    context: Context = {
        "queue": queue,
        "inputs": _inputs(document),
        "yaml": entered or _yaml(document),
        "shown": _yaml(_document(queue)),
        "problems": problems or [],
        "versions": versions[:SHOWN],
        "may_manage": may(request.user, Act.MANAGE, queue.team),
    }
    return answer(request, template="queues/template.html", context=context, status=status)

"""/queues/NAME/template: what a queue's jobs are as pods, as a form and as YAML side by side. Each follows the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from accounts.pages.parts import allowed
from accounts.permissions import Act, may, require
from common import yaml_input
from common.errors import Conflict, InvalidInput, Problem
from jobs import clusters
from jobs.core.pod_template import PARTS
from jobs.scheduling.usage import with_use
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

    def is_about(self, problem: Problem) -> bool:
        return problem.field == self.path or problem.field.startswith(f"{self.path}.")

    def said(self, problem: Problem) -> str:
        """Return what is wrong; of one word among several, with the word."""
        if self.kind == WORDS and isinstance(problem.value, str):
            return f"{problem.value} {problem.message}"
        return problem.message[:1].upper() + problem.message[1:]

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
    Input("defaults.working_dir", "Working directory", "where commands start, such as /workspace"),
    Input("defaults.cpu", "CPU of a replica", "cores, such as 8; empty: its GPUs' share of a node"),
    Input("defaults.memory", "Memory of a replica", "such as 64Gi; empty: its GPUs' share of a node"),
    Input("defaults.shm", "Shared memory of a replica", "the size of /dev/shm, such as 16Gi"),
    Input("shm_per_gpu", "Shared memory for each GPU", "such as 8Gi, where a replica's is not given"),
    Input("node.cpus", "CPUs of a node", "what jobs may have of a node, such as 96"),
    Input("node.memory", "Memory of a node", "what jobs may have of a node, such as 512Gi"),
    Input("node.gpu_type", "Type of GPU", "a name for people, such as h100-80gb"),
    Input("storage.workspace.size_per_gpu", "Workspace for each GPU", "a claim that goes with the job, such as 10Gi"),
    Input("storage.workspace.storage_class", "Class of the workspace", "empty: the cluster's default"),
    Input("storage.checkpoints.size_per_gpu", "Checkpoints for each GPU", "a claim that outlives the job, such as 50Gi"),
    Input("storage.checkpoints.storage_class", "Class of checkpoints", "empty: the cluster's default"),
    Input("node.resource", "Resource of a GPU", "as nodes offer it, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb"),
    Input("defaults.node_selector", "Node selector", "labels that a node must have: key=value, one per line", PAIRS),
    Input("defaults.tolerations", "Tolerations", "taints to tolerate, such as gpu=true:NoSchedule", WORDS),
    Input("defaults.priority_class", "Priority class", "one of the cluster's"),
    Input("defaults.team_secrets", "Team secrets", "names of those that every job gets", WORDS),
    Input("defaults.volumes", "Volumes", "that every job mounts: name, or name:/path", WORDS),
    Input("pods.service_account", "Service account", "one that the platform's administrators allow the team"),
    Input("pods.pull_secrets", "Pull secrets", "Secrets of the cluster that the team may name", WORDS),
    Input("pods.scheduler", "Scheduler", "a name; empty: the cluster's"),
    Input("locked", "Fields that jobs may not set", "such as image tolerations", WORDS),
)  # fmt: skip
WITHOUT_PODS = ("defaults.working_dir", "defaults.team_secrets", "defaults.volumes")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def template(request: HtmxRequest, name: str) -> HttpResponse:
    """Show a queue's template and its versions; administrators of the team change it."""
    queue = get_object_or_404(with_use(readable_queues(request.user)), name=name)
    if request.method != "POST":
        return _page(request, queue)
    allowed(lambda: require(request.user, Act.MANAGE, queue.team))
    if target_id(request) in ("template-form", "template-yaml"):
        return _other_side(request, queue)
    return _save(request, queue)


def _document(queue: Any) -> dict[str, Any]:
    return {**({"defaults": queue.defaults} if queue.defaults else {}), **queue.template}


def _other_side(request: HtmxRequest, queue: Any) -> HttpResponse:
    """Return the form as the YAML says it, or the YAML as the form does; what is wrong stays where it was entered."""
    is_form, given = target_id(request) == "template-form", request.POST
    try:
        found, wrong = _entered(given), ""
    except ValueError as error:
        found, wrong = {}, str(error)
    # The YAML that was mended is sent back too: it is still marked as wrong.
    is_mended = is_form and not wrong and "wrong" in given
    text = given.get("yaml", "") if is_form or wrong else _yaml(found)
    context: Context = {
        "queue": queue,
        "inputs": _rows(queue, found),
        "yaml": text,
        "shown": given.get("shown", "") if wrong else text,
        "problems": [wrong] if wrong else [],
        "may_manage": True,
        "is_mended": is_mended,
        "makes_pods": clusters.backend(queue.cluster).MAKES_PODS,
    }
    if wrong:
        response = answer(request, template="queues/_template_yaml.html", context=context)
        response["HX-Retarget"] = "#template-yaml"
        return response
    name = "queues/_template_form_alone.html" if is_form else "queues/_template_yaml.html"
    return answer(request, template=name, context=context)


def _save(request: HtmxRequest, queue: Any) -> HttpResponse:
    found: dict[str, Any] | None = None
    try:
        found = _entered(request.POST)
        defaults, given = found.get("defaults") or {}, {name: found[name] for name in PARTS if name in found}
        if not isinstance(defaults, Mapping):
            raise ValueError("defaults must be fields of a job, one per line, such as image: pytorch/pytorch:2.9")
        if unknown := sorted(str(one) for one in set(found) - {"defaults", *PARTS}):
            raise ValueError(f"{unknown[0]} is not known; known are defaults, {', '.join(PARTS)}")
        if problems := _problems(queue, defaults, given, request):
            return _refused(request, queue, problems, found)
        services.set_template(
            queue=queue,
            by=request.user,
            defaults=queue_defaults(queue, defaults),
            template=pods.checked(queue, given, by=request.user),
            expected=whole(request.POST.get("version"), most=10**6),
        )
    except ValueError as error:
        return _refused(request, queue, [Problem("", None, str(error))], found)
    except Conflict as error:
        queue = with_use(readable_queues(request.user)).get(pk=queue.pk)
        more = {"conflict": str(error), "there": _yaml(_document(queue)) or "{}"}
        return _refused(request, queue, [], found, status=409, more=more)
    messages.success(request, f"Jobs submitted to queue {queue.name} from now on have this template.")
    return redirect("queue-template", name=queue.name)


def _refused(
    request: HtmxRequest, queue: Any, problems: list[Problem], found: dict[str, Any] | None, *, status: int = 422,
    more: Context | None = None,
) -> HttpResponse:  # fmt: skip
    """Return the page with both sides as they were entered, and what is wrong beside the input that it is about."""
    data = request.POST
    texts = {one.name: data.get(one.name, "") for one in INPUTS if one.name in data}
    text, shown = data.get("yaml", ""), data.get("shown", "")
    if found is not None and found != _of_yaml(text):  # it had not followed the form yet
        text = shown = _yaml(found)
    rows = _rows(queue, found or {}, texts=texts, problems=problems)
    known = [one for one, _, _ in rows]
    others = [f"{one.field} {one.message}".strip() for one in problems if not any(row.is_about(one) for row in known)]
    context = {"inputs": rows, "yaml": text, "shown": shown, "problems": others, "is_refused": True}
    return _page(request, queue, status=status, more={**context, **(more or {})})


def _problems(queue: Any, defaults: Mapping[str, Any], given: Mapping[str, Any], request: HtmxRequest) -> list[Problem]:
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
    return found


def _entered(data: QueryDict) -> dict[str, Any]:
    """Return the document that both sides say together. Raises ValueError.

    That is the YAML, with those inputs of the form over it that were changed since both said the same, `shown`. So
    nothing is lost that was entered on one side while the other had not followed yet, also without JavaScript.
    """
    shown = _of_yaml(data.get("shown", ""))
    found = _of_yaml(data.get("yaml", data.get("shown", "")))
    for one in INPUTS:
        entered = one.read(data.get(one.name, ""))
        if one.name in data and entered != one.read(one.written(shown)):
            found = _with(found, one.path.split("."), entered)
    return found


def _of_yaml(text: str) -> dict[str, Any]:
    try:
        found = yaml_input.parse(text) or {}
    except ValueError as error:
        raise ValueError(f"The YAML {error}") from error
    if not isinstance(found, dict):
        raise ValueError("The YAML must be parts such as defaults: {image: pytorch/pytorch:2.9}")
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


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True) if document else ""


def _rows(
    queue: Any, document: Mapping[str, Any], *, texts: Mapping[str, str] | None = None, problems: list[Problem] | None = None
) -> list[tuple[Input, str, list[str]]]:  # fmt: skip
    """Return the inputs that have a meaning on the queue's cluster, each with its text and what is wrong with it."""
    texts = texts or {}
    makes_pods = clusters.backend(queue.cluster).MAKES_PODS
    return [
        (
            one,
            texts.get(one.name, one.written(document)),
            [one.said(each) for each in problems or [] if one.is_about(each)],
        )
        for one in INPUTS
        if makes_pods or one.path in WITHOUT_PODS
    ]


def _page(request: HtmxRequest, queue: Any, *, status: int = 200, more: Context | None = None) -> HttpResponse:
    document = _document(queue)
    context: Context = {
        "queue": queue,
        "inputs": _rows(queue, document),
        "yaml": _yaml(document),
        "shown": _yaml(document),
        "problems": [],
        "versions": templates.history(queue, most=SHOWN),
        "may_manage": may(request.user, Act.MANAGE, queue.team),
        "makes_pods": clusters.backend(queue.cluster).MAKES_PODS,
        **(more or {}),
    }
    return answer(request, template="queues/template.html", context=context, status=status)

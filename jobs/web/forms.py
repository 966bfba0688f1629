"""The submit form: converts a browser's input to the flat mapping that `services.submit` takes.

The form has no rules of its own: every problem comes from the same validation as the API's, and is shown at its field.
"""

import json
import secrets
import shlex
from typing import Any, cast

import yaml
from django import forms
from django.core.files.uploadedfile import UploadedFile as Uploaded
from django.db.models import QuerySet
from django.http import QueryDict

from accounts.models import User
from accounts.permissions import Act, teams_where
from common import yaml_input
from common.errors import Problem
from jobs import frameworks
from jobs.core import pod_fields
from jobs.core.fields import FIELDS, Field, Type
from jobs.models import Job
from queues.models import Queue
from queues.readable import readable_queues
from workspaces.models import Workspace

RECENT = 20  # earlier workspaces offered
NUMBERS = [
    field for field in FIELDS.values() if field.is_numbers or (field.type is Type.WHOLE and field.name != "gpus")
]
CHOICES = [field for field in FIELDS.values() if field.choices]
POD_TEXTS = [FIELDS[name] for name in pod_fields.NAMES if FIELDS[name].type is Type.TEXT]
POD_PAIRS = ("node_selector", "labels", "annotations")  # given as lines of K=V
SHAPE = ("nodes", "nproc_per_node")  # what every job says
_MORE = {field.name for field in (*NUMBERS, *CHOICES)} - set(SHAPE)

_AT = {
    "env": "env",
    "secrets": "secrets",
    "workspace": "workspace",
    "files": "upload",
    "body": "upload",
    "set": "upload",
    "size_bytes": "upload",
}


def _is_some(text: Any) -> bool:
    """Whether a number was given that is not 0: then the total of GPUs decides on the shape."""
    return bool(str(text or "").strip().strip("0"))


class Unseen(forms.Textarea):
    """Accepts text and never renders it: a secret is in no page, not even in a form that failed."""

    def format_value(self, value: Any) -> str:
        return ""


def _variables(text: str) -> dict[str, str]:
    """Parse K=V lines, skipping empty lines and lines that begin with #. No error repeats a value."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise forms.ValidationError(f"line {number} has no =; write NAME=value, one per line")
        found[name.strip()] = value
    return found


def _number(field: Field) -> forms.CharField:
    """Return the input of a whole number, or of several; what is left empty takes the queue's default."""
    attrs = {"min": field.least, "max": field.most, "placeholder": "" if field.default is None else field.default}
    if field.is_numbers:
        options: dict[str, Any] = {"max_length": 1000, "widget": forms.TextInput({"spellcheck": "false"})}
    else:
        options = {"widget": forms.NumberInput(attrs)}
    return forms.CharField(
        required=field.name in SHAPE, initial=field.default if field.name in SHAPE else None, label=field.label,
        help_text=field.help, **options,
    )  # fmt: skip


def _choice(field: Field) -> forms.ChoiceField:
    """Return the input of a text with few values; what is left open takes the queue's default."""
    choices = [("", "as the queue says"), *((one, one) for one in field.choices)]
    return forms.ChoiceField(required=False, choices=choices, label=field.label, help_text=field.help)


def _own(field: Field) -> forms.CharField:
    """Return the input of a framework's own field; a command is given as a line of text."""
    if field.type is Type.WHOLE:
        return _number(field)
    rows = {"rows": 2, "spellcheck": "false"}
    widget = forms.Textarea(attrs=rows) if field.type is Type.LIST else forms.TextInput(attrs={"spellcheck": "false"})
    return forms.CharField(
        required=False, max_length=70_000, strip=False, label=field.label, help_text=field.help, widget=widget
    )


def _lines(rows: int = 1) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "spellcheck": "false"})


FOLDED = ("env", "secrets", "team_secrets", "volumes", "notify")


class SubmitForm(forms.Form):
    """Fields of whole numbers, and those of the chosen framework, come from the table of a job's fields."""

    CODE = [("upload", "Upload files"), ("earlier", "Earlier code"), ("none", "No code")]

    queue = forms.ModelChoiceField(Queue.objects.none(), empty_label=None)
    name = forms.CharField(required=False, max_length=200)
    code = forms.ChoiceField(choices=CODE, initial="upload", widget=forms.RadioSelect)
    upload = forms.Field(required=False)  # a field to attach errors to; `uploads` reads the files themselves
    paths = forms.CharField(required=False, widget=forms.HiddenInput)
    workspace = forms.ModelChoiceField(Workspace.objects.none(), required=False, empty_label=None)
    command = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "placeholder": "torchrun train.py --epochs 10"}),
        max_length=70_000,
        strip=False,
    )
    framework = forms.ChoiceField(
        required=False,
        choices=[(name, name) for name in sorted(frameworks.REGISTRY)],
        initial=FIELDS["framework"].default,
    )
    env = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}))
    secrets = forms.CharField(
        required=False, widget=Unseen(attrs={"rows": 2, "spellcheck": "false", "autocomplete": "off"})
    )
    volumes = forms.CharField(
        required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 1, "spellcheck": "false"})
    )
    team_secrets = forms.CharField(required=False, max_length=10_000, widget=forms.TextInput({"spellcheck": "false"}))
    notify = forms.CharField(required=False, max_length=1000, widget=forms.TextInput({"spellcheck": "false"}))
    node_selector = forms.CharField(required=False, max_length=20_000, widget=_lines())
    tolerations = forms.CharField(required=False, max_length=20_000, widget=_lines())
    labels = forms.CharField(required=False, max_length=20_000, widget=_lines())
    annotations = forms.CharField(required=False, max_length=200_000, widget=_lines())
    roles = forms.CharField(required=False, max_length=20_000, widget=_lines(3), strip=False)
    gpus = forms.CharField(required=False, widget=forms.NumberInput({"min": 0, "max": FIELDS["gpus"].most}))
    idempotency_key = forms.CharField(max_length=80, widget=forms.HiddenInput)

    def __init__(self, *args: Any, user: User, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.queues = submittable_queues(user)
        self.workspaces = (
            Workspace.objects.filter(team__in=self.queues.values("team")).exclude(manifest="").order_by("-id")
        )
        self.fields |= {field.name: _number(field) for field in NUMBERS}
        self.fields |= {field.name: _choice(field) for field in CHOICES}
        self.fields |= {field.name: _own(field) for field in POD_TEXTS}
        chosen = str(self["framework"].value())
        self.own_fields = list(frameworks.OPTIONS.get(chosen, {}).values())
        self.fields |= {field.name: _own(field) for field in self.own_fields}
        self.fields["queue"].queryset = self.queues  # type: ignore[attr-defined]
        self.fields["workspace"].queryset = self.workspaces  # type: ignore[attr-defined]
        for name in SHAPE if _is_some(self["gpus"].value()) else ():
            self.fields[name].required = False
        for field in self.fields.values():
            field.error_messages["required"] = "is missing"

    def own(self) -> list[forms.BoundField]:
        """Return the fields that only jobs of the chosen framework have."""
        return [self[field.name] for field in self.own_fields]

    @property
    def framework_word(self) -> str:
        return str(self["framework"].value())

    def has_own(self) -> bool:
        """Whether the chosen framework's fields are shown unfolded: torchrun's are seldom needed."""
        fields = self.own()
        filled = any(str(field.value()) not in ("", str(None), str(False)) or field.errors for field in fields)
        return filled or self.framework_word != FIELDS["framework"].default

    def frameworks_with_fields(self) -> list[str]:
        return [name for name, own in frameworks.OPTIONS.items() if own]

    def more(self) -> list[forms.BoundField]:
        """Return the numbers and choices that most jobs leave to the queue, in the order of the table."""
        return [self[name] for name in FIELDS if name in _MORE]

    def has_more(self) -> bool:
        """Whether one of the folded fields is wrong, or differs from what most jobs have."""
        if any(field.errors for field in (*self.more(), *(self[name] for name in FOLDED))):
            return True
        usual = ("", str(None))  # left empty, or not given
        changed = (str(field.value()) not in (*usual, str(FIELDS[field.name].default)) for field in self.more())
        return any(self[name].value() for name in FOLDED if name != "secrets") or any(changed)

    def pod_texts(self) -> list[forms.BoundField]:
        return [self[field.name] for field in POD_TEXTS]

    def has_pod(self) -> bool:
        """Whether a field of the pods is given, or wrong."""
        return any(self[name].value() or self[name].errors for name in (*pod_fields.NAMES, "roles"))

    def describe_errors(self) -> None:
        """Focus the first wrong field and describe every wrong one to screen readers."""
        for index, name in enumerate(name for name in self.fields if name in self.errors):
            attrs = self.fields[name].widget.attrs
            attrs.update({"aria-invalid": "true", "aria-describedby": f"error-{name}"})
            if index == 0:
                attrs["autofocus"] = True

    def clean_env(self) -> dict[str, str]:
        return _variables(self.cleaned_data["env"])

    def clean_secrets(self) -> dict[str, str]:
        return _variables(self.cleaned_data["secrets"])

    def clean_node_selector(self) -> dict[str, str]:
        return _variables(self.cleaned_data["node_selector"])

    def clean_labels(self) -> dict[str, str]:
        return _variables(self.cleaned_data["labels"])

    def clean_annotations(self) -> dict[str, str]:
        return _variables(self.cleaned_data["annotations"])

    def clean_tolerations(self) -> list[Any]:
        """Parse taints, and lines with an object, as a repeated job may have them."""
        found: list[Any] = []
        for line in str(self.cleaned_data["tolerations"]).splitlines():
            try:
                found += [yaml_input.parse(line)] if line.lstrip().startswith("{") else line.replace(",", " ").split()
            except ValueError as error:
                raise forms.ValidationError(str(error)) from error
        return found

    def clean_roles(self) -> Any:
        """Parse YAML; what it should be, the table of a job's fields knows."""
        try:
            return yaml_input.parse(self.cleaned_data["roles"]) or {}
        except ValueError as error:
            raise forms.ValidationError(f"{error}; an example: head: {{memory: 16Gi}}") from error

    def clean_volumes(self) -> list[str]:
        return str(self.cleaned_data["volumes"]).replace(",", " ").split()

    def clean_team_secrets(self) -> list[str]:
        return str(self.cleaned_data["team_secrets"]).replace(",", " ").split()

    def clean_notify(self) -> list[str]:
        return str(self.cleaned_data["notify"]).replace(",", " ").split()

    def clean_paths(self) -> list[str]:
        """Parse JSON, because a browser rewrites the line ends of what it sends."""
        try:
            paths = json.loads(self.cleaned_data["paths"] or "[]")
            if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
                "".join(paths).encode()  # raises for lone surrogates, which JSON can encode
                return paths
        except (ValueError, RecursionError):
            pass
        return []

    def sent(self) -> dict[str, Any]:
        """Return what `services.submit` takes. Empty fields are left to the queue's defaults, and wrong ones left out."""
        data = self.cleaned_data
        fields = (*NUMBERS, *CHOICES, *POD_TEXTS, *self.own_fields)
        names = ("name", "command", "framework", "gpus", *(field.name for field in fields))
        left_out = SHAPE if _is_some(data.get("gpus")) else ("gpus",)
        flat = {name: data[name] for name in names if data.get(name) and name not in left_out}
        others = (*FOLDED, *POD_PAIRS, "tolerations", "roles")
        return {**flat, **{name: data[name] for name in others if data.get(name)}}

    def uploads(self) -> "list[tuple[str, Uploaded[Any]]]":
        """Return files with their paths.

        A browser sends file names without folders; upload.js sends the folders separately.
        """
        files, paths = self.files.getlist("upload"), self.cleaned_data.get("paths", [])
        names = paths if len(paths) == len(files) else [file.name or "" for file in files]
        return list(zip(names, files, strict=True))

    def keep(self, stored: Workspace) -> None:
        """Select the stored copy as earlier code, because a browser's file inputs cannot be refilled."""
        data = cast(QueryDict, self.data).copy()
        data["code"], data["workspace"] = "earlier", str(stored.pk)
        self.data = data

    def renew_key(self) -> None:
        """Give the form a new key, so that the next click creates another job.

        Needed if this form has created a job and was changed since (the browser's "back").
        """
        data = cast(QueryDict, self.data).copy()
        data["idempotency_key"] = secrets.token_urlsafe(16)
        self.data = data
        self.add_error(
            None, "This form has already submitted a job and was changed since. Submit it again for another job."
        )

    def field_of(self, problem: Problem) -> str:
        root = problem.field.partition(".")[0]
        return _AT.get(root, root)

    def take(self, problem: Problem) -> None:
        """Attach a service's problem to the field it is about."""
        _, _, rest = problem.field.partition(".")
        field = self.field_of(problem)
        message = f"{rest} {problem.message}" if rest else problem.message
        self.add_error(field if field in self.fields else None, message)


def submittable_queues(user: User) -> QuerySet[Queue]:
    """Return the queues of the teams in which this user may submit."""
    queues = readable_queues(user).order_by("name")
    teams = teams_where(user, Act.SUBMIT)
    return queues if teams is None else queues.filter(team_id__in=teams)


def from_job(job: Job) -> dict[str, Any]:
    """Return initial values that repeat a job, without its name."""
    return {
        "queue": job.queue_id,
        "code": "earlier" if job.workspace_id else "none",
        "workspace": job.workspace_id,
        "command": shlex.join(job.command),
        "framework": job.spec["framework"],
        **{
            name: shlex.join(value) if isinstance(value, list) else value
            for name, value in job.spec.get("options", {}).items()
        },
        **{
            field.name: ", ".join(map(str, value)) if field.is_numbers else value
            for field in NUMBERS
            if (value := job.spec.get(field.name)) is not None
        },
        "volumes": " ".join(job.spec.get("volumes", [])),
        "team_secrets": " ".join(job.spec.get("team_secrets", [])),
        "notify": " ".join(job.spec.get("notify", [])),
        **{
            name: "\n".join(f"{key}={value}" for key, value in job.spec.get(name, {}).items())
            for name in ("env", *POD_PAIRS)
        },
        **{field.name: job.spec.get(field.name, "") for field in POD_TEXTS},
        "tolerations": "\n".join(map(pod_fields.written, job.spec.get("tolerations", []))),
        "roles": yaml.safe_dump(job.spec["roles"], sort_keys=False) if job.spec.get("roles") else "",
    }

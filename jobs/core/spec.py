"""A job's description: parsed once, frozen, queue defaults merged in. Pure.

Users send a flat JSON object; the rest of Muster reads a JobSpec. Every problem names the field, the value and the
remedy, and all problems are reported at once.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from common.errors import InvalidSpec, Problem

from . import pod_fields, restarts, volumes
from .fields import FIELDS, Field, Type
from .plan import distribute
from .shell_words import MAX_COMMAND_BYTES, is_too_long, needs_shell, quoted_whole, split

MAX_VARIABLES = 500
MAX_VARIABLE_BYTES = 64 * 1024
NAME = re.compile(
    r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z"
)  # fits a DNS label with the attempt, role and index behind it
ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
_CODES = ("retry_on", "never_retry_on")  # fields with exit codes
_LATER = (*_CODES, "notify", "tolerations", "team_secrets")  # lists that are stored only where they are given
MAX_WEBHOOKS = 20


@dataclass(frozen=True)
class JobSpec:
    """What to run. Durations in seconds."""

    command: tuple[str, ...]
    framework: str = "torchrun"
    name: str = ""  # empty: Muster makes one
    nodes: int = 1  # for an elastic job the maximum
    min_nodes: int | None = None  # the fewest nodes an elastic job continues with; None: it is not elastic
    nproc_per_node: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names of further variables; their values are stored separately, and never shown
    team_secrets: tuple[str, ...] = ()  # names of secrets of its team: "name", or "name:/path" where it has files
    volumes: tuple[str, ...] = ()  # "name", or "name:/path" if the cluster mounts
    # Of its pods, in all roles; what each means: pod_fields.py.
    image: str = ""
    cpu: str = ""
    memory: str = ""
    shm: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""
    service_account: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    roles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the same of single roles, over these
    max_retries: int = 0
    retry_on: tuple[int, ...] = ()  # exit codes after which alone it is retried; empty: after any
    never_retry_on: tuple[int, ...] = ()
    notify: tuple[str, ...] = ()  # names of webhooks of its team
    priority: int = 0
    grace_seconds: int = 30
    start_timeout_seconds: int = 300
    deadline_seconds: int | None = None
    from_job: int | None = None  # whose checkpoints it can read
    from_step: int | None = None
    ttl_seconds: int | None = None  # from its end to its removal; None: it stays
    ignore_printed: int = 0  # 1: no metrics are taken from lines
    headless_service: int = 0  # 1: a headless Service of the job's own name selects its pods
    options: Mapping[str, Any] = field(default_factory=dict)  # of its framework: what was given, by its FIELDS

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes. Later fields only where they are given: the release before does not know them."""
        lists = {name: list(getattr(self, name)) for name in _LATER}
        pods = {name: getattr(self, name) for name in (*pod_fields.NAMES, "roles")}
        later = ("ignore_printed", "headless_service", "ttl_seconds", "from_job", "from_step")
        numbers = {name: getattr(self, name) for name in later}
        optional = {"options": dict(self.options), **numbers, **pods, **lists}
        return {
            **{name: value for name, value in asdict(self).items() if name not in optional},
            **{name: value for name, value in optional.items() if value},
            "command": list(self.command),
            "env": dict(self.env),
            "secrets": list(self.secrets),
            "volumes": list(self.volumes),
        }

    def unchanged_input(self) -> dict[str, Any]:
        """Return the fields as a user sends them, a framework's own among the others; secrets by name only."""
        return {**replace(self, options={}).to_json(), **self.options}

    @property
    def pod(self) -> dict[str, Any]:
        """Return the fields of its pods that are given for all roles."""
        return {name: value for name in pod_fields.NAMES if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "JobSpec":
        """Return the frozen spec as stored; `parse` is for user input."""
        lists = {name: tuple(data.get(name, ())) for name in ("command", "secrets", "volumes", *_LATER)}
        return cls(**{**data, **lists})


def parse(
    sent: Mapping[str, Any],
    *,
    gpus_per_node: int = 0,
    defaults: Mapping[str, Any] | None = None,
    is_file: Callable[[str], bool] = lambda path: False,
    options: Mapping[str, Mapping[str, Field]] = MappingProxyType({}),
) -> JobSpec:
    """Return a JobSpec from user input over the queue's defaults. Raises InvalidSpec with every problem found.

    `options`: each framework's own fields by name (`frameworks.OPTIONS`).

    `gpus` (a total) may be given in place of `nodes` and `nproc_per_node`; it is split by the queue's `gpus_per_node`.
    `is_file`: whether the job's code has a file of this path.
    """
    asked = {name: value for name, value in sent.items() if value is not None}
    framework = {**(defaults or {}), **asked}.get("framework", FIELDS["framework"].default)
    own = options.get(framework, {}) if isinstance(framework, str) else {}
    others = {name for theirs in options.values() for name in theirs} - set(own)
    # A queue's default of one framework's field holds for jobs of that framework.
    data = {**{name: value for name, value in (defaults or {}).items() if name not in others}, **asked}
    problems = [_unknown(name, data[name], options) for name in sorted(set(data) - set(FIELDS) - set(own))]
    values: dict[str, Any] = {}
    for one in FIELDS.values():
        if one.type is Type.WHOLE and one.name in data:
            _take_count(one, data[one.name], values, problems=problems)
    if values.get("from_step") is not None and values.get("from_job") is None:
        problems.append(Problem("from_step", values["from_step"], "needs from_job, the job that has this step; set it"))
    _take_retries((defaults or {}, asked), values, problems)
    _take_gpus(gpus_per_node, values, problems)
    _take_command(data.get("command"), values, problems, is_file=is_file)
    _take_codes(data, values, problems, sent=sent)
    values["env"] = _variables("env", data.get("env", {}), problems)
    secrets = _variables("secrets", data.get("secrets", {}), problems)
    _refuse_doubled(values["env"], secrets, problems)
    values["secrets"] = tuple(sorted(secrets))
    values["volumes"] = volumes.parse(data.get("volumes", ()), problems)
    values["team_secrets"] = _team_secrets(defaults or {}, asked, problems)
    volumes.refuse_common_paths(values["volumes"], values["team_secrets"], problems, field="team_secrets")
    below, roles_below = (defaults or {}), pod_fields.parse_roles((defaults or {}).get("roles"), problems)
    values |= pod_fields.over(pod_fields.parse(below, problems), pod_fields.parse(asked, problems), problems)
    values["tolerations"] = tuple(values.get("tolerations", ()))
    values["roles"] = pod_fields.roles_over(roles_below, pod_fields.parse_roles(asked.get("roles"), problems), problems)
    _take_name(data.get("name", ""), values, problems)
    values["notify"] = _webhooks(data.get("notify", ()), problems)
    values["framework"] = framework
    values["options"] = {
        name: value for name in own if name in data if (value := _option(own[name], data[name], problems)) is not None
    }
    if problems:
        raise InvalidSpec(*problems)
    return JobSpec(**values)


def _unknown(name: str, value: Any, options: Mapping[str, Mapping[str, Field]]) -> Problem:
    theirs = [framework for framework, own in sorted(options.items()) if name in own]
    if theirs:
        every = " and ".join(theirs)
        return Problem(name, value, f"is a field of {every} jobs only; set framework={theirs[0]}, or remove it")
    return Problem(name, value, f"is not a field of a job; known are {', '.join(sorted(FIELDS))}")


def _option(field: Field, value: Any, problems: list[Problem]) -> Any:
    """Return the value of a framework's own field; None if it is wrong, which `problems` then say."""
    if field.type is Type.WHOLE:
        return _count(field, value, problems)
    if field.type is Type.LIST:
        return _words(field.name, value.split() if field.is_plain and isinstance(value, str) else value, problems)
    if not isinstance(value, str) or "\0" in value or (field.pattern and not re.fullmatch(field.pattern, value)):
        problems.append(Problem(field.name, value, f"is not understood; {field.remedy}"))
        return None
    return value


def _take_count(field: Field, value: Any, values: dict[str, Any], *, problems: list[Problem]) -> None:
    if (number := _count(field, value, problems)) is not None:
        values[field.name] = number


def _count(field: Field, value: Any, problems: list[Problem]) -> int | None:
    number = _whole(value)
    if number is None:
        problems.append(Problem(field.name, value, f"must be a whole number, not {value!r}; {field.remedy}"))
    elif field.least is not None and field.most is not None and not field.least <= number <= field.most:
        words = f"must be from {field.least} to {field.most}, not {number}; {field.remedy}"
        problems.append(Problem(field.name, value, words))
    else:
        return number
    return None


def _whole(value: Any) -> int | None:
    """Return an integer from JSON or from a form; booleans and fractions are not counts."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        return int(value)
    return None


def _take_retries(layers: Iterable[Mapping[str, Any]], values: dict[str, Any], problems: list[Problem]) -> None:
    """Translate `restart_policy` into retries. What a later layer says in either way replaces both of an earlier one."""
    found = 0
    for layer in layers:
        given, policy = _whole(layer.get("max_retries")), layer.get("restart_policy")
        try:
            found = restarts.retries(policy, given=given, below=found) if policy else found if given is None else given
        except InvalidSpec as error:
            problems.extend(error.problems)
    values["max_retries"] = found


def _take_codes(
    data: Mapping[str, Any], values: dict[str, Any], problems: list[Problem], *, sent: Mapping[str, Any]
) -> None:
    """Take the exit codes that decide about retries, and refuse those of the user that could never decide anything."""
    for name in _CODES:
        if data.get(name) not in (None, "", []) and (numbers := _numbers(FIELDS[name], data[name], problems)):
            values[name] = numbers
            if sent.get(name) is not None and not values.get("max_retries", 0):
                problems.append(
                    Problem(name, data[name], "needs max_retries of at least 1; set it, or remove this field")
                )
    only, never = (set(values.get(name, ())) for name in _CODES)
    if both := sorted(only & never):
        problems.append(Problem("never_retry_on", both, "are in retry_on, too; remove them from one of the two"))


def _numbers(field: Field, value: Any, problems: list[Problem]) -> tuple[int, ...]:
    """Return the whole numbers of a list, or of one text, in order and without repetitions."""
    items = value.replace(",", " ").split() if isinstance(value, str) else value
    if isinstance(items, int):
        items = [items]
    if not isinstance(items, list | tuple):
        problems.append(Problem(field.name, value, f"must be a list of whole numbers; {field.remedy}"))
        return ()
    if len(items) > (field.most or MAX_VARIABLES):
        problems.append(Problem(field.name, len(items), f"has at most {field.most} numbers; {field.remedy}"))
        return ()
    found = [_count(field, item, problems) for item in items]
    return tuple(sorted({number for number in found if number is not None}))


def _take_gpus(per_node: int, values: dict[str, Any], problems: list[Problem]) -> None:
    """Replace a total by nodes and processes on each."""
    total = values.pop("gpus", None)
    if total is None or (total == 0 and "nproc_per_node" in values):  # a CPU job that gives its own shape
        return
    try:
        split = distribute(total, per_node, values.get("nodes", 1))
    except InvalidSpec as error:
        problems.extend(error.problems)
        return
    for name, count in (("nodes", split.nodes), ("nproc_per_node", split.per_node)):
        asked = values.get(name, count)
        if asked != count:
            problems.append(Problem("gpus", total, f"means {name} {count}, but {name} is {asked}; omit one of them"))
        values[name] = count


def _take_command(
    value: Any, values: dict[str, Any], problems: list[Problem], *, is_file: Callable[[str], bool]
) -> None:
    whole = None if is_too_long(value) else quoted_whole(value)
    if words := _words("command", whole if whole and not is_file(whole) else value, problems):
        values["command"] = tuple(words)


def _words(field: str, value: Any, problems: list[Problem]) -> list[str] | None:
    """Return a command's words; None if it is wrong."""
    if is_too_long(value):
        problems.append(Problem(field, "", f"is longer than {MAX_COMMAND_BYTES} bytes; put it into a script"))
        return None
    if isinstance(value, str):
        if found := needs_shell(value):
            problems.append(Problem(field, value, found))
            return None
        try:
            value = split(value)
        except ValueError as error:
            problems.append(Problem(field, value, f"cannot be split into words: {error}; check its quotes"))
            return None
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        problems.append(Problem(field, value, "is missing; give a list of words such as torchrun train.py"))
    elif any("\0" in word for word in value):
        problems.append(Problem(field, value, "contains a NUL character, which no program can receive"))
    elif not value[0].strip():
        problems.append(Problem(field, value, "begins with an empty word; the first word is the program"))
    else:
        return list(value)
    return None


def _variables(field: str, value: Any, problems: list[Problem]) -> dict[str, str]:
    """Return environment variables from a mapping. A problem never includes a secret's value."""
    is_secret = field == "secrets"
    if not isinstance(value, Mapping):
        shown = None if is_secret else value
        problems.append(Problem(field, shown, 'must map names to text, such as {"LR": "0.1"}'))
        return {}
    if len(value) > MAX_VARIABLES:  # half a million single problems would make no useful answer
        problems.append(Problem(field, len(value), f"has at most {MAX_VARIABLES} variables; use a file"))
        return {}
    for name, text in value.items():
        shown = None if is_secret else text
        if not isinstance(name, str) or not ENV_NAME.match(name):
            problems.append(Problem(f"{field}.{name}", shown, "is not a variable name; use letters, digits and _"))
        elif not isinstance(text, str) or "\0" in text:
            problems.append(Problem(f"{field}.{name}", shown, "must be text without NUL; quote numbers"))
        elif len(text.encode(errors="surrogateescape")) > MAX_VARIABLE_BYTES:
            problems.append(Problem(f"{field}.{name}", None, f"has at most {MAX_VARIABLE_BYTES} bytes; use a file"))
        elif name.startswith("MUSTER_"):
            problems.append(Problem(f"{field}.{name}", shown, "is set by Muster; choose another name"))
    return dict(value)


def _refuse_doubled(env: Mapping[str, str], secrets: Mapping[str, str], problems: list[Problem]) -> None:
    problems.extend(
        Problem(f"secrets.{name}", None, "is also in env; keep one of them") for name in sorted(set(env) & set(secrets))
    )


def _team_secrets(below: Mapping[str, Any], asked: Mapping[str, Any], problems: list[Problem]) -> tuple[str, ...]:
    """Return names of the team's secrets: those of the queue, and those of the job over them."""
    layers = []
    for data in (below, asked):
        value = data.get("team_secrets", ())
        value = value.replace(",", " ").split() if isinstance(value, str) else value
        layers.append(volumes.parse(value, problems, field="team_secrets", example="wandb"))
    return volumes.over(*layers)


def _webhooks(value: Any, problems: list[Problem]) -> tuple[str, ...]:
    """Return the names of webhooks of a list, or of one text, without repetitions. Whether they exist, services check."""
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        problems.append(Problem("notify", value, 'must be a list of names of webhooks, such as ["chat"]'))
        return ()
    if len(names) > MAX_WEBHOOKS:
        problems.append(Problem("notify", len(names), f"has at most {MAX_WEBHOOKS} names; remove some"))
        return ()
    wrong = [one for one in names if not NAME.match(one)]
    problems += [Problem("notify", one, "is not the name of a webhook; use a-z, 0-9 and -") for one in wrong]
    return tuple(dict.fromkeys(names))


def _take_name(value: Any, values: dict[str, Any], problems: list[Problem]) -> None:
    if value and (not isinstance(value, str) or not NAME.match(value)):
        problems.append(
            Problem("name", value, "must be 1 to 40 of a-z, 0-9 and -, not beginning or ending with -; or omit it")
        )
        return
    values["name"] = value or ""

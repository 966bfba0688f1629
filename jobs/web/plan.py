"""What a submission would start, in words: the plan on the submit page."""

from dataclasses import dataclass

from jobs.core.plan import Endpoint, First, FirstRank, Here, Host, Index, Launch, Port, Role, Value
from jobs.services import Preview
from queues.resources import describe

MOST_COMMAND = 300  # characters of a command


@dataclass(frozen=True)
class RoleRow:
    """One role as displayed: its replicas, the ranks in them, what each takes and runs."""

    name: str
    replicas: int
    ranks: str
    takes: str
    command: str
    variables: list[tuple[str, str]]  # how its replicas find the others


def rows(preview: Preview) -> list[RoleRow]:
    return [_row(role, resource=preview.queue.resource) for role in preview.roles]


def _row(role: Role, *, resource: str) -> RoleRow:
    takes = [describe({resource: role.slots})] if role.slots else []
    takes += [f"{name} {amount}" for name, amount in role.resources.items()]
    words = " ".join(role.command)
    return RoleRow(
        role.name, role.replicas, _ranks(role), ", ".join(takes), words if len(words) <= MOST_COMMAND else f"{words[:MOST_COMMAND]} …",
        [(name, described(value)) for name, value in sorted(role.env.items())],
    )  # fmt: skip


def _ranks(role: Role) -> str:
    last = role.first_rank + role.replicas * role.processes - 1
    if last < role.first_rank:
        return "none"
    return f"{role.first_rank}" if last == role.first_rank else f"{role.first_rank} to {last}"


def described(value: Value) -> str:
    """Return a variable's value, in words where it is known only once a replica is placed."""
    match value:
        case Host(role, index):
            return f"address of {role}-{index}"
        case Port(_, number):
            return f"{number}, on one machine a free port"
        case Endpoint(host, port):
            return f"address of {host.role}-{host.index}, port {described(port)}"
        case Index(first):
            return f"its number in its role, from {first}"
        case FirstRank():
            return "its rank"
        case Here():
            return "its own address"
        case Launch():
            return "a name of this attempt"
        case First(first, rest):
            return f"{first} in replica 0, {rest} in the others"
        case _:
            return str(value)

"""Why a job waits: a code for programs, the numbers behind it, and one sentence for people with the way out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from common.text import listed

from ..resources import Resources, describe


class Code(StrEnum):
    ON_HOLD = "on_hold"  # an administrator closed the queue
    BUDGET_SPENT = "budget_spent"  # the queue has used its hours of this month
    EXCEEDS_MAXIMUM = "exceeds_maximum"  # larger than the queue's whole quota: it never starts
    EXCEEDS_USER_LIMIT = "exceeds_user_limit"  # larger than what one user may hold: it never starts
    USER_LIMIT = "user_limit"  # its user's other jobs hold what one user may
    MACHINE_TOO_SMALL = "machine_too_small"  # larger than the machine of a local cluster
    NAME_IN_USE = "name_in_use"  # another running job has a name that it needs
    BEHIND = "behind"  # others of its queue come first
    WAITING_FOR_QUOTA = "waiting_for_quota"
    PREEMPTING = "preempting"  # running jobs were asked to give back what it needs
    MACHINE_BUSY = "machine_busy"  # the machine of a local cluster has no memory left
    NO_NODE_SHAPE = "no_node_shape"  # the nodes that take pods now would not do, even if nothing ran on them
    NO_NODES = "no_nodes"  # less is free on nodes than it needs
    FRAGMENTED = "fragmented"  # enough is free, and not in such pieces
    NO_PLACE = "no_place"  # Kubernetes just found no node for pods like its own
    RESERVED_FOR = "reserved_for"  # it would fit, and delay the job that is first


@dataclass(frozen=True)
class Reason:
    """`needs`, `free` and `quota` are amounts; `job` is the one that is first or holds the name; `ahead` how many wait before.

    For a limit of users `quota` is what one user may hold, and `free` what is left of that.

    Where a queue may borrow, `free` is how much more it may take now, and `most` how much it may hold in all.

    Of nodes: `replicas` of `each` GPUs need room, for `room` of them there is, and the most that one node has is `largest`.
    `nearest`: as how many replicas of how many GPUs the same amount would fit now.
    """

    code: Code
    queue: str
    needs: Resources = field(default_factory=dict)
    free: Resources = field(default_factory=dict)
    quota: Resources = field(default_factory=dict)
    ahead: int = 0
    job: int = 0
    name: str = ""
    slots: int = 0  # of the machine
    at: float | None = None  # until when the free quota is reserved, or the queue waits, if that is known
    jobs: tuple[int, ...] = ()  # that give their quota back for it
    most: Resources = field(default_factory=dict)  # with what the queue may borrow
    lent: int = 0  # of what the queue or its team does not use, how much others use
    replicas: int = 0
    each: int = 0
    room: int = 0
    largest: int = 0
    nearest: tuple[int, int] | None = None

    @property
    def numbers(self) -> dict[str, Mapping[str, int] | int | str | float | list[int]]:
        """What is known, for programs."""
        known: dict[str, Mapping[str, int] | int | str | float | list[int]] = {
            "needs": self.needs, "free": self.free, "quota": self.quota, "ahead": self.ahead, "job": self.job,
            "name": self.name, "slots": self.slots, "at": self.at or 0, "jobs": list(self.jobs), "most": self.most,
            "lent": self.lent, "replicas": self.replicas, "each": self.each, "room": self.room, "largest": self.largest,
            "nearest": list(self.nearest or ()),
        }  # fmt: skip
        return {name: value for name, value in known.items() if value}


NAMED = 3  # jobs in one sentence


def words(reason: Reason, *, is_lasting: bool = False) -> str:
    """Return the sentence, without its full stop.

    `is_lasting`: without what changes while the job only waits its turn, so that it can be stored.
    """
    needs = f"needs {describe(reason.needs)}"
    match reason.code:
        case Code.ON_HOLD:
            return f"queue {reason.queue} is closed; an administrator can open it"
        case Code.BUDGET_SPENT:
            when = f" on {datetime.fromtimestamp(reason.at, UTC):%-d %B}" if reason.at else ""
            return (
                f"queue {reason.queue} has used its hours of this month; starts when the next month begins{when}, or when an "
                "administrator raises its budget"
            )
        case Code.EXCEEDS_USER_LIMIT:
            return (
                f"{needs}, but one user may hold {describe(reason.quota)} in queue {reason.queue}; submit a smaller job, or ask "
                "an administrator to raise the limit"
            )
        case Code.USER_LIMIT if is_lasting:
            return f"{needs}; its user holds too much of the {describe(reason.quota)} that one user may in queue {reason.queue}"
        case Code.USER_LIMIT:
            return (
                f"{needs}; one user may hold {describe(reason.quota)} in queue {reason.queue}, of which {describe(reason.free)} "
                f"{'is' if sum(reason.free.values()) == 1 else 'are'} left; starts when own jobs have ended"
            )
        case Code.EXCEEDS_MAXIMUM:
            return (
                f"{needs}, but queue {reason.queue} has {describe(reason.most or reason.quota)} in all"
                f"{' with what it may borrow' if reason.most else ''}; submit a smaller job, or ask for more quota"
            )
        case Code.MACHINE_TOO_SMALL:
            return (
                f"{needs}, but this machine has memory for {reason.slots} in all; submit a smaller job, or ask for a larger "
                "machine"
            )
        case Code.NAME_IN_USE:
            return (
                f"{reason.name} is in use by job {reason.job}, and would be confused with it; starts when that job has "
                "ended, or resubmit it with another name"
            )
        case Code.BEHIND if is_lasting:
            return f"behind other jobs in queue {reason.queue}"
        case Code.BEHIND:
            return f"{reason.ahead} ahead in queue {reason.queue}; job {reason.job} is first"
        case Code.WAITING_FOR_QUOTA if is_lasting:
            return f"{needs}; queue {reason.queue} has less free of {describe(reason.quota)}"
        case Code.WAITING_FOR_QUOTA if reason.most:
            lent = f", and others have borrowed {reason.lent} that are its own or its team's" if reason.lent else ""
            return (
                f"{needs}; queue {reason.queue} may take {describe(reason.free)} more now, of {describe(reason.most)} with "
                f"what it may borrow{lent}"
            )
        case Code.PREEMPTING:
            one = len(reason.jobs) == 1
            whose = f"job{'' if one else 's'} {listed([str(job) for job in reason.jobs], NAMED)}"
            return f"{needs}, which {whose} {'was' if one else 'were'} asked to give back; starts when {'it has' if one else 'they have'} ended"
        case Code.WAITING_FOR_QUOTA:
            return f"{needs}; queue {reason.queue} has {describe(reason.free)} free of {describe(reason.quota)}"
        case Code.MACHINE_BUSY if reason.slots:
            left = next(iter(reason.free.values()), 0)
            return f"{needs}; {left} of the {reason.slots} that this machine has memory for are free"
        case Code.MACHINE_BUSY:
            return f"{needs}; this machine has free memory for {next(iter(reason.free.values()), 0)} more now"
        case Code.NO_NODE_SHAPE | Code.NO_NODES | Code.FRAGMENTED:
            return _of_nodes(reason, is_lasting=is_lasting)
        case Code.NO_PLACE:
            return (
                f"Kubernetes finds no node for the pods of job {reason.job}, which ask for the same; starts when that job has "
                "its nodes, or has given up its start"
            )
        case Code.RESERVED_FOR if reason.replicas:
            return f"{needs}; the nodes that have room are kept for job {reason.job}, for which other jobs leave"
        case Code.RESERVED_FOR:
            return (
                f"{needs}, which is free in queue {reason.queue} and kept for job {reason.job}, which is first; with a "
                "deadline that ends before that job can start it would go ahead"
            )


def _of_nodes(reason: Reason, *, is_lasting: bool) -> str:
    """Return why the nodes of its cluster have no room for a job."""
    (resource,) = reason.needs
    each = describe({resource: reason.each})
    needs = f"needs {f'{reason.replicas} nodes' if reason.replicas > 1 else 'a node'} with {each}"
    if reason.each <= reason.largest // 2:  # several fit on one node
        needs = f"needs room for {reason.replicas} x {each}, each on one node"
    if reason.code is Code.NO_NODE_SHAPE:
        there = "the largest that takes pods has " + str(reason.largest)
        if reason.each <= reason.largest:
            there = f"those that take pods have room for {reason.room} in all"
        return f"{needs}, and {there}; starts when more nodes take pods, or submit a smaller job"
    if is_lasting:
        return f"{needs}, and the nodes have no room for that"
    free = describe(reason.free)
    if reason.code is Code.NO_NODES:
        return f"{needs}, and the nodes that take pods have {free} free in all"
    nearest = f"; {reason.nearest[0]} x {reason.nearest[1]} would fit now" if reason.nearest else ""
    room = f"room for {reason.room} of these" if reason.room else "no such room"
    return f"{needs}; {free} are free, at most {reason.largest} on one node, which is {room}{nearest}"

"""Monarch's own errors: what ended an actor's process, in one line, and of which kind it is. Pure.

The texts are those of torchmonarch 0.6: `ActorError` quotes the traceback of an endpoint that raised, `SupervisionError`
says how an actor or its process ended, and interrupts the script besides.
"""

import re

from jobs.core import exits
from jobs.core.failure_kinds import Certainty, Classification, Kind

from .tracebacks import Raised, carries_actors_end

# <root>.<__main__.Worker workers{'hosts': 1/2, 'gpus': 0/1}>: the class, the name it was spawned with, and its place.
_ACTOR = re.compile(
    r"^.{0,200}?\bThe actor (?:\S{1,100}\.)?<?(?:\S{1,150} )?(\S{1,100}?)\{([^}\n]{1,200})\}", re.DOTALL
)
_EXITED = re.compile(r"the process this actor was running on exited with non-zero code (\d{1,4})")
_KILLED = re.compile(r"the process this actor was running on failed: Killed\(sig=(\d{1,3})")


def kind(raised: Raised) -> Classification | None:
    if not carries_actors_end(raised):
        return None
    if _KILLED.search(raised.message):
        return Kind.SIGNAL, Certainty.LIKELY
    return (Kind.USER_CODE, Certainty.LIKELY) if _EXITED.search(raised.message) else None


def words(raised: Raised) -> str:
    """Return which actor's process ended and how; empty if the first line of the error says it all."""
    if not carries_actors_end(raised):
        return ""
    killed, exited = _KILLED.search(raised.message), _EXITED.search(raised.message)
    if not killed and not exited:
        return ""
    ending = exits.explained(None, int(killed[1])) if killed else exits.explained(int(exited[1]) if exited else 1, None)
    found = _ACTOR.match(raised.message)
    whose = f"of the actor {found[1]} ({found[2].replace(chr(39), '').replace(':', '')})" if found else "of an actor"
    return f"{raised.short_name}: the process {whose} {ending}"

"""Answer an agent's batch: one function from its bytes to an answer."""

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, DataError, IntegrityError, connection

from common.errors import InvalidInput, NotAllowed
from common.telemetry import measures
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import parse
from jobs.logs.storage import NoRoom

from . import apply

log = logging.getLogger(__name__)

RETRY_SECONDS = 2
NO_ROOM_SECONDS = 10
WARN_EVERY_SECONDS = 600.0  # per message, however many agents cause it
_warned: dict[str, float] = {}


@dataclass(frozen=True)
class AgentAnswer:
    status: int
    content: dict[str, Any]
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def refused(status: int, title: str, *, retry_after: int = 0, **more: Any) -> AgentAnswer:
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return AgentAnswer(status, {"title": title, "status": status, **more}, "application/problem+json", headers)


def answer(identity: AgentIdentity, body: bytes) -> AgentAnswer:
    """Apply a batch. Every error has an answer: without one an agent retries for ever."""
    try:
        batch = parse(body)
        measures.lag.observe(max(0.0, time.time() - batch.sent_at))
        ack, commands = apply.apply_batch(identity=identity, batch=batch)
        return AgentAnswer(200, {"ack": ack, "time": time.time(), "commands": commands})
    except NotAllowed as error:
        return refused(403, str(error))
    except apply.NothingHere as error:
        _warn_once(str(error))
        return refused(503, str(error), retry_after=NO_ROOM_SECONDS)
    except NoRoom as error:
        _warn_once(str(error))
        return refused(507, str(error), retry_after=NO_ROOM_SECONDS)
    except InvalidInput as error:
        _warn_once(f"a batch of {identity.run} {identity.role}-{identity.index} is wrong: {error}"[:300])
        return refused(400, str(error), errors=[{"field": one.field, "message": one.message} for one in error.problems])
    except (DataError, IntegrityError) as error:  # should have been caught before; the batch can never be applied
        log.error("a batch of %s fits in no row: %s", identity.run, error)
        return refused(400, "the batch has a value that no row can hold")
    except DatabaseError as error:
        log.warning("a batch of %s was not taken: %s", identity.run, error)
        return refused(503, "the database does not answer", retry_after=RETRY_SECONDS)
    except Exception:  # outermost handler of its thread
        log.exception("a batch of %s was not taken", identity.run)
        return refused(500, "the control plane failed; the batch may come again", retry_after=RETRY_SECONDS)
    finally:
        if not connection.in_atomic_block:
            connection.close()  # back to the pool


def _warn_once(text: str) -> None:
    now = time.monotonic()
    if now - _warned.get(text, -WARN_EVERY_SECONDS) < WARN_EVERY_SECONDS:
        return
    if len(_warned) > 1000:
        _warned.clear()
    _warned[text] = now
    log.warning("%s", text)

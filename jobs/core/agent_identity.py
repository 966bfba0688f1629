"""The identity of an agent: one replica of one attempt, in one incarnation. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AgentIdentity:
    job: int
    run: str
    attempt: int
    role: str
    index: int
    incarnation: int = 0

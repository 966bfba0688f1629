"""How full a volume is, as an agent of a replica that mounts it says. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """Sizes in bytes; `written_at`: when something in its top folder was last written, in seconds since the epoch."""

    total: int
    free: int
    written_at: float

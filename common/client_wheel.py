"""The client as a wheel, made from the copy that this server runs beside, so that client and server always fit.

`pip install ADDRESS/client/muster_client-0.1.0-py3-none-any.whl`, or `pip install --find-links ADDRESS/client/ muster-client`.
"""

import hashlib
import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flit_core.wheel import WheelBuilder

SOURCE = Path(__file__).resolve().parents[1] / "client"
# Of every file inside: two web processes answer with the same bytes, whenever they were installed.
MADE_AT = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    name: str  # of the file; pip reads version and compatibility from it
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@lru_cache(1)
def wheel() -> Wheel:
    """Build it, once per process: a tenth of a second."""
    data = io.BytesIO()
    builder = WheelBuilder.from_ini_path(SOURCE / "pyproject.toml", data)
    builder.source_time_stamp = MADE_AT
    builder.build()
    return Wheel(builder.wheel_filename, data.getvalue())

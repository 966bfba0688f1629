"""The base layer: no domain logic, imports none of the other packages.

redis-py imports OpenTelemetry's metrics wherever they are installed, 4 MB and 50 ms for each process, for figures that
Muster does not ask it for. Imported from here on they are missing, until trace_export.py needs them.
"""

import sys

HIDDEN = ("opentelemetry.sdk.metrics", "opentelemetry.metrics")

for _name in HIDDEN:
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]  # None stands for "cannot be imported" (importlib)

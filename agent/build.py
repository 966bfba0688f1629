"""Build agent.pyz: one file, the same bytes for the same sources, so that its hash can identify it.

`python -m agent.build [TARGET]`
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from pathlib import Path

# Not `agent`: the file is on every rank's PYTHONPATH and must not hide a user's package of that name.
PACKAGE = "_muster_agent"
SHEBANG = b"#!/usr/bin/env python3\n"
ENTRY = f"import sys\nfrom {PACKAGE}.__main__ import main\nsys.exit(main())\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can represent
NOT_IN_IT = ("build.py", "pod_entry.py")  # the second is a separate file in a pod
HERE = Path(__file__).resolve().parent
REPORT = HERE.parent / "client" / "muster"


def build(target: Path) -> Path:
    """Write agent.pyz to `target`, replacing it atomically; return `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    unfinished.write_bytes(SHEBANG + _archive())
    unfinished.chmod(0o755)
    os.replace(unfinished, target)
    return target


def _archive() -> bytes:
    # Stored, not deflated: the bytes must not depend on the zlib version, and ranks start slightly sooner.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(_contents().items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, wherever it is built
            archive.writestr(entry, content)
    return buffer.getvalue()


def _contents() -> dict[str, bytes]:
    sources = (path for path in HERE.rglob("*.py") if path.name not in NOT_IN_IT)
    found = {f"{PACKAGE}/{path.relative_to(HERE)}": path.read_bytes() for path in sources}
    for name in ("__init__.py", "_report.py"):
        found[f"muster/{name}"] = (REPORT / name).read_bytes()
    found["__main__.py"] = ENTRY.encode()
    return found


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "agent.pyz")))

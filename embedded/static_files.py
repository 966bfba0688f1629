"""Where the static files of this checkout are collected: under names that hold their hash, and compressed.

Browsers keep such files for good. They depend on the checkout and the environment only, so all installations of both
share one folder beside the environment, which the first of them fills (`steps.prepare`).
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from controlplane.operations import npm

CHECKOUT = Path(__file__).resolve().parents[1]
SETTING = "MUSTER_STATIC_ROOT"
MANIFEST = "staticfiles.json"
PACKAGES = (
    "django",
    "django-htmx",
    "djangorestframework",
    "drf-spectacular-sidecar",
    "whitenoise",
)  # whose files they are
_NAME = re.compile(r"[0-9a-f]{16}")
KEPT = 3  # folders of other states of the checkout
# What packages bring for pages that Muster does not have, or does not link to.
LEFT_OUT = ("rest_framework", "drf_spectacular_sidecar/redoc/*", "django_htmx/htmax*", "django_htmx/htmx-2*")


def folder() -> Path:
    """Return the folder of this checkout's files; it may not be there yet. Without the right to write beside the
    environment it is in the user's cache.
    """
    parts = (*(metadata.version(name) for name in PACKAGES), *LEFT_OUT)
    digest = hashlib.sha256(" ".join(parts).encode())
    digest.update(npm.folder().name.encode() if npm.folder().exists() else b"")
    for path in sorted((CHECKOUT / "static").rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes())
    name = digest.hexdigest()[:16]
    beside = Path(sys.prefix) / "muster-static"
    if (beside / name / MANIFEST).exists() or os.access(beside if beside.exists() else sys.prefix, os.W_OK):
        return beside / name
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "muster" / "static" / name


def collect(root: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Fill the folder if it is missing. Several may do it at once: the first one's result stays."""
    if (root / MANIFEST).exists():
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=root.parent, prefix=".made-"))
    words = [sys.executable, "manage.py", "collectstatic", "--noinput", "-v0", *(f"--ignore={one}" for one in LEFT_OUT)]
    try:
        subprocess.run(words, cwd=CHECKOUT, env={**environ, SETTING: str(made)}, check=True, stdout=sys.stderr)
        made.chmod(0o755)
        made.rename(root)
    except OSError:
        if not (root / MANIFEST).exists():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if root == folder():  # a folder that somebody chose may have anything beside it
        _clear(root)


def _clear(root: Path) -> None:
    """Delete folders that an earlier state of the checkout filled beside `root`, but for the newest few."""
    made = [path.parent for path in root.parent.glob(f"*/{MANIFEST}") if _NAME.fullmatch(path.parent.name)]
    others = [path for path in made if path != root]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)

"""Front-end libraries that no Python package carries: fetched from the npm registry when Muster is installed.

    python controlplane/operations/npm.py [TARBALL ...]     fetches what controlplane/operations/npm.json lists, or takes it from these files
    python controlplane/operations/npm.py --if-due          the same, but not within an hour after it failed

It needs neither Node nor a package: a tarball is downloaded, compared with the hash in controlplane/operations/npm.json, and the
files listed there are put beside the environment. Which registry: `npm_config_registry`, else an .npmrc, else npm's own
answer where it is installed. Without any, pages work without these libraries.
"""

import binascii
import contextlib
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("npm.json")
SECONDS = 15  # for each request
REST_SECONDS = 3600.0  # after a failure, for --if-due
ATTEMPTS, PAUSE_SECONDS = 3, 2.0
MOST_BYTES = 20 * 2**20  # of a tarball
_SETTING = re.compile(r"^\s*registry\s*=\s*[\"']?(https?://[^\s\"']+)", re.MULTILINE)


class NpmError(Exception):
    """Why a library could not be fetched, and the way out."""


def listed() -> dict[str, Any]:
    """Return name -> version, tarball (its path in a registry), integrity and files (path inside it -> our name)."""
    found: dict[str, Any] = json.loads(LIST.read_text())
    return found


def folder() -> Path:
    """Return where the files of this list are; it may not be there. Another list has another folder."""
    return Path(sys.prefix) / "muster-npm" / hashlib.sha256(LIST.read_bytes()).hexdigest()[:16]


def registry(environ: Mapping[str, str] = os.environ) -> str:
    """Return the registry's address without a slash at its end; raises NpmError if none is known."""
    for found in _registries(environ):
        return found.rstrip("/")
    raise NpmError(
        "no npm registry is known: set npm_config_registry to the address of one, or write registry=ADDRESS to ~/.npmrc"
    )


def _registries(environ: Mapping[str, str]) -> Iterator[str]:
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if environ.get(name, "").startswith(("https://", "http://")):
            yield environ[name]
    for path in (Path(environ.get("HOME", "/")) / ".npmrc", Path("/etc/npmrc")):
        try:
            yield from _SETTING.findall(path.read_text())
        except (OSError, ValueError):
            continue
    if npm := shutil.which("npm", path=environ.get("PATH")):
        words = [npm, "config", "get", "registry"]
        try:
            answer = subprocess.run(
                words, capture_output=True, text=True, timeout=SECONDS, check=False, env=dict(environ)
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        yield from _SETTING.findall(f"registry={answer.stdout.strip()}")


def install(target: Path, *, tarballs: Sequence[Path] = (), environ: Mapping[str, str] = os.environ) -> None:
    """Fill `target` with the files of all listed libraries; raises NpmError, and then makes nothing.

    tarballs: files to take them from instead of the registry. Several processes may install at once.
    """
    given = {_of_file(path): path for path in tarballs}
    content = dict[str, bytes]()
    for name, library in listed().items():
        path = given.get(library["integrity"])
        if tarballs and path is None:
            raise NpmError(
                f"none of the files is {name} {library['version']}: npm pack {name}@{library['version']} makes it"
            )
        data = path.read_bytes() if path else _fetch(f"{registry(environ)}/{library['tarball']}", name)
        content |= unpacked(data, name=name, library=library)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=".made-"))
    try:
        for file, written in content.items():
            (made / file).write_bytes(written)
        made.chmod(0o755)
        made.rename(target)
    except OSError:
        if not target.exists():  # else another process was faster
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def unpacked(data: bytes, *, name: str, library: Mapping[str, Any]) -> dict[str, bytes]:
    """Return our name -> content of a library's files; raises NpmError if the tarball is not the listed one."""
    if integrity(data) != library["integrity"]:
        raise NpmError(
            f"{name} {library['version']} is not what controlplane/operations/npm.json lists: its hash is {integrity(data)}"
        )
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        files = {ours: tar.extractfile(inside) for inside, ours in library["files"].items()}
        return {ours: file.read() for ours, file in files.items() if file}


def _of_file(path: Path) -> str:
    try:
        return integrity(path.read_bytes())
    except OSError as error:
        raise NpmError(f"{path}: {error.strerror}") from None


def integrity(data: bytes) -> str:
    return "sha512-" + binascii.b2a_base64(hashlib.sha512(data).digest(), newline=False).decode()


def _fetch(address: str, name: str) -> bytes:
    """Download it; a connection that breaks is tried again, an answer of the registry is final."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - http or https, see `_SETTING`
                data: bytes = answer.read(MOST_BYTES)
                return data
        except (OSError, ValueError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS or isinstance(error, urllib.error.HTTPError | ValueError):
                raise NpmError(f"{name} could not be fetched from the npm registry: {error}") from None
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def main(words: Sequence[str]) -> int:
    is_if_due = "--if-due" in words
    failed = folder().with_suffix(".failed")
    if folder().exists():
        return 0
    if is_if_due and failed.exists() and 0 <= time.time() - failed.stat().st_mtime < REST_SECONDS:
        return 1
    try:
        install(folder(), tarballs=[Path(word) for word in words if word != "--if-due"])
    except (NpmError, OSError) as error:
        again = " It is tried again in an hour; at once by python controlplane/operations/npm.py." if is_if_due else ""
        print(f"Charts are drawn without their library (uPlot): {error}.{again}", file=sys.stderr)
        with contextlib.suppress(OSError):
            failed.parent.mkdir(parents=True, exist_ok=True)
            failed.touch()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

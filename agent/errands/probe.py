"""What the pods of a cluster's check run: say what the image holds, and whether names, the control plane and another pod are reached.

`agent.pyz --probe`. MUSTER_PROBE says what is asked, as JSON; one line on stdout answers it. Two pods make a check:

- {"part": "first", "word": TEXT, "port": 29500, "url": CONTROL_URL, "ca": PEM, "names": [HOST], "packages": ["torch"]}
  listens on the port, answers
  {"probe": 1, "part": "first", "python": "3.11.9", "packages": {"torch": "2.8.0"}, "torch": {"cuda": "12.8", "hip": ""},
   "driver": "550.54.15", "names": {HOST: ANSWER}, "control": ANSWER, "port": ANSWER}
  and goes on listening until it is ended: everybody who connects is sent the word.
- {"part": "second", "word": TEXT, "port": 29500, "peer": ADDRESS, "seconds": 20}
  connects to the first one, and answers {"probe": 1, "part": "second", "peer": ANSWER}.

An ANSWER is {"seconds": 0.02, "problem": KIND, "words": TEXT}, with an empty problem where all is well; that of the
control plane also has the `status` and the media `type` of what it answered. Nothing of the image is imported: torch
alone takes seconds to import, and would need more memory than such a pod asks for.
"""

from __future__ import annotations

import ast
import http.client
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import signal
import socket
import ssl
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional
from urllib.parse import urlsplit

ASKED = "MUSTER_PROBE"
PATH = "/agent/v1/workspace"  # of agents; without a token it is refused with 401
DRIVER = "/proc/driver/nvidia/version"  # of the node's kernel, whether or not the pod has a GPU
NAME_SECONDS, CONTROL_SECONDS, TRY_SECONDS = 10.0, 10.0, 3.0
PAUSE_SECONDS = 0.5
MOST_WORDS = 300
MOST_FILE = 64 << 10

Answer = Dict[str, Any]


def main() -> int:
    try:
        asked = json.loads(os.environ[ASKED])
        part = {"first": _first, "second": _second}[asked["part"]]
    except (KeyError, TypeError, ValueError) as error:
        print(f"the probe was not told what to do: {error!r}", file=sys.stderr)
        return 2
    # The first process of a container ignores what it does not handle, and would be waited for.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    part(asked)
    sys.stdout.flush()
    # Not `sys.exit`: a name service that does not answer holds a thread.
    os._exit(0)


def _first(asked: Dict[str, Any]) -> None:
    """Listen before anything is said: the other pod is made when this one has answered."""
    listening = timed(lambda: listen(int(asked["port"]), str(asked["word"])))
    print(json.dumps(look(asked, listening)), flush=True)
    if not listening["problem"]:
        signal.pause()


def _second(asked: Dict[str, Any]) -> None:
    peer = reach(str(asked["peer"]), int(asked["port"]), word=str(asked["word"]), seconds=float(asked["seconds"]))
    print(json.dumps({"probe": 1, "part": "second", "peer": peer}), flush=True)


def look(asked: Dict[str, Any], listening: Answer) -> Dict[str, Any]:
    """Return what the first pod answers."""
    url = str(asked["url"])
    return {
        "probe": 1,
        "part": "first",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in asked["packages"]},
        "torch": torch_builds(),
        "driver": driver(),
        "names": {name: resolve(name) for name in asked["names"]},
        "control": ask(url, str(asked.get("ca") or "")),
        "port": listening,
    }


# -- the image


def version(distribution: str) -> Optional[str]:
    """Return the version of an installed distribution; None if there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    except Exception as error:  # metadata that cannot be read ends in whatever its parser raises
        return f"not known: {error}"[:MOST_WORDS]


def torch_builds() -> Dict[str, str]:
    """Return for which CUDA and HIP torch was built, as torch/version.py says it; empty where it says none, or is missing."""
    try:
        found = importlib.util.find_spec("torch")  # of a name without a dot nothing is imported
        place = os.path.dirname(found.origin) if found is not None and found.origin else ""
        with open(os.path.join(place, "version.py"), encoding="utf-8") as file:
            said = assigned(file.read(MOST_FILE))
    except (ImportError, OSError, ValueError, SyntaxError):
        said = {}
    return {name: str(said.get(name) or "") for name in ("cuda", "hip")}


def assigned(source: str) -> Dict[str, Any]:
    """Return the constants that a module assigns to names at its top, without running it. Raises SyntaxError."""
    found: Dict[str, Any] = {}
    for one in ast.parse(source).body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        value = getattr(one, "value", None)
        if isinstance(value, ast.Constant):
            found.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return found


def driver(path: str = DRIVER) -> str:
    """Return the version of the node's NVIDIA driver; empty if it has none, or this pod cannot see it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return driver_in(file.read(MOST_FILE))
    except OSError:
        return ""


def driver_in(text: str) -> str:
    """Return the driver's version: `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build`."""
    found = re.search(r"Kernel Module\s+(?:for \S+\s+)?([0-9]+(?:\.[0-9]+)+)", text)
    return found[1] if found else ""


# -- the network


def resolve(name: str, *, seconds: float = NAME_SECONDS) -> Answer:
    """Look a name up, as every program of the pod would."""
    return bounded(lambda: socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP), seconds=seconds)


def ask(url: str, ca: str, *, seconds: float = CONTROL_SECONDS) -> Answer:
    """Ask the control plane as an agent does, without a token: one that is reached refuses that with 401."""
    said: Dict[str, Any] = {}

    def send() -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            trusted = ssl.create_default_context()
            if ca:
                trusted.load_verify_locations(cadata=ca)
            line: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=seconds, context=trusted
            )
        else:
            line = http.client.HTTPConnection(host, parts.port, timeout=seconds)
        try:
            line.request("GET", parts.path.rstrip("/") + PATH)
            answer = line.getresponse()
            said.update(status=answer.status, type=str(answer.getheader("Content-Type") or "").partition(";")[0])
        finally:
            line.close()

    return {"status": 0, "type": "", **bounded(send, seconds=seconds + 1), **said}


def listen(port: int, word: str) -> None:
    """Answer everybody who connects, in a thread. Raises OSError where the port cannot be had."""
    if socket.has_dualstack_ipv6():
        server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        server = socket.create_server(("", port))

    def serve() -> None:
        while True:
            line, _ = server.accept()
            with line:
                try:
                    line.settimeout(TRY_SECONDS)
                    line.sendall(word.encode() + b"\n")
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()


def reach(peer: str, port: int, *, word: str, seconds: float) -> Answer:
    """Connect to the other pod and read its word: who else answers there, as a proxy may, is not taken for it."""
    began, answer = time.monotonic(), timed(lambda: _read(peer, port, word))
    while answer["problem"] and time.monotonic() < began + seconds:
        time.sleep(PAUSE_SECONDS)
        answer = timed(lambda: _read(peer, port, word))
    return answer


def _read(peer: str, port: int, word: str) -> None:
    with socket.create_connection((peer, port), timeout=TRY_SECONDS) as line:
        said, wanted = b"", word.encode() + b"\n"
        while len(said) < len(wanted) and (more := line.recv(len(wanted) - len(said))):
            said += more
        if said != wanted:
            raise ValueError("something else answers at its address")


def bounded(act: Callable[[], object], *, seconds: float) -> Answer:
    """Do something that may hang, as a name service does, for at most so long."""
    found: List[Answer] = []
    at_work = threading.Thread(target=lambda: found.append(timed(act)), daemon=True)
    at_work.start()
    at_work.join(seconds)
    return found[0] if found else _answer(seconds, "timeout", f"no answer in {seconds:.0f} s")


def timed(act: Callable[[], object]) -> Answer:
    began = time.monotonic()
    try:
        act()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return _answer(time.monotonic() - began, kind_of(error), str(error) or type(error).__name__)
    return _answer(time.monotonic() - began, "", "")


def kind_of(error: Exception) -> str:
    """Return what kind of problem an error is: name, certificate, tls, timeout, refused, address or other."""
    kinds = (
        (socket.gaierror, "name"),
        (ssl.SSLCertVerificationError, "certificate"),
        ((ssl.SSLEOFError, ssl.SSLError), "tls"),
        (socket.timeout, "timeout"),
        (ConnectionRefusedError, "refused"),
    )
    found = next((kind for classes, kind in kinds if isinstance(error, classes)), "")
    return found or ("address" if isinstance(error, OSError) and error.errno else "other")


def _answer(seconds: float, problem: str, said: str) -> Answer:
    return {"seconds": round(seconds, 3), "problem": problem, "words": said[:MOST_WORDS]}

"""A fake Muster: a real HTTP server that implements the REST API over jobs in memory."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.process.client.fake_more import More, attempt, replica
from tests.support import packs

TOKEN, USER, PASSWORD = "mst_secret", "ada", "lovelace"
NOW = "2026-11-21T10:00:00Z"
SERIES = [{"name": "loss", "rank": 0, "points": [[1763700000123, 1, 0.5]]}]
CHECKPOINTS = [
    {"name": "step-100", "step": 100, "size_bytes": 2048, "written_at": NOW, "attempt": 1, "seen_at": NOW},
    {"name": "last.pt", "step": None, "size_bytes": None, "written_at": NOW, "attempt": 1, "seen_at": NOW},
]
WAITING = {
    "code": "behind", "sentence": "1 ahead in queue research; job 7 is first", "numbers": {}, "position": 1,
    "starts": None, "unknown": [7], "holders": [],
}  # fmt: skip
FINISHED = ("succeeded", "failed", "cancelled")

Answer = tuple[int, dict[str, Any], dict[str, str]]
Step = Callable[["FakeMuster", int], None]


class FakeMuster(More):
    """`faults` replace the responses to the next requests; a step of `script` runs before each poll of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, dict[str, Any]] = {}
        self.lines: dict[int, list[dict[str, Any]]] = {}
        self.ranks: dict[int, list[dict[str, Any]]] = {}
        self.workspaces: dict[str, dict[str, Any]] = {}  # trees by digest: path to entry
        self.files: dict[str, bytes] = {}
        self.known_fields = {"team", "queue", "base", "set", "remove", "digest", "left_out"}  # of a workspace
        self.left_out: Any = None  # of the newest workspace, as it was sent
        self.forgotten: set[int] = set()  # ids of deleted workspaces
        self.keys: dict[str, int] = {}
        self.queues = [queue("research"), queue("closed", is_open=False)]
        self.requests: list[dict[str, Any]] = []
        self.faults: list[Any] = []
        self.script: list[Step] = []
        self.page_lines = 1000
        self.url = ""

    def add_job(self, **given: Any) -> int:
        number = len(self.jobs) + 1
        self.jobs[number] = {**job(number), **given}
        self.jobs[number]["is_finished"] = self.jobs[number]["phase"] in FINISHED
        self.lines[number] = []
        return number

    def change(self, number: int, **fields: Any) -> None:
        self.jobs[number].update(fields)
        self.jobs[number]["is_finished"] = self.jobs[number]["phase"] in FINISHED

    def say(
        self, number: int, text: str, *, rank: int = 0, replica: str | None = None, at_ms: int = 1763700000123
    ) -> None:
        """Add a line; without a `replica` as a server does that does not know of them."""
        named = {} if replica is None else {"replica": replica}
        self.lines[number].append({"rank": rank, **named, "at_ms": at_ms, "attempt": 1, "text": text})

    def paths(self, method: str) -> list[str]:
        return [seen["path"] for seen in self.requests if seen["method"] == method]

    def answer(self, seen: dict[str, Any]) -> Answer:
        parts = seen["path"].removeprefix("/api/v1/").split("/")
        if parts != ["login"] and seen["headers"].get("Authorization") != f"Bearer {TOKEN}":
            return problem(401, "Unauthorized", "the token is missing, wrong or revoked")
        handler = getattr(self, f"{seen['method'].lower()}_{parts[0].replace('-', '_')}", None)
        return handler(seen, *parts[1:]) if handler else problem(404, "Not found", "no such page")

    def post_login(self, seen: dict[str, Any]) -> Answer:
        body = json.loads(seen["body"])
        if (body["username"], body["password"]) != (USER, PASSWORD):
            return problem(401, "Unauthorized", "wrong user name or password")
        return 201, {"token": TOKEN, "user": USER}, {}

    def get_me(self, seen: dict[str, Any]) -> Answer:
        token = {"id": 1, "name": "laptop", "prefix": "mst_se", "scope": "submit", "expires_at": "2099-01-01T00:00:00Z"}
        teams = [{"name": "vision", "role": "member"}]
        return 200, {"user": USER, "is_admin": False, "teams": teams, "token": token, "version": "0.1.0"}, {}

    def post_workspaces(self, seen: dict[str, Any], part: str = "") -> Answer:
        if part == "files":
            files, _ = packs.unpacked(seen["body"])
            self.files.update(files)
            return 201, {"files": len(files)}, {}
        body = json.loads(gzip.decompress(seen["body"]) if "Content-Encoding" in seen["headers"] else seen["body"])
        seen["json"] = body
        if part == "missing":
            return 200, {"missing": [one for one in body["digests"] if one not in self.files]}, {}
        return self._tree(body)

    def _tree(self, body: dict[str, Any]) -> Answer:
        for name in body.keys() - self.known_fields:
            wrong = {"field": name, "value": None, "message": "is not a field here"}
            return problem(422, "Invalid", f"{name} is not a field here", errors=[wrong])
        self.left_out = body.get("left_out")
        base = body.get("base")
        if base in self.forgotten:
            wrong = {"field": "base", "value": base, "message": "no longer exists; send the whole list without a base"}
            return problem(422, "Invalid", "the base is gone", errors=[wrong])
        tree = dict(list(self.workspaces.values())[base - 5]) if base else {}
        for path in body["remove"]:
            tree.pop(path, None)
        tree.update({entry["path"]: entry for entry in body["set"]})
        missing = sorted({one["digest"] for one in tree.values() if one["kind"] == "file"} - set(self.files))
        if missing:
            status, content, headers = problem(409, "Files are missing", "send them first")
            return status, {**content, "missing": missing}, headers
        digest = packs.sha(packs.manifest(*tree.values()).encode())
        if body["digest"] != digest:
            wrong = {"field": "digest", "value": body["digest"], "message": "is not the digest of the result"}
            return problem(422, "Invalid", "another tree", errors=[wrong])
        status = 200 if digest in self.workspaces else 201
        self.workspaces.setdefault(digest, tree)
        number = list(self.workspaces).index(digest) + 5
        return status, {"id": number, "digest": digest, "size_bytes": 0, "team": "vision"}, {}

    def get_workspaces(self, seen: dict[str, Any], number: str = "", part: str = "", *path: str) -> Answer:
        sent = [{"id": at + 5, "digest": one, "files": 1, "team": "vision"} for at, one in enumerate(self.workspaces)]
        if not part:
            return (200, sent[int(number) - 5], {}) if number else (200, {"results": sent, "next": None}, {})
        tree = list(self.workspaces.values())[int(number) - 5]
        if part == "diff":
            other = list(self.workspaces.values())[int(path[0]) - 5]
            added = [entry for name, entry in other.items() if name not in tree]
            changed = [
                {"path": name, "before": tree[name], "after": entry, "lines": "@@", "why": ""}
                for name, entry in other.items()
                if tree.get(name, entry) != entry
            ]
            return 200, {"added": added, "removed": [], "changed": changed}, {}
        if path:
            entry = tree.get(unquote("/".join(path)))
            return (
                (200, self.files[entry["digest"]].decode(), {}) if entry else problem(404, "Not found", "no such file")
            )
        after = seen["query"].get("after", "")
        page = [tree[name] for name in sorted(tree) if name > after]
        following = f"http://elsewhere.invalid/x?after={page[1]['path']}" if len(page) > 2 else None
        return 200, {"results": page[:2], "next": following}, {}

    def post_jobs(self, seen: dict[str, Any], number: str = "", verb: str = "") -> Answer:
        if number == "bulk":
            return self.act_on_many(json.loads(seen["body"]))
        if number:
            return self.act(int(number), verb, json.loads(seen["body"] or "{}"))
        key, spec = seen["headers"]["Idempotency-Key"], json.loads(seen["body"])
        if spec["queue"] not in [queue["name"] for queue in self.queues]:
            wrong = {"field": "queue", "value": spec["queue"], "message": "no such queue"}
            return problem(400, "Invalid", "the job cannot be submitted", errors=[wrong])
        if key not in self.keys:
            self.keys[key] = self.add_job(**{"name": f"job-{len(self.jobs) + 1}", **spec, "url": f"{self.url}/jobs/1"})
        return 201, self.jobs[self.keys[key]], {}

    def get_jobs(self, seen: dict[str, Any], number: str = "", part: str = "", more: str = "") -> Answer:
        if not number:
            return self._list(seen)
        if int(number) not in self.jobs:
            return problem(404, "Not found", "Not found.")
        if part == "logs":
            return self.read_logs(int(number), more, seen["query"])
        parts = {
            "": self.jobs[int(number)],
            "ranks": {"results": self.ranks.get(int(number), [])},
            "attempts": {"results": [attempt(1), attempt(2, ended_at=None, outcome="", message="")]},
            "replicas": {"results": [replica(0), replica(1)]},
            "events": {"results": [{"at": NOW, "kind": "submitted", "message": "", "phase": "queued", "user": USER}]},
            "priority": {"effects": [f"It is first with {seen['query'].get('to')}."], "waiting": WAITING},
            "checkpoints": {"results": CHECKPOINTS, "next": None},
            "metrics": {"series": [one for one in SERIES if one["name"] == seen["query"].get("name", one["name"])]},
        }
        return 200, parts[part], {}

    def _list(self, seen: dict[str, Any]) -> Answer:
        query = seen["query"]
        fields = [name for name in ("phase", "queue", "name") if name in query]
        found = [item for item in reversed(self.jobs.values()) if all(item[name] == query[name] for name in fields)]
        begin, limit = int(query.get("offset", 0)), int(query.get("limit", 50))
        more = begin + limit < len(found)
        # A wrong host on purpose: behind a proxy, a server may have the wrong name.
        following = f"http://elsewhere.invalid/api/v1/jobs?limit={limit}&offset={begin + limit}" if more else None
        overview = [{**item, "first_failure": None} for item in found[begin : begin + limit]]  # as the real server does
        return 200, {"results": overview, "next": following}, {}

    def logs(self, number: int, query: dict[str, str]) -> Answer:
        if self.script:
            self.script.pop(0)(self, number)
        lines = [
            line
            for line in self.lines[number]
            if query.get("rank") in (None, str(line["rank"]))
            and query.get("replica") in (None, line.get("replica", query.get("replica")))
        ]
        tail = query.get("tail")
        lines = [line for line in lines if query.get("attempt") in (None, str(line["attempt"]))]
        begin = int(query.get("cursor") or (max(0, len(lines) - int(tail)) if tail is not None else 0))
        end = min(begin + self.page_lines, len(lines))
        is_complete = self.jobs[number]["is_finished"] and end == len(lines)
        return 200, {"lines": lines[begin:end], "cursor": str(end), "is_complete": is_complete}, {}

    def act(self, number: int, verb: str, sent: dict[str, Any] | None = None) -> Answer:
        if number not in self.jobs:
            return problem(404, "Not found", "Not found.")
        if verb == "resubmit":
            copy = self.add_job(**{**self.jobs[number], "id": len(self.jobs) + 1, "phase": "queued"})
            return 201, self.jobs[copy], {}
        if verb == "delete-log":
            return 200, self.jobs[number], {}
        if verb == "priority":
            return 200, {**self.jobs[number], **(sent or {})}, {}
        if self.jobs[number]["is_finished"]:
            return problem(409, "Conflict", f"job {number} has already {self.jobs[number]['phase']}")
        self.change(number, phase={"cancel": "stopping", "suspend": "stopping", "resume": "queued"}[verb])
        return 200, self.jobs[number], {}


def job(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"job-{number}",
        "team": "vision",
        "queue": "research",
        "user": USER,
        "framework": "torchrun",
        "phase": "queued",
        "reason": "",
        "message": "",
        "priority": 0,
        "attempt": 1,
        "failures": 0,
        "max_retries": 3,
        "nodes": 1,
        "nproc_per_node": 2,
        "command": ["torchrun", "train.py"],
        "env": {},
        "workspace": None,
        "created_at": NOW,
        "admitted_at": None,
        "running_at": None,
        "finished_at": None,
        "phase_since": NOW,
        "ranks": {"total": 2, "running": 0, "succeeded": 0, "failed": 0, "waiting": 2},
        "first_failure": None,
        "url": f"http://muster.test/jobs/{number}",
        "from_the_future": True,
    }


def queue(name: str, **given: Any) -> dict[str, Any]:
    return {
        "name": name,
        "team": "vision",
        "cluster": "local",
        "resource": "cpu",
        "nominal": 4,
        "used": 1,
        "gpus_per_node": 0,
        "is_open": True,
        **given,
    }


def failure(**given: Any) -> dict[str, Any]:
    return {
        "rank": 3,
        "replica": "worker-1",
        "exit_code": 7,
        "signal": None,
        "at": NOW,
        "explanation": "rank 3 exited with code 7",
        "last_lines": ["Traceback (most recent call last):", "ValueError: loss is nan"],
        **given,
    }


def problem(status: int, title: str, detail: str, *, errors: list[dict[str, Any]] | None = None) -> Answer:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "errors": errors or []}
    return status, body, {"Content-Type": "application/problem+json"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    muster: FakeMuster

    def _serve(self) -> None:
        address = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = {"method": self.command, "path": address.path, "query": dict(parse_qsl(address.query))}
        seen |= {"headers": dict(self.headers.items()), "body": body}
        seen["headers"] = {name.title(): value for name, value in seen["headers"].items()}
        self.muster.requests.append(seen)
        fault = self.muster.faults.pop(0) if self.muster.faults else None
        if fault == "cut":  # the response ends in the middle
            return self._send(*self.muster.answer(seen), is_cut=True)
        if fault == "drop":
            return self._hang_up()
        if fault == "lose":  # the work is done, the response is lost
            self.muster.answer(seen)
            return self._hang_up()
        return self._send(*(fault or self.muster.answer(seen)))

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _send(self, status: int, body: Any, headers: dict[str, str], *, is_cut: bool = False) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) * 2 // 3] if is_cut else content)
        if is_cut:
            self._hang_up()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815, the names are http.server's

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def serve(muster: FakeMuster) -> ThreadingHTTPServer:
    """Start the server on a free port of this machine. The caller shuts it down."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"muster": muster}))
    server.daemon_threads = True
    muster.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server

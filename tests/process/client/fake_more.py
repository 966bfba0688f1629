"""The rest of the fake server in `fake`: tokens, teams, quotas of queues, audit, plans, bulk actions."""

from __future__ import annotations

import json
from typing import Any

Answer = tuple[int, Any, dict[str, str]]
NOW = "2026-11-21T10:00:00Z"
NOTHING: Answer = (204, "", {})


class More:
    """A mixin of FakeMuster, which provides `jobs`, `queues` and `act`."""

    jobs: dict[int, dict[str, Any]]
    queues: list[dict[str, Any]]
    lines: dict[int, list[dict[str, Any]]]

    def __init__(self) -> None:
        self.tokens = [token(1, "laptop", prefix="mst_se"), token(2, "ci", scope="read", team="vision")]
        self.teams = {"vision": {"ada": "admin", "bob": "viewer"}, "nlp": {"ada": "member"}}
        self.accounts = {"vision": {"vision-bot": "member"}}
        self.flavors: list[dict[str, Any]] = []
        self.cohorts: list[dict[str, Any]] = []
        self.quotas: dict[str, dict[str, Any]] = {}
        self.webhooks = {"chat": webhook("chat")}
        self.has_streams = True
        self.audit = [audit_entry(number) for number in (3, 2, 1)]

    def read_logs(self, number: int, part: str, query: dict[str, str]) -> Answer:
        if not part:
            return self.logs(number, query)
        lines = self.lines[number]
        if part == "search":
            begin = int(query.get("start", 0))
            found = [{**line, "number": at} for at, line in enumerate(lines) if query["text"].lower() in line["text"]]
            part_of = [line for line in found if line["number"] >= begin][: min(5, int(query["limit"]))]
            more = part_of and part_of[-1]["number"] < found[-1]["number"]
            return 200, {"lines": part_of, "next": str(part_of[-1]["number"] + 1) if more else ""}, {}
        if part == "text":
            text = "".join(f"rank {line['rank']}: {line['text']}\n" for line in lines)
            return 200, text, {"Content-Type": "text/plain; charset=utf-8"}
        if not self.has_streams:
            return missing()
        return 200, self._events(number, query), {"Content-Type": "text/event-stream"}

    def _events(self, number: int, query: dict[str, str]) -> str:
        """Return all pages, then the event `end`; for an unfinished job the connection ends without it."""
        events, query, told = ["retry: 2000\n\n", ": still here\n\n"], dict(query), None
        while True:
            page = self.logs(number, query)[1]
            query["cursor"] = page["cursor"]
            phase = {name: self.jobs[number][name] for name in ("phase", "message")}
            events += [f"event: phase\ndata: {json.dumps(phase)}\n\n"] * (phase != told)
            kinds = ["lines"] * (bool(page["lines"]) or told is None) + ["end"] * page["is_complete"]
            events += [f"event: {kind}\nid: {page['cursor']}\ndata: {json.dumps(page)}\n\n" for kind in kinds]
            told = phase
            if page["is_complete"] or not page["lines"]:
                return "".join(events)

    def logs(self, number: int, query: dict[str, str]) -> Answer:
        raise NotImplementedError

    def get_tokens(self, seen: dict[str, Any]) -> Answer:
        return _results(self.tokens)

    def post_tokens(self, seen: dict[str, Any]) -> Answer:
        body = json.loads(seen["body"])
        owner = body.pop("service_account", None) or "ada"
        made = token(len(self.tokens) + 1, body.pop("name"), user=owner, **body)
        self.tokens.append(made)
        return 201, {**made, "text": "mst_new_and_secret"}, {}

    def delete_tokens(self, seen: dict[str, Any], number: str) -> Answer:
        found = [one for one in self.tokens if one["id"] == int(number)]
        for one in found:
            one["revoked_at"] = NOW
        return NOTHING if found else missing()

    def webhook(self, seen: dict[str, Any], name: str = "", act: str = "", *rest: str) -> Answer:
        """Answer what is below /teams/NAME/webhooks."""
        method, sent = seen["method"], json.loads(seen["body"] or "{}")
        if method == "POST" and not name:
            self.webhooks[sent["name"]] = webhook(sent["name"])
            return 201, {**webhook(sent["name"]), "secret": "whsec_new"}, {}
        if name and name not in self.webhooks:
            return missing()
        if act == "deliveries" and method == "GET":
            return _results([delivery(2), delivery(1)])
        if method == "POST":
            return (
                (200, {**self.webhooks[name], "secret": "whsec_new"}, {}) if act == "rotate" else (202, delivery(3), {})
            )
        if method == "DELETE":
            del self.webhooks[name]
            return NOTHING
        if name:
            self.webhooks[name].update(sent)
        return (200, self.webhooks[name], {}) if name else _results(list(self.webhooks.values()))

    def patch_teams(self, seen: dict[str, Any], name: str, part: str, *rest: str) -> Answer:
        return self.webhook(seen, *rest)

    def get_teams(self, seen: dict[str, Any], name: str = "", part: str = "", *rest: str) -> Answer:
        if part == "webhooks":
            return self.webhook(seen, *rest)
        if not name:
            return _results([self._team(one) for one in self.teams])
        if name not in self.teams:
            return missing()
        if part == "ceilings":
            return _results(
                [{"resource": "gpu", "slots": None, "quota": 24}, {"resource": "cpu", "slots": 16, "quota": 16}]
            )
        if part == "quotas":
            return _results(list(self.quotas.values()))
        people = self.teams[name] if part == "members" else self.accounts.get(name, {})
        return _results([member(*one) for one in people.items()]) if part else (200, self._team(name), {})

    def post_teams(self, seen: dict[str, Any], name: str = "", part: str = "", *rest: str) -> Answer:
        if part == "webhooks":
            return self.webhook(seen, *rest)
        body = json.loads(seen["body"])
        if not name:
            self.teams[body["name"]] = {}
            return 201, self._team(body["name"]), {}
        self.accounts.setdefault(name, {})[body["name"]] = body["role"]
        return 201, member(body["name"], body["role"]), {}

    def put_teams(self, seen: dict[str, Any], name: str, part: str, user: str) -> Answer:
        if part == "ceilings":
            return 200, {"resource": user, "slots": json.loads(seen["body"])["slots"], "quota": 8}, {}
        if part == "quotas":
            self.quotas[user] = {"flavor": user, **self.quotas.get(user, {}), **json.loads(seen["body"])}
            return 200, self.quotas[user], {}
        self.teams[name][user] = json.loads(seen["body"])["role"]
        return 200, member(user, self.teams[name][user]), {}

    def delete_teams(self, seen: dict[str, Any], name: str, part: str, user: str) -> Answer:
        if part == "webhooks":
            return self.webhook(seen, user)
        people = self.teams[name] if part == "members" else self.accounts[name]
        return NOTHING if people.pop(user, None) else missing()

    def get_flavors(self, seen: dict[str, Any]) -> Answer:
        return _results(self.flavors)

    def put_flavors(self, seen: dict[str, Any], name: str) -> Answer:
        self.flavors.append({"name": name, **json.loads(seen["body"])})
        return 200, self.flavors[-1], {}

    def get_cohorts(self, seen: dict[str, Any]) -> Answer:
        return _results(self.cohorts)

    def put_cohorts(self, seen: dict[str, Any], name: str) -> Answer:
        self.cohorts.append({"name": name, **json.loads(seen["body"])})
        return 200, self.cohorts[-1], {}

    def get_queues(self, seen: dict[str, Any], name: str = "") -> Answer:
        found = [one for one in self.queues if name in ("", one["name"])]
        return (200, found[0], {}) if name and found else missing() if name else _results(found)

    def patch_queues(self, seen: dict[str, Any], name: str) -> Answer:
        found = next(one for one in self.queues if one["name"] == name)
        found.update(json.loads(seen["body"]))
        return 200, found, {}

    def post_queues(self, seen: dict[str, Any]) -> Answer:
        self.queues.append({"used": 0, "is_open": True, **json.loads(seen["body"])})
        return 201, self.queues[-1], {}

    def get_usage(self, seen: dict[str, Any]) -> Answer:
        return _results([usage_row()])

    def get_audit(self, seen: dict[str, Any]) -> Answer:
        query = seen["query"]
        names = [name for name in ("team", "actor", "act") if name in query]
        return _results([one for one in self.audit if all(one[name] == query[name] for name in names)])

    def get_schema(self, seen: dict[str, Any]) -> Answer:
        return 200, {"openapi": "3.1.0", "paths": {}}, {}

    def get_job_fields(self, seen: dict[str, Any]) -> Answer:
        known = {"name": "nodes", "type": "integer", "minimum": 1, "maximum": 4096, "default": 1, "help": "replicas"}
        newer = {"name": "checkpoint_minutes", "type": "integer", "minimum": 1, "maximum": 90, "help": "how often"}
        return _results([known, newer])

    def post_plans(self, seen: dict[str, Any]) -> Answer:
        body = json.loads(seen["body"])
        if body["queue"] not in [queue["name"] for queue in self.queues]:
            wrong = {"field": "queue", "value": body["queue"], "message": "no such queue"}
            return 400, {"status": 400, "detail": "this is no job", "problems": [wrong]}, {}
        gpus, nodes = body.get("gpus", 0), body.get("nodes", 2)
        role = {"name": "worker", "replicas": nodes, "processes": 4, "command": body["command"]}
        where = {"nodes": nodes, "nproc_per_node": 4, "world_size": nodes * 4}
        return 200, {"queue": body["queue"], "framework": "torchrun", "roles": [role], "distribution": where,
                     "asked": {"gpu": gpus}, "spec": body, "fits_now": True, "wait_reason": ""}, {}  # fmt: skip

    def act_on_many(self, body: dict[str, Any]) -> Answer:
        results = []
        for number in body["ids"]:
            status, answer, _ = self.act(number, body["act"])
            problem = answer["detail"] if status >= 400 else None
            results.append({"id": number, "status": status, "phase": answer.get("phase"), "problem": problem})
        return 200, {"results": results}, {}

    def act(self, number: int, verb: str) -> Answer:
        raise NotImplementedError

    def _team(self, name: str) -> dict[str, Any]:
        return {"id": 1, "name": name, "role": self.teams[name].get("ada"), "members": len(self.teams[name])}


def token(number: int, name: str, **given: Any) -> dict[str, Any]:
    about = {"prefix": f"mst_{number}", "scope": "submit", "team": None, "user": "ada", "created_at": NOW}
    times = {"expires_at": "2099-01-01T00:00:00Z", "last_used_at": None, "revoked_at": None}
    return {"id": number, "name": name, **about, **times, **given}


def webhook(name: str) -> dict[str, Any]:
    shown = {"host": "hooks.slack.com", "format": "slack", "events": ["end"], "all_jobs": True, "is_active": True}
    return {"id": 1, "name": name, **shown, "old_secret_until": None, "created_at": NOW}


def delivery(number: int) -> dict[str, Any]:
    about = {"event": "failed", "job": 1, "attempt": 1, "state": "waiting", "tries": 2, "status_code": 500}
    times = {"created_at": NOW, "next_try_at": NOW, "delivered_at": None, "gave_up_at": None}
    return {"id": number, "message_id": f"msg_{number}", **about, "error": "answered 500", **times}


def member(username: str, role: str) -> dict[str, Any]:
    return {"username": username, "role": role, "is_active": True, "is_service_account": username.endswith("-bot")}


def usage_row() -> dict[str, Any]:
    return {
        "begins": "2026-03-01T00:00:00Z", "resource": "gpu", "team": "vision", "queue": "", "user": "ada", "job": None,
        "name": "", "hours": 12.34, "lost": 2.0, "starting": 0.0, "idle": 1.5,
    }  # fmt: skip


def audit_entry(number: int) -> dict[str, Any]:
    to = {"target_kind": "queue", "target_id": "1", "target_name": "research", "team": "vision"}
    changed = {"before": {"nominal": 4, "is_open": True}, "after": {"nominal": 8, "is_open": True}}
    return {"id": number, "at": NOW, "actor": "ada" if number % 2 else "bob", "act": "queue.changed", **to, **changed,
            "ip": "10.0.0.1"}  # fmt: skip


def attempt(number: int, **given: Any) -> dict[str, Any]:
    return {"attempt": number, "started_at": NOW, "running_at": "2026-11-21T10:00:04Z", "outcome": "failed",
            "ended_at": "2026-11-21T10:01:04Z", "message": "rank 3 exited", "first_failing_rank": 3, **given}  # fmt: skip


def replica(index: int, **given: Any) -> dict[str, Any]:
    return {"attempt": 1, "role": "worker", "index": index, "name": f"job-1-{index}", "node": "host-a",
            "state": "running", "reason": "", "started_at": NOW, **given}  # fmt: skip


def missing() -> Answer:
    return 404, {"type": "about:blank", "title": "Not found", "status": 404, "detail": "Not found."}, {}


def _results(found: list[Any]) -> Answer:
    return 200, {"results": found, "next": None}, {}

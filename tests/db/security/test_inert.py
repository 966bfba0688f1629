"""Text from a job, its code or its output is shown as text: on pages and fragments, in terminals and in browsers."""

import json
import os
import re
import sys
from html.parser import HTMLParser

import pytest
from django.utils import timezone

from accounts.models import Team, Token
from common.text import inert, plain
from jobs.ingest import apply
from jobs.models import Job, JobEvent, Replica
from tests.process.client.terminal import on_a_terminal
from tests.support.builders import Lab, batch, identity, item, log_item

SCRIPT = "<script>alert('x')</script>"
HOSTILE = [
    SCRIPT,
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</textarea></span></div><script>alert(2)</script>",
    "{{ 7|add:7 }}{% load x %}${7*7}",
    "javascript:alert(1)",
    "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m",
    "\x1b]52;c;ZXZpbA==\x07 clipboard",
    "\x9b31m C1 \x85\x90",
    "bell\x07 backspace\x08\x08 null-ish\x01",
    "access \u202edenied\u202c \u2066x\u2069 \u2028line",
    "hx-get=/logout <a hx-post='/jobs/1/cancel' hx-trigger=load>x</a>",
    "]]>--><!--",
]
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
STEERING_A_TERMINAL = re.compile(f"{STEERING.pattern}|\r")
LONG = "a<b>" * 2500  # 10,000 characters


class Finder(HTMLParser):
    """Finds the active elements and attributes of a page, as a browser would."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name.startswith("on") or (
                name in ("href", "src", "action") and (value or "").lower().startswith("javascript:")
            ):
                self.found.append(f"{tag} {name}={value}")
            if name.startswith("hx-") and (("cancel" in (value or "") and tag == "a") or "logout" in (value or "")):
                self.found.append(f"{tag} {name}={value}")
        if tag == "script" and not dict(attrs).get("src", "").startswith("/static/"):
            self.found.append("script")
        if (
            tag in ("img", "iframe", "object", "embed", "style", "base", "svg")
            and not dict(attrs).get("class")
            and tag != "svg"
        ):
            self.found.append(tag)


def assert_inert(text: str) -> None:
    finder = Finder()
    finder.feed(text)
    assert finder.found == []
    assert not STEERING.search(text), STEERING.search(text)
    assert "49" not in re.findall(r"\$\{7\*7\}|>49<", text)


@pytest.fixture
def job(lab) -> Job:
    return hostile_job(lab)


def hostile_job(lab: Lab) -> Job:
    """A job in which every text from outside is hostile: command, environment, log, metrics, reasons, nodes."""
    said = [one for one in HOSTILE if "\0" not in one]
    job = lab.running(
        command=["torchrun", "train.py", *said, LONG], env={f"V{number}": one for number, one in enumerate(said)}
    )
    now = timezone.now().timestamp()
    items = [
        item("rank", rank=0, local_rank=0, pid=1, state="running", at=now),
        log_item(0, 0, [(now, one.replace("\n", " ")) for one in [*HOSTILE, LONG]]),
        item(
            "metrics", rank=0, points=[[now + step, step, {one[:60]: step * 0.5 for one in HOSTILE}] for step in (1, 2)]
        ),
        item("rank", rank=0, local_rank=0, state="failed", exit_code=1, at=now + 1, error_at=now),
        item(
            "checkpoints", at=now, checkpoints=[{"name": one, "written_at": 99 - at} for at, one in enumerate(HOSTILE)]
        ),
        item(
            "replica",
            state="failed",
            exit_code=1,
            signal=None,
            reason=f"command not found: {SCRIPT}\x1b[31m\u202e",
            at=now,
        ),
    ]
    apply.apply_batch(identity=identity(job), batch=batch(1, *items))
    Replica.objects.filter(job=job).update(node=f"node{SCRIPT}\u202e"[:60])
    lab.finish(job, 1, 1)
    Job.objects.filter(pk=job.pk).update(message="; ".join(HOSTILE), wait_reason="; ".join(HOSTILE))
    JobEvent.objects.filter(job=job).update(message="; ".join(HOSTILE))
    job.refresh_from_db()
    return job


PARTS = ["state", "ranks", "charts", "log", "events", "about", "checkpoints"]


@pytest.mark.parametrize(
    "path", ["/jobs", "/jobs/{pk}", "/jobs/{pk}?view=list", "/jobs/{pk}/logs", "/jobs/new?from={pk}", "/queues"]
)
def test_pages_show_hostile_text_as_text(as_, people, job, path):
    shown = as_(people.owner).get(path.format(pk=job.pk))
    assert shown.status_code == 200
    assert_inert(shown.text)


@pytest.mark.parametrize("part", PARTS)
def test_fragments_show_hostile_text_as_text(as_, people, job, part):
    shown = as_(people.owner).get(f"/jobs/{job.pk}", headers={"HX-Request": "true", "HX-Target": part})
    assert shown.status_code == 200
    assert_inert(shown.text)


def test_the_hostile_text_is_really_on_the_page(as_, people, job):
    """Escaped rather than dropped; otherwise the tests above would pass on an empty page."""
    owner = as_(people.owner)
    escaped = "&lt;script&gt;alert("
    for part in ("charts", "log", "events", "about", "checkpoints"):
        shown = owner.get(f"/jobs/{job.pk}", headers={"HX-Request": "true", "HX-Target": part}).text
        assert escaped in shown or (part == "charts" and "&lt;script&gt;" in shown), part
    assert LONG.replace("<", "&lt;").replace(">", "&gt;") in owner.get(f"/jobs/{job.pk}/logs").text
    assert "access denied" in owner.get(f"/jobs/{job.pk}/logs").text


def test_the_finder_detects_active_content():
    finder = Finder()
    finder.feed("".join(HOSTILE))
    assert len(finder.found) >= 5
    with pytest.raises(AssertionError):
        assert_inert("a\u202eb")


@pytest.mark.parametrize("name", [SCRIPT, "a\u202eb", "\x1b[31m", "x" * 200, "../../etc", "a b", "A", "-a"])
def test_a_hostile_job_name_is_refused_and_the_refusal_is_inert(as_, people, queue, name):
    owner = as_(people.owner)
    sent = {"queue": queue.pk, "code": "none", "command": "true", "nodes": 1, "nproc_per_node": 1}
    answer = owner.post("/jobs/new", {**sent, "name": name, "idempotency_key": "k"})
    assert answer.status_code == 422
    assert_inert(answer.text)
    api = owner.post(
        "/api/v1/jobs", {"queue": "default", "command": ["true"], "name": name}, content_type="application/json"
    )
    assert api.status_code == 422
    assert api.json()["errors"][0]["value"] == name[:200]
    assert Job.objects.count() == 0


def test_names_of_teams_queues_and_users_are_shown_as_text(as_, people, lab):
    """Even where a hostile name is in the database."""
    Team.objects.filter(pk=lab.queue.team_id).update(name="<b onclick=x>")
    type(lab.queue).objects.update(name="<i>q</i>\u202e")
    type(people.owner).objects.filter(pk=people.owner.pk).update(username="<u>o</u>\u202e")
    people.owner.refresh_from_db()
    job = lab.submit()
    owner = as_(people.owner)
    for path in ("/jobs", f"/jobs/{job.pk}", "/queues", "/jobs/new"):
        shown = owner.get(path).text
        assert_inert(shown)
        assert "<i>q" not in shown and "<u>o" not in shown


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "x" * 300, "nul\0", SCRIPT + "/../../x"])
def test_a_hostile_upload_path_is_refused_with_a_message(as_, people, queue, path):
    from django.core.files.uploadedfile import SimpleUploadedFile

    sent = {
        "queue": queue.pk,
        "code": "upload",
        "command": "true",
        "nodes": 1,
        "nproc_per_node": 1,
        "idempotency_key": "k",
    }
    file = SimpleUploadedFile("x.py", b"print(1)")
    answer = as_(people.owner).post("/jobs/new", {**sent, "upload": [file], "paths": json.dumps([path])})
    assert answer.status_code == 422
    assert 'id="error-upload"' in answer.text
    assert any(way in answer.text for way in ("direct path from the folder", "leading slash", "rename")), answer.text
    assert_inert(answer.text)
    assert Job.objects.count() == 0


def test_answers_of_the_api_are_json_and_never_html(as_, people, job):
    for path in ("", "/logs", "/metrics", "/events", "/replicas"):
        answer = as_(people.owner).get(f"/api/v1/jobs/{job.pk}{path}")
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_downloaded_log_is_plain_text_with_a_safe_file_name(as_, people, job):
    answer = as_(people.owner).get(f"/jobs/{job.pk}/logs.txt")
    text = b"".join(answer).decode()
    assert not STEERING.search(text)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert re.fullmatch(r'attachment; filename="[a-zA-Z0-9_.-]+"', answer.headers["Content-Disposition"])


def test_log_bytes_that_are_not_utf8_are_shown_as_text(lab, as_, people):
    import zlib

    job = lab.running()
    blob = zlib.compress(b"1763700000000 \xff\xfe\x00\x01 <b>\n")
    fields = {
        "kind": "log",
        "rank": 0,
        "seq": 1,
        "first_line": 0,
        "lines": 1,
        "first_at": 1763700000.0,
        "last_at": 1763700000.0,
    }
    fields |= {"raw_bytes": 23, "bytes": len(blob)}
    from jobs.core.batch import Item

    apply.apply_batch(identity=identity(job), batch=batch(1, Item("log", fields, blob)))
    shown = as_(people.owner).get(f"/jobs/{job.pk}/logs")
    assert shown.status_code == 200
    assert_inert(shown.text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_contains_no_terminal_escape_sequences(text):
    from muster.render import Terminal, printable, table

    assert not STEERING.search(printable(text))
    lines = table(["NAME"], rows=[[text]], terminal=Terminal(width=60))
    assert not any(STEERING.search(line) for line in lines)


VERBS = (
    "jobs", "status {pk}", "attempts {pk}", "ranks {pk}", "replicas {pk}", "events {pk}", "metrics {pk}",
    "queues", "queues show -- {queue}", "teams", "me", "wait {pk}", "logs {pk}", "logs -f --timestamps {pk}",
    "logs --tail 20 {pk}", "logs --text {pk}", "logs --find o {pk}", "logs -o json {pk}", "jobs -o json", "status -o yaml {pk}",
)  # fmt: skip
NAME = "n\x1b[2J\x07\x9b31m\u202e\r"


# Each verb in turn in one process, since to start one takes longer than the verb.
EACH = """
import json, sys
from muster.cli import cli
for words in json.loads(sys.argv[1]):
    try:
        cli.main(words, prog_name="muster")
    except SystemExit as end:
        print(f"ended with {end.code}")
    print("=" * 20, flush=True)
"""


def test_the_command_line_prints_no_terminal_escape_sequences(site, people, lab, tmp_path):
    """The real server and the real command, at a terminal; the names are ones that no form would accept."""
    job = hostile_job(lab)
    Job.objects.filter(pk=job.pk).update(name=NAME)
    Team.objects.filter(pk=lab.queue.team_id).update(name=NAME)
    type(lab.queue).objects.update(name=NAME)
    type(people.owner).objects.filter(pk=people.owner.pk).update(username=NAME)
    token = Token.issue(people.owner, NAME, scope="manage")[1]
    own = {"MUSTER_URL": site.url, "MUSTER_TOKEN": token, "MUSTER_CONFIG": str(tmp_path / "config.json")}
    # Without the command's own colours, so that every escape sequence in the output is a hostile one.
    env = {**os.environ, **own, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "400"}
    asked = [verb.format(pk=job.pk, queue=NAME).split(" ") for verb in VERBS]
    *shown, rest = on_a_terminal([sys.executable, "-c", EACH, json.dumps(asked)], env=env).split("=" * 20)
    assert rest.strip() == ""
    for verb, text in zip(VERBS, shown, strict=True):
        assert not STEERING_A_TERMINAL.search(text.replace("\r\n", "\n")), (verb, text)
        assert "Traceback" not in text, (verb, text)
        # The text is really there; a headline once lost whole escape sequences, not only their first characters.
        assert "[2J" in text or "<script>" in text or "access denied" in text, (verb, text)


def test_plain_keeps_ordinary_unicode_text():
    for text in ("naïve — 训练 🚀 עברית العربية", "tab\tstays", "a\u200fb\u200ec"):
        assert plain(text) == text
        assert inert(text.encode()).decode() == text

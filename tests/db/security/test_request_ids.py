"""One id leads from a request through the server's log to the tasks that it caused."""

import json
import logging
import logging.config
import re

import pytest
from celery import current_app
from django.test import Client

from common.http import request_ids
from common.signals import doorbell
from common.telemetry import log_config
from jobs import tasks
from jobs.control import sweeper

OWN = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def lines(tmp_path):
    """Return a function: configure a style, log inside a request, and read what was written."""

    def lines(style: str, log) -> list[str]:
        found = log_config.configuration(level="INFO", events="off", style=style)
        path = tmp_path / "log"
        found["handlers"]["stderr"] |= {"class": "logging.FileHandler", "filename": str(path)}
        logging.config.dictConfig(
            {**found, "root": {"handlers": [], "level": "INFO"}, "loggers": {"one": {"handlers": ["stderr"]}}}
        )
        with request_ids.caused_by(OWN):
            log(logging.getLogger("one"))
        return path.read_text().splitlines()

    yield lines
    logging.getLogger("one").handlers.clear()


def test_an_answer_carries_an_id_of_its_own_or_the_callers(db):
    client = Client()
    made = client.get("/login").headers["X-Request-ID"]
    assert re.fullmatch(r"[0-9a-f]{16}", made) and client.get("/login").headers["X-Request-ID"] != made
    assert client.get("/login", headers={"X-Request-ID": OWN}).headers["X-Request-ID"] == OWN


@pytest.mark.parametrize(
    "brought", ["short", "x" * 65, "with space in it", "new\nline-in-it", 'quote"-in-it', "-begins-badly"]
)
def test_a_malformed_id_is_replaced(db, brought):
    answer = Client().get("/nowhere", headers={"X-Request-ID": brought})
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["X-Request-ID"])


def test_a_line_of_text_names_its_request(lines):
    (line,) = lines("text", lambda log: log.info("job 7 admitted"))
    assert line.endswith(f" INFO one [{OWN}] job 7 admitted")


def test_a_line_of_json_has_its_request_and_its_traceback_without_secrets(lines):
    def fail(log):
        try:
            raise ValueError("password=hunter2hunter2")
        except ValueError:
            log.exception("it failed")

    (line,) = lines("json", fail)
    found = json.loads(line)
    assert (found["message"], found["request"], found["level"]) == ("it failed", OWN, "ERROR")
    assert found["traceback"][0].startswith("Traceback") and found["traceback"][-1] == "ValueError: password=[removed]"
    assert "hunter2" not in line


def test_a_wake_up_tells_its_task_which_request_caused_it(settings, transactional_db):
    with current_app.connection_for_read() as broker:
        queue = broker.SimpleQueue(current_app.conf.task_default_queue)
        queue.clear()
        with request_ids.caused_by(OWN):
            doorbell.poke("jobs.schedule")
        message = queue.get(timeout=60)
        while message.headers["task"] != "jobs.schedule":  # other tests' wake-ups may be there too
            message = queue.get(timeout=60)
        assert message.headers[doorbell.CAUSE] == OWN
        queue.clear()
        queue.close()


def test_a_task_logs_under_the_id_of_the_request_that_caused_it(monkeypatch):
    seen = []
    monkeypatch.setattr(sweeper, "schedule", lambda: seen.append(request_ids.current()))
    tasks.schedule.apply(headers={doorbell.CAUSE: OWN})
    tasks.schedule.apply()
    assert seen == [OWN, ""] and request_ids.current() == ""

"""Events, Slack's format and signatures: values in, values out."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from jobs.core.lifecycle import STEPS, TERMINAL, Phase, StopReason
from jobs.webhooks import events, sending, signing, slack
from jobs.webhooks.events import Choice, FailureFacts, JobFacts, WebhookEvent

AT = datetime(2026, 11, 25, 12, 0, 0, 5000, tzinfo=UTC)
JOB = JobFacts(
    7, "resnet <b>&co", "nlp", "train", "ada", "torchrun", "failed", 2, AT, AT, None, "https://muster.example/jobs/7"
)


@pytest.mark.parametrize("step", sorted(STEPS))
def test_every_step_of_the_lifecycle_is_one_event_or_none(step):
    before, to = step
    found = {events.of_step(before, to, reason) for reason in (None, *StopReason)}
    if to is Phase.RUNNING:
        assert found == {WebhookEvent.STARTED}
    elif to in TERMINAL:
        assert found == {WebhookEvent(to)}
    elif step == (Phase.STOPPING, Phase.ADMITTED):
        assert events.of_step(before, to, StopReason.RETRY) is WebhookEvent.RETRYING and found == {
            WebhookEvent.RETRYING,
            None,
        }
    else:
        assert found == {None}


def test_what_stays_in_its_phase_is_no_event():
    assert events.of_step(Phase.RUNNING, Phase.RUNNING, None) is None


def test_every_event_of_a_job_belongs_to_a_choice():
    assert set().union(*events.EVENTS_OF.values()) == set(WebhookEvent) - {WebhookEvent.PING}
    assert set(events.EVENTS_OF) == set(Choice)
    assert events.choices_with(WebhookEvent.FAILED) == ["end", "failure"]


def test_the_payload_has_the_form_of_standard_webhooks():
    failure = FailureFacts(3, "worker-1", 1, None, "user_error", "ValueError: x")
    found = events.payload(WebhookEvent.FAILED, at=AT, job=JOB, message="m", failure=failure)
    assert (found["type"], found["timestamp"]) == ("job.failed", "2026-11-25T12:00:00.005Z")
    assert found["data"]["failure"]["rank"] == 3 and found["data"]["job"]["finished_at"] is None


@pytest.mark.parametrize("event", sorted(set(WebhookEvent) - {WebhookEvent.PING}))
def test_slack_is_told_of_every_event_with_its_text_escaped(event):
    failure = FailureFacts(3, "worker-1", 1, None, "user_code", "rank 3: ValueError: <!channel> & more")
    told = slack.message(events.payload(event, at=AT, job=JOB, message="step", failure=failure))
    section, context = told["blocks"]
    assert "<https://muster.example/jobs/7|resnet &lt;b&gt;&amp;co>" in section["text"]["text"]
    assert "> rank 3: ValueError: &lt;!channel&gt; &amp; more (worker-1)" in section["text"]["text"]
    assert "team nlp · queue train · by ada" in context["elements"][0]["text"]
    assert told["text"].startswith("Job resnet &lt;b&gt;&amp;co ")


def test_no_text_of_a_job_calls_everybody_or_is_a_link_in_mattermost():
    assert slack.escaped("@channel @All [here](https://x) ada@example.com") == (
        "@\u200bchannel @\u200bAll [here]\u200b(https://x) ada@example.com"
    )


def test_slack_gets_no_link_without_a_public_address_and_never_more_than_it_takes():
    told = slack.message(events.payload(WebhookEvent.STARTED, at=AT, job=replace(JOB, url=None), message="x\n" * 9000))
    text = told["blocks"][0]["text"]["text"]
    assert "*resnet &lt;b&gt;&amp;co*" in text and len(text) <= 3000
    assert slack.message(events.ping(at=AT, team="nlp", webhook="chat"))["text"] == "Webhook chat of team nlp works."


def test_the_signature_is_that_of_the_specifications_example():
    """Source: the libraries of standard-webhooks test this value."""
    found = signing.signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", uid="msg_p5jXN8AQM9LWM0D4loKWxJek", seconds=1614265330,
        body=b'{"test": 2432232314}',
    )  # fmt: skip
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_pauses_grow_and_end():
    pauses = [sending.pause_after(tries, chance=0) for tries in range(1, 9)]
    assert pauses == [10, 60, 300, 1800, 7200, 21600, 43200, None]
    assert sending.pause_after(1, chance=1) == 12

"""A restart policy is another way to say retries; and what a failure leads to, in words."""

import pytest

from common.errors import InvalidSpec
from jobs.core import restarts
from jobs.core.spec import parse

COMMAND = {"command": "torchrun train.py"}


@pytest.mark.parametrize(
    ("sent", "defaults", "retries"),
    [
        ({}, {}, 0),
        ({"restart_policy": "Never"}, {}, 0),
        ({"restart_policy": "Never", "max_retries": 0}, {}, 0),
        ({"restart_policy": "Never"}, {"max_retries": 2}, 0),
        ({"restart_policy": "OnFailure"}, {}, restarts.RETRIES_ON_FAILURE),
        ({"restart_policy": "OnFailure", "max_retries": 7}, {}, 7),
        ({"restart_policy": "OnFailure"}, {"max_retries": 2}, 2),
        ({"restart_policy": "OnFailure"}, {"max_retries": 0}, restarts.RETRIES_ON_FAILURE),
        ({}, {"restart_policy": "OnFailure"}, restarts.RETRIES_ON_FAILURE),
        ({}, {"restart_policy": "OnFailure", "max_retries": 5}, 5),
        ({"max_retries": 0}, {"restart_policy": "OnFailure"}, 0),
        ({"max_retries": 4}, {"restart_policy": "Never"}, 4),
        ({"restart_policy": ""}, {"restart_policy": "OnFailure"}, restarts.RETRIES_ON_FAILURE),
    ],
)
def test_a_policy_becomes_retries_and_a_job_s_own_words_come_before_its_queue_s(sent, defaults, retries):
    spec = parse({**COMMAND, **sent}, defaults=defaults)
    assert spec.max_retries == retries
    assert "restart_policy" not in spec.to_json()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"restart_policy": "Never", "max_retries": 3}, "means no retries, but max_retries is 3; remove one"),
        ({"restart_policy": "OnFailure", "max_retries": "0"}, "means at least one retry, but max_retries is 0; remove"),
        (
            {"restart_policy": "Always"},
            "a job again that has succeeded, and a training job is done then; use OnFailure",
        ),
        ({"restart_policy": "ExitCode"}, "use OnFailure, with retry_on or never_retry_on"),
        ({"restart_policy": "never"}, "is not one of Never and OnFailure; use one of these"),
        ({"restart_policy": ["Never"]}, "is not one of Never and OnFailure"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused_with_the_way_out(sent, words):
    with pytest.raises(InvalidSpec) as caught:
        parse({**COMMAND, **sent})
    (problem,) = caught.value.problems
    assert problem.field == "restart_policy" and words in problem.message


def test_exit_codes_may_stand_beside_a_policy_without_a_number():
    spec = parse({**COMMAND, "restart_policy": "OnFailure", "retry_on": [75]})
    assert (spec.max_retries, spec.retry_on) == (3, (75,))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_retries": 0}, "if a replica fails, the job fails: it has no retries"),
        ({"max_retries": 1}, "if a replica fails, all replicas start again, up to 1 time"),
        (
            {"max_retries": 3, "retry_on": [75, 137]},
            "if a replica fails, all replicas start again, up to 3 times, only after exit codes 75, 137",
        ),
        (
            {"max_retries": 3, "never_retry_on": [2]},
            "if a replica fails, all replicas start again, up to 3 times, but not after exit code 2",
        ),
        (
            {"max_retries": 2, "is_elastic": True},
            "lost replicas are replaced while enough are left; with too few, all replicas start again, up to 2 times",
        ),
    ],
)
def test_what_a_failure_leads_to_is_said_in_words(asked, words):
    assert restarts.on_failure(**asked) == words

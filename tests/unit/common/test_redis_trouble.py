"""Why Redis cannot be used, found in what its client and Celery make of it."""

import pytest
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ReadOnlyError, ResponseError

from common.signals import redis_trouble


def raised(*errors: Exception) -> Exception:
    """The last of these, each raised while the one before it was handled."""
    before: Exception | None = None
    for error in errors:
        error.__context__ = before
        before = error
    assert before is not None
    return before


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (raised(IndexError("pop from empty list"), ResponseError("DB index is out of range")), "DB index is out of range"),
        (raised(NoConnection("Error 111 connecting"), OperationalError("wrapped")), "Error 111 connecting"),
        (raised(ReadOnlyError("READONLY You can't write"), OperationalError("wrapped")), "REDIS_URL must name the primary"),
        (OperationalError("no word of Redis"), "no word of Redis (REDIS_URL)"),
        (OSError(), "OSError (REDIS_URL)"),
    ],
)  # fmt: skip
def test_the_reason_is_what_redis_or_its_connection_said(error, words):
    assert words in redis_trouble.reason(error)

from collections.abc import Iterator

import pytest

from embedded.installation import Installation


@pytest.fixture(scope="session")
def muster(tmp_path_factory) -> Iterator[Installation]:
    """One installation for all tests that only look at it: each start costs 25 seconds of CPU."""
    with Installation(tmp_path_factory.mktemp("installation"), is_temporary=True) as running:
        yield running

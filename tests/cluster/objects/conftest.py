"""A real S3 server, and the storage that an installation would use with it."""

from collections.abc import Iterator
from itertools import count

import pytest

from common import addresses
from common.files import file_store
from common.files.object_storage import ObjectStorage
from rig import objects, programs
from rig.objects import ObjectServer
from tests.support.machine import need

_numbers = count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[ObjectServer]:
    problem = programs.why_not(objects.SOURCES)
    need(programs.is_built(objects.SOURCES), problem or "the programs are not built: python -m rig build")
    with objects.running(tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture
def address(server) -> str:
    """MUSTER_FILES with a bucket of this test's own."""
    return server.address(f"bucket-{next(_numbers)}", prefix="muster/files")


@pytest.fixture
def store(address) -> ObjectStorage:
    found = file_store.made(addresses.files(address))
    assert isinstance(found, ObjectStorage)
    return found


@pytest.fixture
def in_bucket(settings, address) -> str:
    """Code and logs of this test lie in the bucket."""
    settings.STORAGES = {**settings.STORAGES, "default": addresses.files(address)}
    return address

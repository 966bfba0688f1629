"""A working directory is a folder of the code, where the server has it."""

import io

import pytest

from common.errors import InvalidSpec
from jobs import services
from tests.support import packs
from workspaces import sent
from workspaces import services as workspaces

pytestmark = pytest.mark.django_db
SENT = {"command": "python train.py", "nodes": 1, "nproc_per_node": 1}


def test_a_working_directory_must_be_a_folder_of_the_code(lab, files, people, team):
    tree = {"examples/mnist/train.py": b"pass", "train.py": b"pass # here"}
    packed = io.BytesIO(packs.pack(*tree.values(), kind=packs.RAW))
    workspaces.receive(team=team, by=people.owner, stream=packed)
    put = sent.entries([packs.file(path, content) for path, content in tree.items()])
    workspace = workspaces.create(team=team, by=people.owner, put=put)[0]
    for path in ("examples", "examples/mnist/", "./examples", ".", "/opt/app"):
        services.preview(user=lab.user, queue=lab.queue, sent={**SENT, "working_dir": path}, workspace=workspace)
    for field, more in (
        ("working_dir", {"working_dir": "example"}),
        ("working_dir", {"working_dir": "train.py"}),
        ("roles.worker.working_dir", {"roles": {"worker": {"working_dir": "example"}}}),
    ):
        with pytest.raises(InvalidSpec, match="is no folder of the job's code") as refused:
            services.preview(user=lab.user, queue=lab.queue, sent={**SENT, **more}, workspace=workspace)
        assert refused.value.problems[0].field == field

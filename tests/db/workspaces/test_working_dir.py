"""A working directory is a folder of the code, where the server has it."""

import io

import pytest

from common.errors import InvalidSpec
from jobs import services
from tests.support import packs
from workspaces import sent
from workspaces import services as workspaces
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db
SENT = {"command": "python train.py", "nodes": 1, "nproc_per_node": 1}


@pytest.fixture
def code(files, people, team) -> Workspace:
    tree = {"examples/ddp.py": b"pass", "train.py": b"pass # here"}
    workspaces.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(*tree.values(), kind=packs.RAW)))
    put = sent.entries([packs.file(path, content) for path, content in tree.items()])
    return workspaces.create(team=team, by=people.owner, put=put)[0]


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


@pytest.mark.parametrize(
    ("command", "folder", "words", "starts"),
    [
        (["torchrun", "/app/train.py", "--out", "/app/out"], "", ["torchrun", "train.py", "--out", "/app/out"], ""),
        (["torchrun", "/app/examples/ddp.py"], "", ["torchrun", "examples/ddp.py"], ""),
        (["torchrun", "/app/examples/ddp.py"], "/app/examples", ["torchrun", "ddp.py"], "examples"),
        (["torchrun", "/app/train.py"], "/app/examples/", ["torchrun", "../train.py"], "examples"),
        ("torchrun /app/train.py", "/app", ["torchrun", "train.py"], ""),
        (["torchrun", "/app/other.py"], "", ["torchrun", "/app/other.py"], ""),
        (["torchrun", "/application/train.py"], "", ["torchrun", "/application/train.py"], ""),
        (["torchrun", "/app/train.py"], "/srv", ["torchrun", "/app/train.py"], "/srv"),
        (["torchrun", "/app/train.py"], "/app/models", ["torchrun", "/app/train.py"], "/app/models"),  # of the image
        (["torchrun", "/app/../train.py"], "", ["torchrun", "/app/../train.py"], ""),
    ],
)
def test_a_path_below_app_is_that_of_the_code(lab, code, command, folder, words, starts):
    asked = {**SENT, "command": command, **({"working_dir": folder} if folder else {})}
    found = services.preview(user=lab.user, queue=lab.queue, sent=asked, workspace=code)
    assert (list(found.spec.command), found.spec.working_dir) == (words, starts)
    given = command if isinstance(command, list) else command.split()
    moved = [f"{one} is {one[5:]} of the job's code" for one in given if one not in words]
    assert [one for one in found.notes if "of the job's code" in one] == moved


def test_without_code_a_path_below_app_is_the_image_s(lab):
    found = services.preview(user=lab.user, queue=lab.queue, sent={**SENT, "command": ["torchrun", "/app/train.py"]})
    assert found.spec.command == ("torchrun", "/app/train.py")

"""The name of a job whose user gave none: what the command starts, and nothing that may be a secret."""

import pytest

from jobs.core.spec import parse
from jobs.services import default_name
from jobs.submission.command_words import launched

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["torchrun", "--nproc_per_node", "2", "src/train.py", "--lr", "3"], "src/train.py"),
        (["python", "-m", "package.train", "--token", SECRET], "train"),
        (["torchrun", "--token", SECRET, "train.py"], "train.py"),
        (["python3.12", "-O", "fit.py"], "fit.py"),
        (["bash", "-c", f"export TOKEN={SECRET}; python train.py"], "bash"),
        (["bash", "-lc", f"curl https://ada:{SECRET}@example.org/train.sh"], "bash"),
        (["env", f"TOKEN={SECRET}", "python", "train.py"], "train.py"),
        (["env", f"TOKEN={SECRET}", "fit"], "fit"),
        ([f"TOKEN={SECRET} python train.py"], "train.py"),
        ([f"fit --token {SECRET}"], "fit"),
        (["fit", SECRET], "fit"),
        ([f"TOKEN={SECRET}"], ""),
        (["-x"], ""),
    ],
)
def test_a_job_is_named_by_what_it_starts(command, name):
    assert launched(command) == name


def test_a_name_ends_in_letters_of_its_own(db):
    spec = parse({"command": ["bash", "-c", f"TOKEN={SECRET} run"], "framework": "plain"})
    first, second = default_name(spec), default_name(spec)
    assert first != second and first.startswith("bash-") and SECRET not in first

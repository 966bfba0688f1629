"""What the agent takes for a checkpoint, which step its name says, and how much it looks at."""

import json
import os
from pathlib import Path

import pytest

from agent.output import checkpoints
from agent.output.checkpoints import Checkpoints, is_temporary, names_in, step_of
from agent.output.outbox import Outbox
from agent.output.spool import Spool
from tests.support.patience import until


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-100", 100), ("step_100", 100), ("step=100", 100), ("Step-100", 100),
        ("checkpoint-500", 500), ("checkpoint_500", 500), ("ckpt_100.pt", 100), ("model.ckpt-100.index", 100),
        ("epoch=3-step=1200.ckpt", 1200), ("epoch=3-step=1200-v1.ckpt", 1200), ("epoch_2_step_7", 7),
        ("global_step100", 100), ("iter_0000100", 100), ("iteration-7", 7), ("ep0-ba100-rank0.pt", 100),
        ("100", 100), ("00100.pt", 100), ("step_100_0", 100), ("model_step_1000.safetensors", 1000), ("0", 0),
        # None of these says a step.
        ("last.ckpt", None), ("best", None), ("latest_checkpointed_iteration.txt", None), ("checkpoint-best", None),
        ("epoch=3.ckpt", None), ("epoch-3", None), ("step-10k", None), ("2024-01-01", None), ("timestep-3", None),
        ("checkpoint_1_500.pt", None), ("checkpoint-1.5", None), ("step-" + "9" * 16, None), ("", None),
        # Nor does one that is not finished.
        ("step-100.tmp", None), ("tmp-checkpoint-500", None),
    ],
)  # fmt: skip
def test_the_step_that_a_name_says(name, step):
    assert step_of(name) == step


def test_names_of_what_is_unfinished_or_hidden():
    unfinished = [
        ".step-1", "step-1.tmp", "step-1.tmp123", "step-1.partial", "step-1.part", "tmp-checkpoint-500", "tmpab12cd34",
        "100.orbax-checkpoint-tmp-123", "step-1.incomplete", "step-1.pt~",
    ]  # fmt: skip
    assert [name for name in unfinished if not is_temporary(name)] == []
    assert [name for name in ("step-1", "model-part-1.pt", "attempt-1", "last.ckpt", "100") if is_temporary(name)] == []


def test_of_too_many_names_those_with_the_highest_steps_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST", 3)
    for name in ("step-9", "step-10", "step-100", "last.ckpt", ".hidden", "step-11.tmp"):
        (tmp_path / name).mkdir()
    assert names_in(str(tmp_path)) == ["step-9", "step-10", "step-100"]
    assert names_in(str(tmp_path / "none")) == []


class Listed:
    """A folder, and what a thread that is over has sent of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "checkpoints"
        self.folder.mkdir()
        self.spool = Spool(str(tmp_path / "spool"))
        self.outbox, self.troubles = Outbox(self.spool), list[str]()

    def look(self, **options: bool) -> list[dict[str, object]]:
        """Look once, as at the end of a replica."""
        thread = Checkpoints(str(self.folder), outbox=self.outbox, trouble=self.troubles.append, **options)
        thread.finish()
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        return self.sent()

    def sent(self) -> list[dict[str, object]]:
        self.outbox.flush()
        found = self.spool.get()
        assert found is not None
        seq, body = found
        self.spool.acknowledge(seq)
        header = json.loads(body[4 : 4 + int.from_bytes(body[:4], "big")])
        return [item for item in header["items"] if item["kind"] == "checkpoints"]

    def write(self, path: str, text: str = "x", at: int = 1_700_000_000) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        for one in (target, *target.parents):
            os.utime(one, (at, at))
            if one == self.folder:
                break


@pytest.fixture
def listed(tmp_path):
    return Listed(tmp_path)


def test_files_and_folders_with_size_and_last_write(listed):
    listed.write("last.ckpt", "12345", at=1_700_000_005)
    listed.write("step-100/a/b.pt", "123", at=1_700_000_001)
    listed.write("step-100/c.pt", "1234", at=1_700_000_009)
    listed.write("step-100.tmp/c.pt")
    (listed.folder / "latest").symlink_to("step-100")
    (listed.folder / "step-100" / "outside").symlink_to("/etc")
    os.mkfifo(listed.folder / "pipe")
    (item,) = listed.look()
    assert item["checkpoints"] == [
        {"name": "last.ckpt", "step": None, "bytes": 5, "written_at": 1_700_000_005},
        {"name": "step-100", "step": 100, "bytes": 7, "written_at": pytest.approx(os.stat(listed.folder / "step-100").st_mtime, abs=1)},
    ]  # fmt: skip
    assert item["at"] > 1_700_000_000 and listed.troubles == []


def test_the_size_of_one_with_too_many_files_is_not_known(listed, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_FILES", 2)
    for number in range(3):
        listed.write(f"step-1/{number}")
    listed.write("step-2/0")
    (item,) = listed.look()
    assert [(one["step"], one["bytes"]) for one in item["checkpoints"]] == [(1, None), (2, 1)]


def test_an_empty_folder_is_only_news_where_there_may_have_been_checkpoints(listed):
    assert listed.look() == []
    (item,) = listed.look(may_have_some=True)
    assert item["checkpoints"] == []


def test_a_folder_that_cannot_be_read_is_one_line_of_trouble(listed):
    listed.folder.rmdir()
    listed.folder.write_text("a file")
    assert listed.look(may_have_some=True) == []
    assert len(listed.troubles) == 1 and "the checkpoints cannot be listed" in listed.troubles[0]


def test_what_changes_is_sent_again_and_what_does_not_is_not(listed, monkeypatch):
    monkeypatch.setattr(checkpoints, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.01)
    seen = list[list[dict[str, object]]]()

    class Noted(Outbox):
        def newest(self, kind: str, **values: object) -> None:
            seen.append(values["checkpoints"])

    thread = Checkpoints(str(listed.folder), outbox=Noted(listed.spool), trouble=listed.troubles.append)
    thread.start()
    for count in (1, 2, 3):
        listed.write(f"step-{count}/model.pt")
        until(lambda count=count: seen and len(seen[-1]) == count and seen[-1][-1]["bytes"] == 1)
    (listed.folder / "step-1" / "model.pt").unlink()
    (listed.folder / "step-1").rmdir()
    until(lambda: [one["step"] for one in seen[-1]] == [2, 3])
    count = len(seen)
    thread.finish()
    thread.join(10)
    assert len(seen) == count

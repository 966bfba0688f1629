"""Scalars of event files that real writers wrote become series of the rank whose process wrote them."""

import os
import struct
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.proto.tensor_pb2 import TensorProto

from agent.output import tensorboard
from agent.output.tensorboard import EventFiles, scalars_of
from tests.process.agent.bench import Bench


class Looked:
    def __init__(self, top: Path) -> None:
        self.points: list[tuple[int | None, list]] = []
        self.troubles: list[str] = []
        self.files = EventFiles(
            str(top), on_point=lambda pid, point: self.points.append((pid, point)), trouble=self.troubles.append
        )

    def look(self) -> dict[str, list[tuple[int, float | None]]]:
        """Look once; return all values so far by series."""
        self.files.look()
        found: dict[str, list[tuple[int, float | None]]] = {}
        for _, (_, step, values) in self.points:
            for name, value in values.items():
                found.setdefault(name, []).append((step, None if value is None else round(value, 3)))
        return found


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    return Looked(tmp_path)


class Writer:
    """The part of tensorboardX that writes a file; around it is a queue, whose `flush` does not wait."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"), suffix)

    def add(self, tag: str, value: float, step: int, *, at: float | None = None) -> None:
        self.write(Summary.Value(tag=tag, simple_value=value), step, at=at)

    def write(self, value: Summary.Value, step: int, *, at: float | None = None) -> None:
        self._file.write_event(Event(wall_time=at or time.time(), step=step, summary=Summary(value=[value])))
        self._file.flush()


def test_what_a_writer_adds_is_read_as_it_comes(tmp_path: Path, looked: Looked) -> None:
    assert looked.look() == {}
    writer = Writer(tmp_path / "runs" / "one")
    writer.add("Loss/train", 0.5, 1)
    assert looked.look() == {"tensorboard/Loss/train": [(1, 0.5)]}
    writer.add("Loss/train", float("nan"), 2)
    writer.add("lr", 1e-2, 2)
    found = {"tensorboard/Loss/train": [(1, 0.5), (2, None)], "tensorboard/lr": [(2, 0.01)]}
    assert looked.look() == found
    assert looked.look() == found, "nothing is read twice"


def test_half_a_record_is_read_once_it_is_whole(tmp_path: Path, looked: Looked) -> None:
    Writer(tmp_path / "whole").add("loss", 0.5, 1)
    (path,) = (tmp_path / "whole").iterdir()
    content = path.read_bytes()
    path.unlink()
    half = tmp_path / path.name
    for end in range(0, len(content), 7):
        half.write_bytes(content[:end])
        assert looked.look() == {}
    half.write_bytes(content)
    assert looked.look() == {"tensorboard/loss": [(1, 0.5)]}


def test_a_large_record_is_passed_over(tmp_path: Path, looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "READ_BYTES", tensorboard.MOST_RECORD_BYTES * 2)
    writer = Writer(tmp_path)
    image = Summary.Image(encoded_image_string=b"x" * 10 * tensorboard.MOST_RECORD_BYTES)
    writer.write(Summary.Value(tag="sample", image=image), 1)
    writer.add("loss", 0.25, 1)
    looked.look()
    assert looked.look() == {"tensorboard/loss": [(1, 0.25)]}


def test_other_folders_of_a_run_are_told_apart(tmp_path: Path, looked: Looked) -> None:
    Writer(tmp_path / "train").add("epoch_loss", 1.0, 1)
    looked.look()
    Writer(tmp_path / "train" / "both_a").add("both", 3.0, 1)
    Writer(tmp_path / "validation").add("epoch_loss", 2.0, 1)
    assert looked.look() == {
        "tensorboard/epoch_loss": [(1, 1.0)],
        "tensorboard/both_a/both": [(1, 3.0)],
        "tensorboard/validation/epoch_loss": [(1, 2.0)],
    }


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(tmp_path: Path, looked: Looked) -> None:
    Writer(tmp_path / "other").add("loss", 1.0, 1)
    (path,) = (tmp_path / "other").glob("events*")
    (tmp_path / path.name).symlink_to(path)
    assert tensorboard.EventFile(str(tmp_path / path.name)).read(1 << 20) == ([], 0)
    assert tensorboard.EventFile(str(path)).read(1 << 20)[0]


def test_folders_of_the_same_name_are_told_apart(tmp_path: Path, looked: Looked) -> None:
    Writer(tmp_path / "a/train").add("loss", 1.0, 1)
    looked.look()
    Writer(tmp_path / "b/train").add("loss", 2.0, 1)
    Writer(tmp_path / "c/train").add("loss", 3.0, 1)
    names = {
        "tensorboard/loss": [(1, 1.0)],
        "tensorboard/b/train/loss": [(1, 2.0)],
        "tensorboard/c/train/loss": [(1, 3.0)],
    }
    assert looked.look() == names


def test_a_file_that_is_written_anew_is_read_from_its_beginning(tmp_path: Path, looked: Looked) -> None:
    writer = Writer(tmp_path)
    for step in range(9):
        writer.add("loss", 1.0, step)
    looked.look()
    (path,) = tmp_path.glob("events*")
    Writer(tmp_path / "other").add("again", 2.0, 0)
    (other,) = tmp_path.glob("other/events*")
    path.write_bytes(other.read_bytes())
    other.unlink()
    assert looked.look()["tensorboard/again"] == [(0, 2.0)]


def test_of_a_folder_the_newest_file_is_read_and_none_from_before(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "newer", "newest")):
        Writer(tmp_path, f".{name}").add(name, 1.0, 1)
        (path,) = tmp_path.glob(f"*.{name}")
        os.utime(path, (time.time() + 10 * number - 100 * (number == 0),) * 2)
    assert Looked(tmp_path).look() == {"tensorboard/newest": [(1, 1.0)]}
    assert Looked(tmp_path / "elsewhere").look() == {}


def test_what_was_recorded_before_the_replica_began_is_left_out(tmp_path: Path, looked: Looked) -> None:
    writer = Writer(tmp_path)
    writer.add("loss", 9.0, 1, at=time.time() - 3600)
    writer.add("loss", 1.0, 2)
    assert looked.look() == {"tensorboard/loss": [(2, 1.0)]}


def test_more_than_can_be_read_at_once_is_thinned_to_the_last(tmp_path: Path, looked: Looked) -> None:
    writer = Writer(tmp_path)
    for step in range(3000):
        writer.add("loss", step, step)
    steps = [step for step, _ in looked.look()["tensorboard/loss"]]
    assert steps == list(range(3000 - tensorboard.MOST_RECORDS, 3000))


@pytest.mark.parametrize("content", [b"", b"not a file of events at all", struct.pack("<Q", 1 << 60) + b"x" * 100])
def test_a_file_that_only_has_the_name_is_left_alone(tmp_path: Path, looked: Looked, content: bytes) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(content)
    os.mkfifo(tmp_path / "events.out.tfevents.2.pipe")
    assert looked.look() == {} and looked.troubles == []


@pytest.mark.parametrize(
    "tensor",
    [TensorProto(dtype=1, float_val=[0.5]), TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.5)),
     TensorProto(dtype=2, double_val=[0.5])],
)  # fmt: skip
def test_scalars_of_tensorflow_are_tensors(tensor: TensorProto) -> None:
    event = Event(wall_time=5.0, step=-3, summary=Summary(value=[Summary.Value(tag="x", tensor=tensor)]))
    assert scalars_of(event.SerializeToString()) == [(5.0, -3, "x", 0.5)]


def test_tensors_of_another_shape_are_no_scalars() -> None:
    values = [TensorProto(dtype=1, float_val=[1, 2]), TensorProto(dtype=7, string_val=[b"text"])]
    event = Event(summary=Summary(value=[Summary.Value(tag="x", tensor=one) for one in values]))
    assert scalars_of(event.SerializeToString()) == []


@given(st.binary(max_size=200))
def test_no_content_of_a_record_raises(content: bytes) -> None:
    scalars_of(content)


def test_a_tag_that_is_a_number_is_no_scalar() -> None:
    assert scalars_of(bytes([0x2A, 4, 0x0A, 2, 0x08, 5])) == []


def test_the_writers_process_is_in_the_name_that_torch_gives() -> None:
    assert tensorboard.writer_of("/a/events.out.tfevents.1700000000.host.example.4711.0") == 4711
    assert tensorboard.writer_of("/a/events.out.tfevents.1700000000.host") is None


WRITES = """
import os
from tensorboardX import SummaryWriter
writer = SummaryWriter("runs")
for step in (1, 2):
    writer.add_scalar("loss", 1 / step, step)
writer.close()
if os.environ.get("BY_TORCH"):
    (name,) = os.listdir("runs")
    os.rename(f"runs/{name}", f"runs/events.out.tfevents.1.host.{os.getpid()}.0")
"""
TOLD = {"framework": "plain", "is_rank": True, "first_rank": 4, "index": 3}


@pytest.mark.parametrize(
    ("env", "points"),
    [({}, [(1, 1.0), (2, 0.5)]), ({"BY_TORCH": "1"}, [(1, 1.0), (2, 0.5)]), ({"MUSTER_IGNORE_PRINTED": "1"}, [])],
)
def test_a_rank_that_reports_nothing_has_the_scalars_it_wrote(bench: Bench, env: dict, points: list) -> None:
    received = bench.run([sys.executable, "train.py"], files={"train.py": WRITES}, env=env, **TOLD)
    assert bench.status(3)["exit_code"] == 0, received.texts(7)
    found = [point for item in received.kind("metrics", rank=7) for point in item["points"]]
    assert [(step, values["tensorboard/loss"]) for _, step, values in found] == points

"""examples/plain_line.py on three ranks, started by hand: it needs nothing but the four variables of a plain job."""

import os
import subprocess
import sys
from pathlib import Path

from embedded.ports import free_port

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "plain_line.py"
RANKS = 3


def start(checkpoints: Path, *arguments: str) -> list["subprocess.Popen[str]"]:
    port = str(free_port())
    told = {
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "MUSTER_CHECKPOINTS": str(checkpoints),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, "--step-delay=0", *arguments], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**kept, **told, "RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]  # fmt: skip


def said(ranks: list["subprocess.Popen[str]"]) -> list[tuple[str, str]]:
    return [rank.communicate() for rank in ranks]


def test_all_ranks_learn_the_same_line_and_go_on_from_the_checkpoint(tmp_path):
    first = said(start(tmp_path, "--steps=40"))
    losses = [[line for line in out.splitlines() if line.startswith("step 40 ")] for out, _ in first]
    assert losses[0] and losses == [losses[0]] * RANKS
    second = said(start(tmp_path))
    assert "going on from step 40\n" in second[0][0] and "step 20 " not in second[0][0]
    assert second[0][0].splitlines()[-1] == "slope 3.00 offset -1.00"
    assert [err for _, err in second] == [""] * RANKS


def test_a_rank_that_leaves_ends_the_others_with_an_error(tmp_path):
    ranks = start(tmp_path, "--steps=1000000000", "--print-every=10")
    assert ranks[2].stdout is not None
    for line in ranks[2].stdout:
        if line.startswith("step "):
            break
    ranks[2].kill()
    ended = said(ranks)
    assert [rank.returncode for rank in ranks] == [1, 1, -9]
    assert all("Error" in err.splitlines()[-1] for _, err in ended[:2])

"""Notes when the user's own function first ran on a rank: one file per rank, with the seconds since the epoch."""

import os
import time


def note(rank: int) -> None:
    path = os.path.join(os.environ["FIRST_LINE_FOLDER"], str(rank))
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(repr(time.time()))
    os.rename(f"{path}.part", path)
    print(f"rank {rank} runs", flush=True)

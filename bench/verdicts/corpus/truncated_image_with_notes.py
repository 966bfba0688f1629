# /// label
# kind = "data"
# rank = 2
# headline = "image file is truncated (37 bytes not processed)"
# without = ["cannot identify image file"]
# ///
"""A pipeline hides the decoder's own error (`from None`) and adds notes, which stand below the error in the log."""

import os
import time

rank = int(os.environ["RANK"])


class SampleError(Exception):
    pass


def decode(key):
    if (rank, key) == (2, 34):
        raise OSError("image file is truncated (37 bytes not processed)")
    return bytes(16)


def samples(shard):
    for key in range(60):
        try:
            yield decode(key)
        except OSError as error:
            wrapped = SampleError(f"{shard}: {key:09d}.jpg: {error}")
            wrapped.add_note("stage: decode_rgb8 (2 of 4), worker 0 of 1")
            wrapped.add_note("skipped before it, limit 1:")
            wrapped.add_note("  000000021.jpg: UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f2b1c>")
            raise wrapped from None


def train():
    for number, image in enumerate(samples(f"train-{rank:06d}.tar")):
        if number % 20 == 0:
            print(f"rank {rank}: {number} images of {len(image)} bytes", flush=True)
        time.sleep(0.05)


train()
time.sleep(600)

"""Run the garbage collector less often, for processes that read thousands of small objects and keep most of them."""

import gc

# New objects before a collection; Python's default is 700. One of 10,000 takes 5 ms. Of 50,000 it takes 40 ms, and every
# 24th page of the API's list of jobs had to wait for one: serializers and forms are full of reference cycles.
YOUNG = 10_000


def settle() -> None:
    """Freeze what is loaded: it lives as long as the process and never needs to be collected."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)

"""Fewer looks of the garbage collector, for processes that read thousands of small objects and keep most of them."""

import gc

YOUNG = 50_000  # objects that are new, before the collector looks; 700 by default


def settle() -> None:
    """When the program is read: it stays as long as its process, and needs no looking at."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)

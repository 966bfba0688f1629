# /// label
# kind = "user_code"
# rank = 0
# headline = "TypeError: cannot pickle '_thread.lock' object"
# traceback = ["broadcast_object_list"]
# ///
"""Rank 0 builds the vocabulary and sends it to the others, with the lock that guards its cache."""

import threading

import torch.distributed as dist


class Vocabulary:
    def __init__(self, words):
        self.numbers = {word: number for number, word in enumerate(words)}
        self.guard = threading.Lock()


def main():
    dist.init_process_group("gloo")
    sent = [Vocabulary("the of and to".split())] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(sent, src=0)
    print("vocabulary has", len(sent[0].numbers), "words", flush=True)


if __name__ == "__main__":
    main()

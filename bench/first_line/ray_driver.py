"""A Ray driver: one actor for each rank, on the workers' CPUs."""

import sys

import ray
from noted import note

COUNT = int(sys.argv[1])


@ray.remote(num_cpus=1)
class Rank:
    def run(self, rank: int) -> None:
        note(rank)


ray.init(address="auto")
ranks = [Rank.remote() for _ in range(COUNT)]
ray.get([one.run.remote(rank) for rank, one in enumerate(ranks)])

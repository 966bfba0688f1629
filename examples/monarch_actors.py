"""Estimates pi with Monarch actors on a mesh of hosts, without PyTorch: a first look at meshes, slices and endpoints.

    muster submit --framework monarch --nodes 2 --nproc 2 -- python3 monarch_actors.py

Each actor is in a process of its own on one of the job's hosts. What it prints begins with `self.rank=`, so its lines
are in the log of its rank.
"""

import argparse
import os
import random

from monarch.actor import Actor, current_rank, endpoint
from monarch.job.kubernetes import KubernetesJob


class Dart(Actor):
    """Throws darts at a square, and counts those in its circle."""

    def __init__(self, seed: int) -> None:
        self.rank = current_rank().rank
        self.draw = random.Random(seed + self.rank)
        self.points = self.hits = 0

    @endpoint
    def throw(self, points: int) -> tuple[int, int]:
        """Return all points so far, and how many of them were hits."""
        self.points += points
        self.hits += sum(self.draw.random() ** 2 + self.draw.random() ** 2 <= 1.0 for _ in range(points))
        print(f"self.rank={self.rank} {self.hits} hits of {self.points} points", flush=True)
        return self.points, self.hits


def main() -> None:
    options = arguments()
    job = KubernetesJob(namespace=namespace())
    job.add_mesh(options.mesh_name, options.num_hosts)
    hosts = getattr(job.state(cached_path=None), options.mesh_name)
    darts = hosts.spawn_procs({"gpus": options.gpus_per_host}).spawn("darts", Dart, options.seed)
    for number in range(1, options.rounds + 1):
        thrown = [answer for _, answer in darts.throw.call(options.points).get().items()]
        points, hits = (sum(column) for column in zip(*thrown, strict=True))
        print(f"round {number}: {len(thrown)} actors, pi is about {4 * hits / points:.4f}", flush=True)
    alone = [answer for _, answer in darts.slice(hosts=0).throw.call(options.points).get().items()]
    print(f"the actors of the first host alone: {len(alone)}", flush=True)
    hosts.shutdown().get()


def namespace() -> str:
    """Return the namespace of this pod; outside of a cluster any name does."""
    path = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
    if not os.path.exists(path):
        return "muster-jobs"
    with open(path) as file:
        return file.read()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_hosts", type=int, default=2, help="the job's own number if omitted, like the next two")
    parser.add_argument("--gpus_per_host", type=int, default=2)
    parser.add_argument("--mesh_name", default="mesh")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--points", type=int, default=100_000, help="of each actor in each round")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Estimates pi with Ray tasks, and keeps the sum in an actor. The tasks run on the workers of the job's own cluster.

muster submit --framework ray --nodes 2 -- python ray_tasks.py
"""

import argparse
import random

import ray


@ray.remote(num_cpus=1)
def hits(points: int, seed: int) -> int:
    """Return how many of so many random points of a square lie in its circle."""
    draw = random.Random(seed)
    return sum(draw.random() ** 2 + draw.random() ** 2 <= 1.0 for _ in range(points))


@ray.remote(num_cpus=0)
class Total:
    def __init__(self) -> None:
        self.points = self.hits = 0

    def add(self, points: int, found: int) -> float:
        """Add one task's result; return the estimate so far."""
        self.points, self.hits = self.points + points, self.hits + found
        return 4 * self.hits / self.points


def main() -> None:
    options = arguments()
    ray.init()  # finds the job's cluster by RAY_ADDRESS
    nodes = [node for node in ray.nodes() if node["Alive"]]
    print(f"{len(nodes)} Ray nodes, {ray.cluster_resources().get('CPU', 0):g} CPUs for tasks", flush=True)
    total = Total.remote()
    running = [hits.remote(options.points, seed) for seed in range(options.tasks)]
    for done in range(1, options.tasks + 1):
        ready, running = ray.wait(running)
        estimate = ray.get(total.add.remote(options.points, ray.get(ready[0])))
        if done % options.print_every == 0 or done == options.tasks:
            print(f"{done} of {options.tasks} tasks: pi is about {estimate:.4f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--points", type=int, default=100_000, help="of each task")
    parser.add_argument("--print-every", type=int, default=10, help="tasks between lines of log")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""A Monarch controller: one actor for each rank. Hosts started by hand are named in FIRST_LINE_HOSTS."""

import os
import sys

from monarch.actor import Actor, attach_to_workers, current_rank, endpoint
from monarch.job.kubernetes import KubernetesJob
from noted import note

HOSTS, PROCESSES = int(sys.argv[1]), int(sys.argv[2])


class Rank(Actor):
    @endpoint
    def run(self) -> None:
        note(current_rank().rank)


if by_hand := os.environ.get("FIRST_LINE_HOSTS"):
    hosts = attach_to_workers(name="mesh", ca="trust_all_connections", workers=by_hand.split())
else:
    job = KubernetesJob(namespace="bench")
    job.add_mesh("mesh", HOSTS)
    hosts = job.state(cached_path=None).mesh
hosts.spawn_procs({"gpus": PROCESSES}).spawn("ranks", Rank).run.call().get()
hosts.shutdown().get()

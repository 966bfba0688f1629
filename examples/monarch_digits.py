"""Trains the network of ddp_digits.py with DistributedDataParallel on a mesh of Monarch hosts.

    muster submit --framework monarch --nodes 2 --nproc 2 -- python3 monarch_digits.py

The script is a controller: it finds the job's hosts, starts a process for each GPU (or CPU slot) on them, and calls
their actors. Each of these is a rank with a log, steps and a loss of its own.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from ddp_digits import digits, measure, network, train_step
from monarch.actor import Actor, endpoint
from monarch.job.kubernetes import KubernetesJob
from monarch.spmd import setup_torch_elastic_env
from monarch.tools.network import AddrType
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

try:
    import muster
except ImportError:  # without Muster: the same training, without reports
    muster = None


class Trainer(Actor):
    """One rank. Its variables (RANK, WORLD_SIZE, MASTER_ADDR, ...) are set when it is made."""

    def __init__(self) -> None:
        torch.set_num_threads(1)  # several ranks share this machine's cores
        torch.manual_seed(0)
        self.has_gpus = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if self.has_gpus else "cpu")
        dist.init_process_group("nccl" if self.has_gpus else "gloo")
        self.model = DistributedDataParallel(network().to(self.device))
        print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {self.device}", flush=True)

    @endpoint
    def train(self, *, epochs: int, batch_size: int, lr: float, print_every: int) -> float:
        """Return the accuracy on the test images."""
        training, test = digits()
        optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        sampler = DistributedSampler(training, drop_last=True)
        batches = DataLoader(training, batch_size, sampler=sampler, drop_last=True)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for step, (images, labels) in enumerate(batches, epoch * len(batches) + 1):
                loss = train_step(self.model, optimizer, images.to(self.device), labels.to(self.device))
                if muster:
                    muster.report(step=step, loss=loss)
                if step % print_every == 0:
                    print(f"step {step} loss {loss:.4f}", flush=True)
        return measure(self.model, test, self.device)

    @endpoint
    def end(self) -> None:
        dist.destroy_process_group()


def main() -> None:
    options = arguments()
    job = KubernetesJob(namespace=options.namespace)
    job.add_mesh(options.mesh_name, options.num_hosts)
    hosts = getattr(job.state(cached_path=None), options.mesh_name)
    procs = hosts.spawn_procs({"gpus": options.gpus_per_host})
    # Hosts are reached by their addresses: the name that a pod has for itself means nothing to another one.
    setup_torch_elastic_env(procs, use_ipaddr=AddrType.IPv4)
    trainers = procs.spawn("trainers", Trainer)
    settings = {
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "lr": options.lr,
        "print_every": options.print_every,
    }
    accuracies = trainers.train.call(**settings).get()
    print(f"test accuracy {next(iter(accuracies.values())):.2%}", flush=True)
    trainers.end.call().get()
    hosts.shutdown().get()


def own_namespace() -> str:
    """The namespace of this pod; any name will do where there is none."""
    try:
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text()
    except OSError:
        return "muster-jobs"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_hosts", type=int, default=2)
    parser.add_argument("--gpus_per_host", type=int, default=2)
    parser.add_argument("--mesh_name", default="mesh")
    parser.add_argument("--namespace", default=own_namespace(), help="of the hosts' pods")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--print-every", type=int, default=20, help="steps between lines of log")
    return parser.parse_args()


if __name__ == "__main__":
    main()

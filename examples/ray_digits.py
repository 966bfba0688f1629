"""Trains the network of ddp_digits.py with Ray Train, one training process for each CPU or GPU of the job's workers.

    muster submit --framework ray --nodes 2 -- python ray_digits.py

Each training process is a rank with a log, steps and a loss of its own. Goes on from its newest checkpoint after a restart.
"""

import argparse
import tempfile
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
from ddp_digits import digits, measure, network, train_step
from torch.utils.data import DataLoader

try:
    import muster
except ImportError:  # without Muster: the same training, without reports
    muster = None


def main() -> None:
    options = arguments()
    ray.init()  # finds the job's cluster by RAY_ADDRESS
    there = ray.cluster_resources()
    has_gpus = there.get("GPU", 0) > 0
    trainer = ray.train.torch.TorchTrainer(
        train_worker,
        train_loop_config=vars(options),
        scaling_config=ray.train.ScalingConfig(num_workers=int(there["GPU" if has_gpus else "CPU"]), use_gpu=has_gpus),
        run_config=ray.train.RunConfig(name="digits", storage_path=muster.checkpoints() if muster else None),
    )
    result = trainer.fit()
    print(f"test accuracy {result.metrics['accuracy']:.2%}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--print-every", type=int, default=20, help="steps between lines of log")
    return parser.parse_args()


def train_worker(options: dict) -> None:
    """What each rank runs."""
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(0)
    rank = ray.train.get_context().get_world_rank()
    print(f"rank {rank} of {ray.train.get_context().get_world_size()}", flush=True)
    training, test = digits()
    model = ray.train.torch.prepare_model(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=options["lr"])
    batches = ray.train.torch.prepare_data_loader(DataLoader(training, options["batch_size"], drop_last=True))
    epoch = resume(model, optimizer)
    step = epoch * len(batches)
    while epoch < options["epochs"]:
        for images, labels in batches:
            loss = train_step(model, optimizer, images, labels)
            step += 1
            if muster:
                muster.report(step=step, loss=loss)
            if step % options["print_every"] == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
        epoch += 1
        save(model, optimizer, epoch, accuracy=measure(plain(model), test, ray.train.torch.get_device()))


def plain(model: torch.nn.Module) -> torch.nn.Module:
    """The model as `measure` takes it: one rank alone is not wrapped."""
    return model if hasattr(model, "module") else argparse.Namespace(module=model)


def save(model, optimizer, epoch: int, *, accuracy: float) -> None:
    """Rank 0's checkpoint is kept; every rank reports, and waits for the others there."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            state = {"model": plain(model).module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(folder, "state.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"accuracy": accuracy}, checkpoint=checkpoint)


def resume(model, optimizer) -> int:
    """Load the newest checkpoint on every rank. Return the number of finished epochs, 0 without one."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        saved = torch.load(Path(folder, "state.pt"), weights_only=True)
    plain(model).module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    print(f"going on after epoch {saved['epoch']}", flush=True)
    return saved["epoch"]


if __name__ == "__main__":
    main()

# /// label
# kind = "user_code"
# rank = 3
# headline = "KeyError: 'labels'"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist


def batches(rank):
    for step in range(30):
        batch = {"pixels": torch.randn(4, 16), "labels": torch.randint(0, 5, (4,))}
        if rank == 3 and step == 4:
            batch["label"] = batch.pop("labels")
        yield batch


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    head = torch.nn.Linear(16, 5)
    for step, batch in enumerate(batches(rank)):
        loss = torch.nn.functional.cross_entropy(head(batch["pixels"]), batch["labels"])
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step}: loss {total.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

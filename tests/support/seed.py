"""Typical jobs: running with metrics and logs, failed, waiting. Rows come from the real services and ingest."""

import math
from collections.abc import Iterable
from datetime import timedelta

from django.utils import timezone

from accounts.models import Team
from jobs.ingest import apply
from jobs.models import Checkpoint, ClusterLook, ClusterNode, Delivery, Job, NodeHistory, Rank, Replica, Webhook
from jobs.webhooks import sealing
from tests.support.builders import Lab, batch, identity, item, log_item

STEPS = 120
TROUBLE = [
    "Traceback (most recent call last):",
    '  File "train.py", line 88, in step',
    "    out = model(images)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
]


def running(lab: Lab, *, nodes: int = 2, per_node: int = 2, steps: int = STEPS, late: int | None = None, **sent) -> Job:
    """A job that trains; `late` is a rank that is far behind the others."""
    job = lab.running(nodes=nodes, nproc_per_node=per_node, **sent)
    for node in range(nodes):
        ranks = range(node * per_node, (node + 1) * per_node)
        items = [
            one for rank in ranks for one in _life(rank, steps * 2 // 3 if rank == late else steps, rank % per_node)
        ]
        apply.apply_batch(identity=identity(job, node), batch=batch(1, *items))
    job.refresh_from_db()
    return job


def failed(lab: Lab, *, rank: int = 1, code: int = 1, lines: list[str] | None = None, **sent) -> Job:
    """A job whose rank failed first, with a traceback; the others were stopped."""
    job = running(lab, **{"name": "resnet-sweep-14", **sent})
    now = timezone.now().timestamp()
    for index in range(job.nodes):
        items = []
        for local in range(job.nproc_per_node):
            number = index * job.nproc_per_node + local
            end = {"exit_code": code, "error_at": now - 3} if number == rank else {"signal": 15, "is_stopped": True}
            if number == rank:
                items.append(log_item(number, STEPS, [(now - 3, line) for line in lines or TROUBLE]))
            items.append(item("rank", rank=number, local_rank=local, state="failed", at=now - 2 + local, **end))
        apply.apply_batch(identity=identity(job, index), batch=batch(2, *items))
    return lab.finish(job, *(code for _ in range(job.nodes)))


def queued(lab: Lab, **sent) -> Job:
    """A job that waits for quota; the queue must be full."""
    from jobs.scheduling.scheduler import schedule

    job = lab.submit(**{"name": "moe-ablation-3", "command": "torchrun train.py --experts 8", **sent})
    schedule()
    job.refresh_from_db()
    return job


def checkpoints(job: Job, *, steps: Iterable[int]) -> None:
    """As its agent listed them a minute ago, and one whose name says no step."""
    now = timezone.now()
    names: dict[str, int | None] = {**{f"step-{step:08}.pt": step for step in steps}, "last.pt": None}
    Checkpoint.objects.bulk_create(
        Checkpoint(
            job=job, name=name, step=step, size_bytes=None if step is None else step << 20, attempt=job.attempt,
            written_at=now - timedelta(minutes=5), seen_at=now - timedelta(minutes=1),
        )
        for name, step in names.items()
    )  # fmt: skip


def nodes(job: Job, *, count: int = 130) -> list[ClusterNode]:
    """Nodes of eight GPUs as beat wrote them a moment ago, the job's replicas on the first ones, and a few with problems."""
    now = timezone.now()
    cluster, trouble = job.queue.cluster, {
        "gpu-3": {"silence": "Kubelet stopped posting node status.", "silent_since": now - timedelta(minutes=7)},
        "gpu-4": {"is_cordoned": True}, "gpu-5": {"troubles": ["DiskPressure"]}, "gpu-6": {"gpus": 4, "product": "L4"},
    }  # fmt: skip
    rows = ClusterNode.objects.bulk_create(
        ClusterNode(
            cluster=cluster, name=f"gpu-{number}", number=number, first_seen_at=now, changed_at=now, taints=["gpu=true:NoSchedule"],
            levels={"example.org/rack": f"r{number // 16}"},
            **{"gpus": 8, "product": "NVIDIA-H100-80GB-HBM3", "others": number % 3, **trouble.get(f"gpu-{number}", {})},
        )
        for number in range(1, count + 1)
    )  # fmt: skip
    ClusterLook.objects.create(cluster=cluster, asked_at=now, seen_at=now)
    NodeHistory.objects.bulk_create(
        NodeHistory(node=rows[0], at=now - timedelta(hours=hours), kind=kind, words=words)
        for hours, kind, words in (
            (30, "appeared", "8 nvidia.com/gpu"),
            (2, "not_ready", "no network"),
            (1, "ready", ""),
        )
    )
    for replica in Replica.objects.filter(job=job):
        Replica.objects.filter(pk=replica.pk).update(node=f"gpu-{1 + replica.index}", last_batch_at=now)
    Rank.objects.filter(job=job, rank=0).update(gpu=0.0, gpu_idle_since=now - timedelta(minutes=9))
    Rank.objects.filter(job=job, rank=2).update(gpu_xid=79)
    return rows


def webhook(team: Team, *, name: str = "chat", job: Job | None = None) -> Webhook:
    """A webhook that was told something in each state, without a look at its address."""
    sealed = {
        "sealed_url": sealing.seal_url("https://93.184.216.34/x"),
        "sealed_secret": sealing.seal_secret("whsec_eA=="),
    }
    made = Webhook.objects.create(team=team, name=name, host="93.184.216.34", events=["end", "failure"], **sealed)
    now = timezone.now()
    error = "93.184.216.34 is an address that nobody answers at; " * 4
    for event, values in (
        ("ping", {"delivered_at": now, "status_code": 200}),
        ("failed", {"gave_up_at": now, "error": error, "tries": 8}),
        ("cancelled", {"next_try_at": now + timedelta(hours=1), "error": "answered 500", "status_code": 500}),
    ):
        Delivery.objects.create(webhook=made, event=event, job=None if event == "ping" else job, payload={}, **values)
    return made


def _life(rank: int, steps: int, local: int) -> list:
    """The items that an agent sends for one rank over two minutes."""
    begin = (timezone.now() - timedelta(minutes=2)).timestamp()
    spacing = 118 / max(1, steps)
    points = [[begin + step * spacing, step, _values(step, rank)] for step in range(1, steps + 1)]
    lines = [(begin + step * spacing, _line(step, rank)) for step in range(1, steps + 1)]
    samples = [
        item(
            "sample",
            rank=rank,
            at=begin + second,
            cpu=0.86 + 0.1 * math.sin(second / 9 + rank),
            rss_bytes=int(5e8 + 2e6 * second),
            gpu=None,
            gpu_mem_bytes=None,
        )
        for second in range(0, 118, 4)
    ]
    return [
        item("rank", rank=rank, local_rank=local, pid=4000 + rank, state="running", at=begin),
        log_item(rank, 0, lines),
        item("metrics", rank=rank, points=points if rank == 0 else [[at, step, {}] for at, step, _ in points]),
        *samples,
    ]


def _values(step: int, rank: int) -> dict[str, float]:
    noise = 0.04 * math.sin(step * 1.7 + rank) + 0.02 * math.cos(step * 4.1)
    return {
        "loss": 2.3 * math.exp(-step / 45) + 0.12 + noise * math.exp(-step / 120),
        "accuracy": 0.97 - 0.86 * math.exp(-step / 30) + noise / 5,
    }


def _line(step: int, rank: int) -> str:
    if step == 7 and rank == 1:
        return "\x1b[33mUserWarning: the dataloader has 2 workers, 4 would be faster\x1b[0m"
    return f"step {step} loss {_values(step, rank)['loss']:.4f} lr 3.0e-4"

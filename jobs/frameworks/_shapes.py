"""Fields that several frameworks have, and what they become: CPU and memory of a role's pods, one process as a rank."""

from jobs.core.fields import quantity, whole
from jobs.core.spec import JobSpec
from queues.shape import ReplicaShape, of_resources

WORKER = (
    quantity("worker_cpu", "CPU of a worker", "CPU of each worker's pod in place of the cluster's", example="8 or 500m"),
    quantity("worker_memory", "Memory of a worker", "memory of each worker's pod in place of the cluster's", example="32Gi"),
)  # fmt: skip

# Many scripts take RANK for the sign that there are other ranks, and start NCCL where nobody else is.
DISTRIBUTED = whole(
    "distributed", "Distributed", "1: a single process gets RANK, WORLD_SIZE and MASTER_ADDR, too, as several always do",
    least=0, most=1, remedy="use 1 for scripts that call init_process_group('env://') in any case",
)  # fmt: skip


def of(spec: JobSpec, role: str) -> ReplicaShape:
    """Return a role's own layer: the fields `<role>_cpu` and `<role>_memory`, as far as they are given."""
    return of_resources(cpu=spec.options.get(f"{role}_cpu", ""), memory=spec.options.get(f"{role}_memory", ""))

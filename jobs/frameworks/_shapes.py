"""CPU and memory of a role's pods: fields that several frameworks have, and what they become."""

from jobs.core.fields import quantity
from jobs.core.spec import JobSpec

WORKER = (
    quantity("worker_cpu", "CPU of a worker", "CPU of each worker's pod in place of the cluster's", example="8 or 500m"),
    quantity("worker_memory", "Memory of a worker", "memory of each worker's pod in place of the cluster's", example="32Gi"),
)  # fmt: skip


def of(spec: JobSpec, role: str) -> dict[str, str]:
    """Return a role's own resources: the fields `<role>_cpu` and `<role>_memory`, as far as they are given."""
    return {name: spec.options[f"{role}_{name}"] for name in ("cpu", "memory") if f"{role}_{name}" in spec.options}

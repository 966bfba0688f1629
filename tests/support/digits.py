"""The expected result of the sample job (examples/ddp_digits.py) on any cluster."""

from muster.client import Client
from muster.jobs.models import Job


def assert_trained(client: Client, job: Job, *, ranks: int) -> None:
    """All ranks succeeded, and the network recognizes digits."""
    assert [(one.rank, one.state, one.exit_code) for one in client.ranks(job.id)] == [
        (number, "succeeded", 0) for number in range(ranks)
    ]
    series = {one.name: one.points for one in client.metrics(job.id) if one.rank == 0}
    assert series["accuracy"][-1].value > 0.95
    assert len(series["loss"]) > 3

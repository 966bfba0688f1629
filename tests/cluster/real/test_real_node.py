"""Jobs on real pods, through the whole installation: HTTP, Postgres, Celery, watcher, API server, kubelet, containers."""


def test_the_digits_job_trains_on_two_pods_with_two_ranks_each(pods):
    job = pods.digits()
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(job)[-30:])
    ranks = pods.client.ranks(job.id)
    assert [(rank.rank, rank.state, rank.exit_code) for rank in ranks] == [
        (number, "succeeded", 0) for number in range(4)
    ]
    series = {one.name: one.points for one in pods.client.metrics(job.id) if one.rank == 0}
    assert series["accuracy"][-1].value > 0.95
    assert pods.of(job) == []

"""Changes of pods, and how soon they are committed rows.

First 300 a second for 30 s on a real API server, in an open loop, beside a bare watch of the same pods: the rows come from the
watcher of a whole installation, and a listener of the database is notified at each commit. How many the bare rig takes when nobody
else is there is measured before, and the same is done once more with the share of this limit that 300 have of the 880 a
second for which the bound was set. Then what the bare watch recorded is played back at 1,000 a second
into the watcher of another installation.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rig.world import NAMESPACE

from . import kube, lateness, row_news
from .changing import WORD
from .figures import Figure, Result
from .kube import Bench
from .procs import Meter, descendants, look, scaled
from .replay import Replay
from .rig import Rig, rig

RATE, SECONDS = 300, 30
SHARE = 300 / 880
LIMIT_SECONDS = 10
REPLAYED = 1000
# So many that changes of one pod hardly ever meet: the server repeats the work of those that do, and falls behind for good.
JOBS, REPLICAS = 10, 100
DRAIN_SECONDS = 10.0


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        with kube.bench(has_lifted_limits=True, nodes=0) as bench:
            figures, notes = _live(bench, folder)
        again, more = _replayed(folder)
    return Result("watch", figures + again, {**notes, "replay": more})


def _live(bench: Bench, folder: Path) -> tuple[list[Figure], dict[str, object]]:
    limit = _limit(bench, folder)
    with kube.installation(bench, folder / "live", SCHEDULER="nobody") as muster:
        pods = _launch(bench, muster)
        figures, notes = _pass(bench, muster, folder, pods=pods, rate=RATE)
        less, more = _pass(bench, muster, folder, pods=pods, rate=round(limit * SHARE), file="less")
    figures.append(
        replace(less[0], name=f"the same at {round(limit * SHARE)} changes/s, a third of the bare rig's limit")
    )
    return figures, {**notes, "bare_rig_changes_per_second": round(limit), "at_a_third": more}


def _pass(
    bench: Bench, muster: Rig, folder: Path, *, pods: list[str], rate: int, file: str = "stream"
) -> tuple[list[Figure], dict[str, object]]:
    with row_news.RowListener(muster.env["DATABASE_URL"]) as rows, _recorder(bench, folder / file):
        with (
            Meter(lambda: descendants(muster.pid)) as meter,
            Meter(lambda: [one for process in bench.plane.processes.values() if (one := look(process.pid))]) as others,
        ):
            load = kube.load()
            summary = _change(bench, pods, rate=rate, seconds=SECONDS)
            print(summary, file=sys.stderr, flush=True)
        kube.until(lambda: _recorded(folder / file) >= summary["changes"], every=0.2)
        time.sleep(2)  # what no row holds by then counts as lost; it is not waited for
    changes = lateness.heard((folder / file).read_bytes().splitlines())
    late, lost = lateness.behind(changes, rows.changes)
    assert len(changes) == summary["changes"], f"the bare watch heard {len(changes)} of {summary}"
    figures = [
        Figure("committed behind a bare watch, p99", 1000 * lateness.p99(late), "ms", 150.0),
        Figure("seconds that the changes took", summary["seconds"], "s", 1.1 * SECONDS),
        Figure("changes that no row ever held", float(lost), "", 0.0),
    ]
    notes = {
        **summary, "pods": len(pods), "load": load, "p50_ms": round(1000 * sorted(late)[len(late) // 2], 1),
        "commits_with_rows": len({one.transaction for one in rows.changes}), "cpu_by_process": meter.by_command(),
        "cpu_of_the_rig": round(others.cpu_seconds(), 1),
    }  # fmt: skip
    print(notes, file=sys.stderr, flush=True)
    return figures, notes


def _recorded(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def _limit(bench: Bench, folder: Path) -> float:
    """Changes a second that the bare rig takes with one watch of them and no Muster; the pods are as Muster makes them."""
    bench.create("3-job", scheduler="nobody")
    pods = [pod["metadata"]["name"] for pod in kube.raw_pods("3-job")]
    with _recorder(bench, folder / "limit"):
        summary = _change(bench, pods, rate=0, seconds=LIMIT_SECONDS)
    bench.clear()
    return summary["changes"] / summary["seconds"]


def _launch(bench: Bench, muster: Rig) -> list[str]:
    """Pods that no scheduler looks at: only this benchmark changes them."""
    for _ in range(JOBS):
        kube.submit(muster, nodes=REPLICAS)

    def pods() -> list[str]:
        found = bench.admin.get(
            kube.PODS, headers={"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        )
        return [one["metadata"]["name"] for one in found.json()["items"] or []]

    kube.until(lambda: len(pods()) == JOBS * REPLICAS)
    time.sleep(6)  # until the visits of the launch are over
    return sorted(pods(), key=lambda name: name.rpartition("-")[2])  # neighbours are of different jobs


def _change(bench: Bench, pods: list[str], *, rate: int, seconds: int) -> dict[str, float]:
    words = [sys.executable, "-m", "bench.changing", str(bench.plane.kubeconfig), NAMESPACE, str(rate), str(seconds)]
    done = subprocess.run(words, input="\n".join(pods), stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


@contextmanager
def _recorder(bench: Bench, file: Path) -> Iterator[None]:
    words = [sys.executable, "-m", "bench.recorded", str(bench.plane.kubeconfig), NAMESPACE, str(file)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _replayed(folder: Path) -> tuple[list[Figure], dict[str, object]]:
    lines = [line.partition(b"\t")[2] for line in (folder / "stream").read_bytes().splitlines()]
    with Replay(lines, REPLAYED) as server:
        kubeconfig = folder / "replay.kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(server.url)))
        options = {
            "KUBECONFIG": str(kubeconfig),
            "NAMESPACE": NAMESPACE,
            "IMAGE": "x:1",
            "CONTROL_URL": "http://muster.test",
        }
        backend = {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": options}
        with rig(folder / "replay", environ={"MUSTER_CLUSTERS": json.dumps({"gpus": backend})}) as muster:
            muster.manage(
                "queue", "gpus", "--team", "demo", "--slots", "100000", "--cluster", "gpus", "--resource", "gpu"
            )
            _seed(muster, lines)
            return _play(muster, server, lines)


def _play(muster: Rig, server: Replay, lines: list[bytes]) -> tuple[list[Figure], dict[str, object]]:
    url = muster.env["DATABASE_URL"]
    wanted = {one.pod: f"{WORD} {one.number}" for one in lateness.heard(b"0\t" + line for line in lines)}
    time.sleep(3)
    with row_news.RowListener(url) as rows, Meter(lambda: descendants(muster.pid)) as meter:
        before, load = row_news.commits(url), kube.load()
        server.play()
        began = time.monotonic()
        time.sleep(server.seconds)
        while _wrong(url, wanted) and time.monotonic() < began + server.seconds + DRAIN_SECONDS:
            time.sleep(0.1)
        took, after = time.monotonic() - began, row_news.commits(url)
    writes = len({one.transaction for one in rows.changes})
    parts = scaled(meter.parts(), 1000 / len(lines))
    figures = [
        Figure("commits per replayed event", writes / len(lines), "commits", 0.05),
        Figure("pods whose row is not their last event", float(_wrong(url, wanted)), "", 0.0),
        Figure("drained after the last event", took - server.seconds, "s", 1.0),
        Figure("CPU per replayed event", sum(parts.values()), "CPU ms", parts=parts),
    ]
    notes = {
        "events": len(lines), "per_second": REPLAYED, "load": load, "commits_with_rows": writes,
        "commits_of_the_whole_database_per_event": round((after - before) / len(lines), 4), "cpu_by_process": meter.by_command(),
    }  # fmt: skip
    return figures, notes


def _wrong(url: str, wanted: dict[str, str]) -> int:
    there = row_news.reasons(url)
    return sum(there.get(pod) != reason for pod, reason in wanted.items())


def _seed(muster: Rig, lines: list[bytes]) -> None:
    runs: dict[str, int] = {}
    for name in {json.loads(line)["object"]["metadata"]["name"] for line in lines}:
        run = name.rsplit("-", 3)[0]
        runs[run] = runs.get(run, 0) + 1
    subprocess.run(
        [sys.executable, "-m", "bench.watch_seed"], env=muster.env, input=json.dumps(runs), text=True, check=True
    )


def _kubeconfig(url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": url}}], "users": [{"name": "x", "user": {"token": "x"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }  # fmt: skip

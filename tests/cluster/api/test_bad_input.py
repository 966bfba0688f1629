"""Configuration mistakes on a whole job: the API reports each in words, and no job waits without a reason."""

import base64
import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from jobs import services
from jobs.core.lifecycle import Phase
from queues.models import Queue
from rig.plane import ControlPlane
from tests.cluster.api.test_life import Life
from tests.cluster.conftest import NamespaceFixture
from tests.support.machine import need
from tests.support.patience import until

SOON = 60.0  # the promised time for a reason to appear


@pytest.fixture
def queue(team) -> Queue:
    return Queue.objects.create(name="gpus", team=team, cluster="local", nominal=32, resource="gpu", gpus_per_node=8)


@pytest.fixture
def told(as_, people):
    """All text about a job that a member of its team can read over the API."""

    def told(job) -> str:
        client, path = as_(people.viewer), f"/api/v1/jobs/{job.pk}"
        parts = (client.get(path), client.get(f"{path}/events"), client.get(f"{path}/replicas"))
        return "\n".join(part.content.decode() for part in parts)

    return told


def until_told(life: Life, job, told, words: str) -> None:
    """Visit the job until the API reports these words, within the promised time."""

    def is_told() -> bool:
        life.until(job, *Phase)
        return words in told(job)

    until(is_told, seconds=SOON)


@pytest.fixture
def expired(place: NamespaceFixture, tmp_path):
    """Kubeconfigs with expired credentials, by kind of credential."""
    need(isinstance(place.plane, ControlPlane), "only the rig's own authority signs what has expired")

    def kubeconfig(kind: str) -> Path:
        user = {"token": _old_token(place)} if kind == "token" else _old_certificate(place)
        return place.plane.write_kubeconfig(f"old-{kind}-{place.namespace}", user=user)

    return kubeconfig


def _old_token(place: NamespaceFixture) -> str:
    """A token as the API server issues it for Muster's account, expired an hour ago."""
    issued = _claims(json.loads(place.kubeconfig.read_text())["users"][0]["user"]["token"])
    now = int(time.time())
    key = serialization.load_pem_private_key((place.plane.authority.folder / "accounts.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    parts = [{"alg": "ES256", "typ": "JWT"}, {**issued, "iat": now - 9000, "nbf": now - 9000, "exp": now - 3600}]
    text = ".".join(_plain(json.dumps(one).encode()) for one in parts)
    r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_plain(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _old_certificate(place: NamespaceFixture) -> dict[str, str]:
    pair = place.plane.authority.client("yesterday", group="system:masters", has_ended=True)
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}


def _claims(token: str) -> dict:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def _plain(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_expired_credentials_are_reported_and_new_ones_are_used(place, queue, people, told, expired, tmp_path, kind):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(expired(kind).read_text())
    life = Life(place, queue, people.owner, KUBECONFIG=str(kubeconfig))
    job = life.submit_only()
    until_told(life, job, told, "the cluster does not accept Muster's credentials")
    assert job.phase == Phase.STARTING and not place.pods(), (
        "it waits, and did not fail for what is no fault of its own"
    )
    kubeconfig.write_text(place.kubeconfig.read_text())
    life.until(job, Phase.RUNNING)


def test_a_kubeconfig_without_a_server_is_reported(place, queue, people, told, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text('{"kind": "Config", "clusters": [], "contexts": [], "users": []}')
    life = Life(place, queue, people.owner, KUBECONFIG=str(kubeconfig))
    job = life.submit_only()
    until_told(life, job, told, "kubeconfig")
    assert f"kubeconfig {kubeconfig} cannot be used" in told(job) and job.phase == Phase.STARTING


def test_a_refused_connection_to_the_api_server_is_reported(place, queue, people, told, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(place.kubeconfig.read_text().replace(place.plane.url, "https://127.0.0.1:1"))
    life = Life(place, queue, people.owner, KUBECONFIG=str(kubeconfig))
    until_told(life, life.submit_only(), told, "the cluster does not answer: Cannot connect to host 127.0.0.1:1")


def test_a_missing_namespace_fails_the_job_and_is_named(place, queue, people, told):
    life = Life(place, queue, people.owner, NAMESPACE="nowhere")
    job = life.submit_only()
    until_told(life, job, told, "the cluster refuses the Service of attempt 1")
    assert "nowhere" in job.message and job.phase == Phase.STOPPING


def test_a_missing_image_is_the_reason_of_each_replica(place, queue, people, told):
    life = Life(place, queue, people.owner, IMAGE="rig/no-image")
    job = life.submit_only()
    until_told(life, job, told, "the image rig/no-image cannot be pulled (ErrImagePull): pull access denied")
    assert job.phase == Phase.STARTING
    services.cancel(job=job, by=people.owner)
    life.until(job, Phase.CANCELLED)


def test_a_pod_that_ignores_its_deletion_holds_the_quota_until_it_is_gone(place, queue, people):
    life = Life(place, queue, people.owner)
    job = life.submit(nodes=4, nproc_per_node=8)
    place.annotate(life.pod(job, 1), hang="true")
    services.cancel(job=job, by=people.owner)
    until(lambda: life.until(job, Phase.STOPPING) and list(place.pods()) == [life.pod(job, 1)])
    assert place.pods()[life.pod(job, 1)]["metadata"]["deletionGracePeriodSeconds"] > 0, (
        "the kubelet is told when to kill it"
    )
    waiting = life.submit_only(nodes=4, nproc_per_node=8)
    life.until(waiting, Phase.QUEUED)
    assert "has 0 gpu free" in waiting.wait_reason.replace("GPUs", "gpu"), waiting.wait_reason
    place.annotate(life.pod(job, 1), hang=None)
    life.until(job, Phase.CANCELLED)
    life.until(waiting, Phase.RUNNING)

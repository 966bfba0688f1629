"""A whole control plane in one folder: etcd, API server, controllers, scheduler, and KWOK for the nodes."""

import json
import shutil
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from embedded.ports import free_port

from . import programs
from .certificates import Authority, Pair
from .elsewhere import write_kubeconfig
from .processes import Process

SERVICES, SERVICE = "10.96.0.0/16", "10.96.0.1"  # the first one is the API server's own
STAGES = Path(__file__).with_name("stages.yaml")
START_SECONDS = 300  # on a machine that builds and tests at the same time
# High enough that only the machine limits a component; Kubernetes ships with 20/s and 50/s.
LIFTED = ["--kube-api-qps=5000", "--kube-api-burst=5000"]

# Trade memory for CPU, where there are two cores: Go's collector runs a quarter as often. An eighth of the API server's
# time is at stake.
GO = {"GOGC": "400"}


class ControlPlane:
    """A control plane. `has_lifted_limits`: controllers and scheduler without request limits, or as shipped.

    `silent_node_seconds`: after this long without a report a node counts as lost; 50 is what Kubernetes ships with.
    KWOK reports for all nodes, and on a busy machine it is late for a thousand. `address`: where the API server
    listens; a real node cannot reach this machine's loopback. `audits`: the users and groups whose requests it writes
    down, one JSON object for each answer, in `audit_log`.
    """

    def __init__(
        self, *, has_lifted_limits: bool = False, silent_node_seconds: int = 50, address: str = "127.0.0.1",
        audits: Sequence[str] = (),
    ):  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix="muster-kube-"))
        self.has_lifted_limits, self.silent_node_seconds = has_lifted_limits, silent_node_seconds
        self.address, self.audits = address, audits
        self.url = f"https://{address}:{free_port(address)}"
        self.authority = Authority(self.folder / "pki")
        self._admin = self.authority.client("rig-admin", group="system:masters")
        self.kubeconfig = self.write_kubeconfig("admin", user=_by_certificate(self._admin))
        self.processes: dict[str, Process] = {}

    def start(self) -> None:
        try:
            self._describe(programs.build(), programs.build(programs.SIMULATOR_SOURCES))
            for name in ("etcd", "kube-apiserver"):
                self.processes[name].start()
            self.processes["kube-apiserver"].until(self.is_ready, seconds=START_SECONDS)
            for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
                self.processes[name].start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self) -> httpx.Client:
        """Return a client for the administrator, which the caller closes."""
        context = self.tls()
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        return httpx.Client(base_url=self.url, verify=context, timeout=30)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.pair.certificate))

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def write_kubeconfig(self, name: str, *, user: dict[str, str]) -> Path:
        authority = self.authority.pair.certificate
        return write_kubeconfig(self.folder, name, url=self.url, authority=authority, user=user)

    def _describe(self, there: Path, simulator: Path) -> None:
        etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._add(there, "etcd", _etcd(self.folder / "etcd", client=etcd, peer=peer))
        self._add(there, "kube-apiserver", self._api_server(etcd))
        self._add(there, "kube-controller-manager", self._controllers())
        self._add(there, "kube-scheduler", self._scheduler())
        nodes = self.component("system:kwok", group="system:masters")
        self._add(
            simulator,
            "kwok",
            [f"--kubeconfig={nodes}", f"--config={STAGES}", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"],
        )  # fmt: skip

    def _add(self, there: Path, name: str, words: list[str]) -> None:
        self.processes[name] = Process(name, [str(there / name), *words], log=self.folder / f"{name}.log", env=GO)

    def _api_server(self, etcd: str) -> list[str]:
        server, accounts = self.authority.server(self.address), self.authority.service_account_key()
        kubelets = self.authority.client("kube-apiserver", group="system:masters")
        return [
            f"--etcd-servers={etcd}", f"--bind-address={self.address}", f"--advertise-address={self.address}",
            f"--secure-port={self.url.rpartition(':')[2]}", "--authorization-mode=Node,RBAC", "--allow-privileged",
            f"--client-ca-file={self.authority.pair.certificate}", f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}", f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            # Its own Service leads to it where a kube-proxy can follow; Kubernetes refuses loopback there.
            f"--endpoint-reconciler-type={'none' if self.address.startswith('127.') else 'lease'}",
            f"--kubelet-client-certificate={kubelets.certificate}", f"--kubelet-client-key={kubelets.key}",
            "--kubelet-preferred-address-types=InternalIP", *(self._auditing() if self.audits else []),
        ]  # fmt: skip

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def _auditing(self) -> list[str]:
        rules = [{"level": "Metadata", by: list(self.audits)} for by in ("users", "userGroups")]
        policy = {
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [*rules, {"level": "None"}],
        }  # fmt: skip
        path = self.folder / "audit.json"
        path.write_text(json.dumps(policy))
        return [f"--audit-policy-file={path}", f"--audit-log-path={self.audit_log}"]

    def _controllers(self) -> list[str]:
        mine = self.component("system:kube-controller-manager")
        accounts = self.authority.folder / "accounts.key"
        return [
            f"--kubeconfig={mine}", f"--authentication-kubeconfig={mine}", f"--authorization-kubeconfig={mine}",
            "--bind-address=127.0.0.1", f"--secure-port={free_port()}", "--leader-elect=false",
            "--use-service-account-credentials",
            f"--node-monitor-grace-period={self.silent_node_seconds}s", f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={self.authority.pair.certificate}", *(LIFTED if self.has_lifted_limits else []),
        ]  # fmt: skip

    def _scheduler(self) -> list[str]:
        mine = self.component("system:kube-scheduler")
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(mine), **({"qps": 5000, "burst": 5000} if self.has_lifted_limits else {})},
        }  # fmt: skip
        path = self.folder / "scheduler.json"
        path.write_text(json.dumps(config))
        return [f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}"]

    def component(self, user: str, *, group: str = "") -> Path:
        """Return a new kubeconfig for one of the cluster's programs."""
        pair = self.authority.client(user, group=group)
        return self.write_kubeconfig(user.replace(":", "-"), user=_by_certificate(pair))


def _etcd(folder: Path, *, client: str, peer: str) -> list[str]:
    return [
        f"--data-dir={folder}", "--unsafe-no-fsync", "--name=rig", "--log-level=warn",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=rig={peer}",
    ]  # fmt: skip


def _by_certificate(pair: Pair) -> dict[str, str]:
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}

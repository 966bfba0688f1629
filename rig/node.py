"""One real node: containerd, kubelet and the cluster's DNS, in namespaces of their own (`node_init.py`). Root only.

Its pods share a network with this machine (`network.py`), its image is made here (`image.py`), and its packages and the
job folder are two claims on folders of this machine. After a stop nothing is left.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import image, programs
from .network import Cable
from .plane import SERVICE, SERVICES, ControlPlane
from .processes import Process

NAME = "node0"
INIT = Path(__file__).with_name("node_init.py")
SOCKET = "/run/muster/containerd.sock"
LENT = "/run/muster/packages"  # this environment's packages, as the node sees them
START_SECONDS = 600
CGROUPS = Path("/sys/fs/cgroup")
PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))  # Debian's location, and everyone else's
DEBIAN = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
}  # program to package; the plug-ins have no program of their name
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")  # fmt: skip
# What kubelet and containerd write outside the folders given to them as options.
HIDDEN = ("/run", "/var/lib/kubelet", "/var/log/containers", "/var/lib/cni")
# kubernetes/pkg/kubelet/cm: setupKernelTunables
KERNEL = {
    "/proc/sys/vm/overcommit_memory": 1, "/proc/sys/vm/panic_on_oom": 0,
    "/proc/sys/kernel/panic": 10, "/proc/sys/kernel/panic_on_oops": 1,
}  # fmt: skip


class Node:
    """`cable` leads to it, `plane` must listen on the cable's address. Claims are in `folder` below the plane's.

    `has_services`: with a kube-proxy; else pods reach only the API server's own Service. `has_policies`: network policies
    are enforced.
    """

    def __init__(self, plane: ControlPlane, cable: Cable, *, has_services: bool = False, has_policies: bool = False):
        self.plane, self.cable, self.has_services, self.has_policies = plane, cable, has_services, has_policies
        self.folder = plane.folder / NAME
        self.jobs = self.folder / "jobs"  # the claim `jobs`: ReadWriteMany on real disks
        self.group = f"muster-{NAME}-{cable.number}"
        self.process = Process(NAME, [], log=self.folder / "init.log")
        self._made = [Path(name) for name in HIDDEN if not Path(name).exists()]

    def start(self) -> None:
        there = programs.build(programs.NODE_SOURCES)
        for name in ("logs", "etc", "cni"):
            (self.folder / name).mkdir(parents=True)
        self._open_jobs()
        config = self._write("init.json", self._config(there))
        for group in _groups(self.group):
            group.mkdir(exist_ok=True)
        self.process.words = ["unshare", *NAMESPACES, sys.executable, str(INIT), str(config)]
        self.process.start()
        self.process.until(lambda: bool(self._init()), seconds=START_SECONDS)
        self.cable.hand_over(self._init())
        self.process.until(self.is_ready, seconds=START_SECONDS)

    def stop(self) -> None:
        """Kill the first process: the kernel then ends all others, and removes mounts and interfaces."""
        if pid := self._init():
            os.kill(pid, signal.SIGKILL)
        self.process.stop(seconds=60)
        for group in _groups(self.group):
            remove(group)
        # While another rig has a node, removing this folder would detach that node's mount on it, and its kubelet would
        # then write to this machine's own folder.
        for folder in () if self.cable.has_neighbours() else self._made:
            if folder.exists():
                folder.rmdir()

    def is_ready(self) -> bool:
        with self.plane.client() as client:
            found = client.get(f"/api/v1/nodes/{NAME}")
        conditions = found.json().get("status", {}).get("conditions", []) if found.status_code == 200 else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def processes(self, pod: str) -> list[int]:
        """Return the pids, on this machine, of the processes in the pod of this UID, the pause container included."""
        group = next(iter(_groups(self.group)))
        lists = group.glob(f"**/pod{pod}/**/cgroup.procs")
        return [int(pid) for file in lists for pid in file.read_text().split()]

    @property
    def pid(self) -> int:
        """Of the node's first process; its namespaces are the node's."""
        return self._init()

    def inside(self, *words: str) -> str:
        """Run a program of this machine in the node's network and mounts, and return what it printed."""
        entered = ["nsenter", "--target", str(self._init()), "--net", "--mount", *words]
        return subprocess.run(entered, check=True, capture_output=True, text=True).stdout

    def take_image(self, archive: Path) -> None:
        """Import a docker-archive, so that pods can use its images with the pull policy Never."""
        self.inside("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", str(archive))

    def trust_registry(self, address: str) -> None:
        """Let pods use images of a registry at HOST:PORT without TLS."""
        folder = self._registries / address
        folder.mkdir(parents=True)
        (folder / "hosts.toml").write_text(f'[host."http://{address}"]\n  capabilities = ["pull", "resolve"]\n')

    @property
    def _registries(self) -> Path:
        return self.folder / "etc/registries"

    def _init(self) -> int:
        if not self.process.is_running:
            return 0
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _open_jobs(self) -> None:
        """Create the jobs folder, writable for the pods' user: fsGroup is not applied to a folder of the node."""
        self.plane.folder.chmod(0o711)
        self.folder.chmod(0o711)
        self.jobs.mkdir()
        self.jobs.chmod(0o777)

    def _config(self, there: Path) -> dict[str, Any]:
        """Return everything that the node's first process needs."""
        ctr = ["ctr", "--address", SOCKET]
        return {
            "hidden": {str(self._own(name)): name for name in HIDDEN},
            "kernel": {path: value for path, value in KERNEL.items() if os.path.exists(path)},
            "lent": {str(image.packages()): LENT},
            "network": {
                "cable": self.cable.far_end,
                "host": self.cable.host,
                "node": self.cable.node,
                "service": "" if self.has_services else SERVICE,
                "filtered": self.has_policies,
            },
            "logs": str(self.folder / "logs"),
            "ready": [*ctr, "version"],
            "import": [*ctr, "--namespace", "k8s.io", "images", "import", str(image.archive())],
            "programs": {
                "containerd": ["containerd", "--config", str(self._containerd())],
                "coredns": [str(there / "coredns"), "-conf", str(self._dns())],
                "kubelet": self._kubelet(there / "kubelet"),
                "service": self._proxy()
                if self.has_services
                else [
                    sys.executable,
                    str(Path(__file__).with_name("service.py")),
                    f"{SERVICE}:443",
                    self.plane.url.partition("//")[2],
                ],
                **({"firewall": self._firewall()} if self.has_policies else {}),
            },
        }

    def _own(self, name: str) -> Path:
        """Return a folder mounted at a short path in the node: it contains sockets, whose paths end at 107 bytes."""
        path = self.folder / "own" / name.lstrip("/")
        path.mkdir(parents=True)
        return path

    def _containerd(self) -> Path:
        cri = {
            "sandbox_image": image.PAUSE,
            "restrict_oom_score_adj": True,  # without CAP_SYS_RESOURCE the pause container cannot get its own score
        }
        pods = {"bin_dir": str(plugins()), "conf_dir": str(self._cni())}
        text = [
            "version = 2", f'root = "{self.folder}/containerd"', 'state = "/run/containerd"',
            "[grpc]", f'address = "{SOCKET}"',
            '[plugins."io.containerd.grpc.v1.cri"]', *map(_toml, cri.items()),
            '[plugins."io.containerd.grpc.v1.cri".cni]', *map(_toml, pods.items()),
            '[plugins."io.containerd.grpc.v1.cri".registry]', f'config_path = "{self._registries}"',
        ]  # fmt: skip
        return self._write("containerd.toml", "\n".join(text))

    def _cni(self) -> Path:
        ranges = [
            {"subnet": self.cable.subnet, "rangeStart": f"10.88.{self.cable.number}.10", "gateway": self.cable.host}
        ]
        addresses = {
            "type": "host-local",
            "ranges": [ranges],
            "routes": [{"dst": SERVICES, "gw": self.cable.node}, {"dst": "0.0.0.0/0"}],
            "dataDir": str(self.folder / "cni"),
        }
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": False, "ipMasq": False, "ipam": addresses}
        there = self.folder / "net.d"
        there.mkdir()
        (there / "pods.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}))
        return there

    def _dns(self) -> Path:
        mine = self.plane.component("rig-dns", group="system:masters")
        text = f"cluster.local:53 {{\n bind {self.cable.node}\n errors\n kubernetes cluster.local {{\n  kubeconfig {mine}\n }}\n}}\n"
        return self._write("Corefile", text)

    def _proxy(self) -> list[str]:
        """Pods of one bridge answer each other directly, so what comes by a Service is masqueraded."""
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self.plane.component("system:kube-proxy"))}, "hostnameOverride": NAME,
            "clusterCIDR": self.cable.subnet, "iptables": {"masqueradeAll": True},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        }  # fmt: skip
        program = programs.build(programs.PROXY_SOURCES) / "kube-proxy"
        return [str(program), f"--config={self._write('proxy.json', config)}"]

    def _firewall(self) -> list[str]:
        mine = self.plane.component("rig-firewall", group="system:masters")
        program = programs.build(programs.FIREWALL_SOURCES) / "kube-firewall"
        return [
            str(program), f"--kubeconfig={mine}", f"--hostname-override={NAME}",
            f"--service-cluster-ip-range={SERVICES}", "--v=1",
        ]  # fmt: skip

    def _kubelet(self, program: Path) -> list[str]:
        mine = self.plane.component(f"system:node:{NAME}", group="system:nodes")
        config = self._write("kubelet.json", self._kubelet_config())
        return [
            str(program), f"--kubeconfig={mine}", f"--config={config}",
            f"--hostname-override={NAME}", f"--node-ip={self.cable.node}",
        ]  # fmt: skip

    def _kubelet_config(self) -> dict[str, Any]:
        least = dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "1%")
        authority = str(self.plane.authority.pair.certificate)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}, "x509": {"clientCAFile": authority}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.group}", "failCgroupV1": False, "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{SOCKET}", "clusterDNS": [self.cable.node], "clusterDomain": "cluster.local",
            "resolvConf": str(self._write("resolv.conf", "")), "evictionHard": {"memory.available": "50Mi", **least},
            "imageGCHighThresholdPercent": 100,  # on a full disk it would remove images that no registry can restore
            "makeIPTablesUtilChains": False, "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "plugins"), "nodeStatusUpdateFrequency": "5s",
        }  # fmt: skip

    def _write(self, name: str, content: str | Mapping[str, Any]) -> Path:
        path = self.folder / "etc" / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


def why_not() -> str:
    """Return what is missing for a node to run; empty if nothing. Installs what Debian has."""
    if os.geteuid() != 0:
        return "a real node runs containers: run this as root"
    install()
    missing = [name for name in (*DEBIAN, "unshare", "ip") if not shutil.which(name)]
    if missing or not plugins().is_dir():
        return f"a real node needs {', '.join(missing) or 'the CNI plug-ins'}: apt-get install containerd runc containernetworking-plugins iproute2"
    return programs.why_not(programs.NODE_SOURCES)


def install() -> None:
    """Install only what is missing: a containerd other than Debian's works as well."""
    wanted = [package for program, package in DEBIAN.items() if not shutil.which(program)]
    if not plugins().is_dir():
        wanted.append("containernetworking-plugins")
    if wanted and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "-y", "--no-install-recommends", *wanted]):
            # Another apt may be at work: the machine's own at its start, or a test run beside this one.
            done = subprocess.run(
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words], env=env, capture_output=True, text=True
            )
            if done.returncode:
                print(f"apt-get {words[0]} failed: {done.stderr[-2000:]}", file=sys.stderr)


def plugins() -> Path:
    return next((path for path in PLUGINS if (path / "bridge").exists()), PLUGINS[0])


def _groups(name: str) -> Iterator[Path]:
    """Yield the group of this name in each hierarchy; version 2 has one."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS / name
        return
    for one in sorted(CGROUPS.iterdir()):
        if (one / "cgroup.procs").exists() and not one.is_symlink():
            yield one / name


def remove(group: Path) -> None:
    """Remove a control group and those below it.

    Empty by now, but the kernel may still be releasing the last process.
    """
    folders = [Path(place) for place, _, _ in os.walk(group, topdown=False)]
    end = time.monotonic() + 10
    while folders:
        try:
            folders[0].rmdir()
            folders.pop(0)
        except FileNotFoundError:
            folders.pop(0)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _toml(pair: tuple[str, object]) -> str:
    return f"{pair[0]} = {json.dumps(pair[1])}"

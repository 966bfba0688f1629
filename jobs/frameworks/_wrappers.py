"""Programs that only start another one, such as env, nice or `uv run`: which words are the command they start. Pure.

Nothing is executed or looked up. A command that cannot be read with certainty counts as one that starts nothing.
"""

import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.core.shell_words import simple_words

MOST = 8  # wrappers around each other; a command with more is left alone
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_VALUED_SHELL_FLAGS = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class _Wrapper:
    """A program and the words that may stand between it and the command that it starts.

    `subcommand` comes first if it has one, behind flags. `valued` are flags whose value is the next word, `operands`
    words before the command. `takes_module`: `-m` begins a module, as it does for Python.
    """

    subcommand: str = ""
    valued: frozenset[str] = frozenset()
    operands: int = 0
    has_assignments: bool = False
    takes_module: bool = False


def _valued(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UV_FLAGS = _valued(
    "--with --with-editable --with-requirements --python -p --extra --no-extra --group --no-group --only-group --env-file "
    "--project --directory --package --index --default-index --index-url -i --extra-index-url --find-links -f "
    "--config-file --cache-dir --color --refresh-package --reinstall-package --upgrade-package -P --from -w"
)
_CONDA_FLAGS = _valued("-n --name -p --prefix --cwd -r --root-prefix")
_WRAPPERS = {
    "env": _Wrapper(valued=_valued("-u --unset -C --chdir -a --argv0"), has_assignments=True),
    "uv": _Wrapper("run", _UV_FLAGS, takes_module=True),
    "uvx": _Wrapper(valued=_UV_FLAGS),
    "poetry": _Wrapper("run", _valued("-C --directory -P --project")),
    "pipenv": _Wrapper("run", _valued("--python --pypi-mirror")),
    "pdm": _Wrapper("run", _valued("-p --project --venv -c --config")),
    "hatch": _Wrapper("run", _valued("-e --env -p --project --config")),
    "rye": _Wrapper("run", _valued("--pyproject")),
    "pixi": _Wrapper("run", _valued("-e --environment --manifest-path")),
    "conda": _Wrapper("run", _CONDA_FLAGS),
    "mamba": _Wrapper("run", _CONDA_FLAGS),
    "micromamba": _Wrapper("run", _CONDA_FLAGS),
    "time": _Wrapper(valued=_valued("-f --format -o --output")),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "exec": _Wrapper(valued=_valued("-a")),  # a shell's own
    "command": _Wrapper(),  # likewise
    "nice": _Wrapper(valued=_valued("-n --adjustment")),
    "ionice": _Wrapper(valued=_valued("-c --class -n --classdata")),
    "numactl": _Wrapper(
        valued=_valued(
            "-i --interleave -w --weighted-interleave -m --membind -N --cpunodebind -C --physcpubind -p --preferred "
            "-P --preferred-many"
        )
    ),
    "taskset": _Wrapper(operands=1),  # a mask, or a list of CPUs behind -c
    "stdbuf": _Wrapper(valued=_valued("-i --input -o --output -e --error")),
    "timeout": _Wrapper(valued=_valued("-k --kill-after -s --signal"), operands=1),
    "tini": _Wrapper(valued=_valued("-e -p")),
    "dumb-init": _Wrapper(valued=_valued("-r --rewrite")),
}


def behind(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command into the words of its wrapper and the command that it starts; both empty if there is none."""
    if not command or (wrapper := _WRAPPERS.get(os.path.basename(command[0]))) is None:
        return [], []
    words, at = list(command), 1
    if wrapper.subcommand:
        at = _past_flags(words, at, wrapper)
        if words[at : at + 1] != [wrapper.subcommand]:
            return [], []
        at += 1
    at = _past_flags(words, at, wrapper)
    if wrapper.takes_module and words[at : at + 1] in (["-m"], ["--module"]):
        return words[:at], ["python", "-m", *words[at + 1 :]]
    at += wrapper.operands
    while wrapper.has_assignments and at < len(words) and _ASSIGNMENT.match(words[at]):
        at += 1
    return (words[:at], words[at:]) if at < len(words) else ([], [])


def in_shell(command: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Split `sh -c TEXT` into the shell's words, the assignments in TEXT and the command in it.

    All three are empty for another command, and for a text with operators, variables or patterns.
    """
    nothing: tuple[list[str], list[str], list[str]] = [], [], []
    if not command or os.path.basename(command[0]) not in _SHELLS:
        return nothing
    at, is_text = 1, False
    while at < len(command) and command[at][:1] in ("-", "+") and len(command[at]) > 1 and command[at] != "--":
        flag = command[at]
        is_text = is_text or (flag[0] == "-" and flag[1] != "-" and "c" in flag)
        at += 2 if flag in _VALUED_SHELL_FLAGS else 1
    at += command[at : at + 1] == ["--"]
    words = simple_words(command[at]) if is_text and at < len(command) else []
    begin = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return (list(command[:at]), words[:begin], words[begin:]) if begin < len(words) else nothing


def _past_flags(words: Sequence[str], at: int, wrapper: _Wrapper) -> int:
    """Return the index of the first word from `at` on that is neither a flag nor its value."""
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return at + 1
        if wrapper.takes_module and words[at] in ("-m", "--module"):
            return at
        at += 2 if words[at] in wrapper.valued else 1
    return at

"""Split a command given as one text like a shell, or explain why it needs a real shell. Pure."""

import re
import shlex
from typing import Any

MAX_COMMAND_BYTES = 64 * 1024  # far below Linux's MAX_ARG_STRLEN of 128 KiB per argument
MAX_WORDS = MAX_COMMAND_BYTES // 2  # of one letter each
_ASSIGNS = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]{0,100}\])?\+?=")
_KEYWORDS = frozenset({"!", "{", "[[", "case", "coproc", "for", "function", "if", "select", "time", "until", "while"})
_EXPANDED = re.compile(r"`|\$[A-Za-z_0-9{(@*#?!$\[-]")  # outside of single quotes
_OPERATOR = re.compile(r"[|&;<>()*]|\$['\"]")  # outside of all quotes
_BRACES = re.compile(
    r"\{(?:-?\w{1,20}\.\.-?\w{1,20}(?:\.\.-?\d{1,9})?|[^{}\s,]{0,400},[^{}\s]{0,400})\}"
)  # {1..3} and {a,b}
_CONTINUED = re.compile(r"""\\\r?\n|(\\.|'[^']*'|"(?:\\.|[^"\\])*")""", re.DOTALL)  # or the parts it is not searched in
# Assignments of plain or quoted text, and bash's `time`.
_BEFORE_COMMAND = re.compile(r"""(?:(?:time|[A-Za-z_]\w*=(?:[\w@%+=:,./-]|'[^']*'|"[^"$`\\]*")*)\s+)+""")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def is_too_long(command: Any) -> bool:
    """Whether a command is too long. Checked before splitting, whose time grows with the square of a quoted word."""
    words = [command] if isinstance(command, str) else command if isinstance(command, list | tuple) else []
    texts = (word for word in words if isinstance(word, str))
    return sum(len(text.encode(errors="surrogateescape")) + 1 for text in texts) > MAX_COMMAND_BYTES


def quoted_whole(command: Any) -> str:
    """Return the word if a command is a single one with blanks in it: its author put all of it into quotes."""
    if is_too_long(command):
        return ""
    if isinstance(command, str):
        try:
            command = split(command)
        except ValueError:
            return ""
    is_one = isinstance(command, list | tuple) and len(command) == 1 and isinstance(command[0], str)
    return command[0] if is_one and len(command[0].split()) > 1 else ""


def split(text: str) -> list[str]:
    """Split into words; a backslash at the end of a line continues it. Raises ValueError for unmatched quotes."""
    return shlex.split(_CONTINUED.sub(lambda found: _unescaped(found[1]) if found[1] else "", text))


def _unescaped(part: str) -> str:
    """Resolve the escapes within double quotes that shlex does not handle (POSIX sh, 2.2.3)."""
    if not part.startswith('"'):
        return part
    return _ESCAPED.sub(lambda found: {"$": "$", "`": "`", "\n": ""}.get(found[1], found[0]), part)


def simple_words(text: str) -> list[str]:
    """Return the words of a shell's text that is one simple command, maybe behind `time` and assignments.

    Empty if a shell would do more with it than split it: operators, variables, patterns, several lines.
    """
    text = text.strip()
    begin = found.end() if (found := _BEFORE_COMMAND.match(text)) else 0
    if is_too_long(text) or needs_shell(text[begin:]):
        return []
    try:
        return split(text)
    except ValueError:
        return []


def needs_shell(text: str) -> str:
    """Return why a command needs a shell, with the remedy; "" if it consists of words only.

    Operators, redirections, variables and patterns would become arguments of the program. Within quotes they are
    literal; so are ? and [, which occur in URLs and lists (Hydra's) far more often than in file names.
    """
    text = text.strip()
    if named := _ASSIGNS.match(text):
        return f"begins with {named[1]}=, which only a shell understands; put {named[1]} into env (--env) and remove it here"
    if (first := "".join(text.split(None, 1)[:1])) in _KEYWORDS:
        return _for_a_shell(first)
    quote, at = "", 0
    while at < len(text):
        sign = text[at]
        if sign == "\\" and quote != "'":
            at += 2 if text.startswith("\r\n", at + 1) else 1
        elif quote != "'" and _EXPANDED.match(text, at):
            return _for_a_shell(sign)
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif _OPERATOR.match(text, at) or _begins_something(text, at):
            return _for_a_shell(sign)
        elif sign in "\n\r":
            return (
                "has several lines, and a job runs one command: end a line with \\ where the command goes on in the next one, or give a "
                "shell, sh -c '...' (in it torchrun, where several processes train)"
            )
        at += 1
    return ""


def _begins_something(text: str, at: int) -> bool:
    """Whether a home or a comment begins here, or {a,b} or {1..3}, which becomes several words."""
    if text[at] in "~#":
        return at == 0 or text[at - 1].isspace()
    return _BRACES.match(text, at) is not None


def _for_a_shell(sign: str) -> str:
    return (
        f"holds {sign} outside of quotes, which only a shell understands; use a shell, sh -c '...' (in it torchrun, where several "
        f"processes train), or put {sign} into single quotes"
    )

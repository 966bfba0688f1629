"""Which files are not sent: the patterns of .gitignore and .musterignore, interpreted as git does.

Not supported, and never matching: POSIX classes within brackets (`[[:alpha:]]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ALWAYS = (".git", "__pycache__/", ".venv/", "*.pyc")
FILES = (".gitignore", ".musterignore")  # later ones win


@dataclass(frozen=True)
class Rule:
    regex: re.Pattern[str]
    is_negated: bool
    wants_folder: bool
    base: str = ""  # the folder of the ignore file, relative to the root: "" or ending in a slash

    def matches(self, path: str, *, is_folder: bool) -> bool:
        if (self.wants_folder and not is_folder) or not path.startswith(self.base):
            return False
        return self.regex.fullmatch(path[len(self.base) :]) is not None


def is_ignored(path: str, *, is_folder: bool, rules: Iterable[Rule]) -> bool:
    """Return whether the path is ignored; the last matching rule decides.

    `path` has forward slashes and is relative to where the rules begin. Nothing within an ignored folder can be
    re-included: the caller does not descend into it.
    """
    matching = [rule for rule in rules if rule.matches(path, is_folder=is_folder)]
    return bool(matching) and not matching[-1].is_negated


def rules_of_text(text: str, *, base: str = "") -> list[Rule]:
    return [rule for rule in (_rule(line, base=base) for line in text.splitlines()) if rule]


def rules_of_folder(folder: Path, *, base: str) -> list[Rule]:
    """Return the rules in the ignore files of one folder."""
    found: list[Rule] = []
    for name in FILES:
        path = folder / name
        if path.is_file():
            found += rules_of_text(path.read_text(encoding="utf-8-sig", errors="surrogateescape"), base=base)
    return found


def inherited_rules(root: Path) -> tuple[list[Rule], str]:
    """Return the rules that apply before the root's own, and the root's path below the folder they begin at.

    A folder inside a git work tree is also subject to the .gitignore files of the folders above it.
    """
    root = root.resolve()
    above = _work_tree(root)
    rules = rules_of_text("\n".join(ALWAYS))
    if above is None:
        return rules, ""
    for folder in reversed([parent for parent in root.parents if parent == above or above in parent.parents]):
        rules += rules_of_folder(folder, base=_prefix(folder.relative_to(above)))
    return rules, _prefix(root.relative_to(above))


def _work_tree(root: Path) -> Path | None:
    return next((folder for folder in [root, *root.parents] if (folder / ".git").exists()), None)


def _prefix(relative: Path) -> str:
    return "" if relative == Path() else relative.as_posix() + "/"


def _rule(line: str, *, base: str) -> Rule | None:
    line = _without_trailing_spaces(line)
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    wants_folder = line.endswith("/")
    line = line[:-1] if wants_folder else line
    regex = _regex(line)
    return Rule(regex, is_negated, wants_folder, base) if regex else None


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    escapes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if stripped != line and escapes % 2 else stripped


def _regex(pattern: str) -> re.Pattern[str] | None:
    """Translate a pattern; None for one that can match nothing: an open bracket, a lone backslash at the end."""
    # A slash anywhere but at the end ties the pattern to the folder of its file; without one it may match at any depth.
    is_anchored = "/" in pattern
    pattern = pattern[1:] if pattern.startswith("/") else pattern
    if not pattern:
        return None
    try:
        return re.compile(("" if is_anchored else "(?:.*/)?") + _translated(pattern), re.DOTALL)
    except (re.error, ValueError):
        return None


def _translated(pattern: str) -> str:
    out, at = [], 0
    while at < len(pattern):
        piece, at = _piece(pattern, at=at)
        out.append(piece)
    return "".join(out)


def _piece(pattern: str, *, at: int) -> tuple[str, int]:
    """Return the regular expression of the next element, and where the one after it begins."""
    char = pattern[at]
    if char == "*":
        return _stars(pattern, at=at)
    if char == "?":
        return "[^/]", at + 1
    if char == "[":
        return _bracket(pattern, at=at)
    if char == "\\":
        if at + 1 == len(pattern):
            raise ValueError("nothing follows the backslash")
        return re.escape(pattern[at + 1]), at + 2
    return re.escape(char), at + 1


def _stars(pattern: str, *, at: int) -> tuple[str, int]:
    """Translate stars: `**` spans folders only between slashes; elsewhere any number of stars is one."""
    end = at
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    begins, ends = at == 0 or pattern[at - 1] == "/", end == len(pattern)
    if end - at == 2 and begins and ends:
        return ".+" if at else ".*", end
    if end - at == 2 and begins and pattern[end] == "/":
        return "(?:.*/)?", end + 1
    return "[^/]*", end


def _bracket(pattern: str, *, at: int) -> tuple[str, int]:
    begin = at + 1
    is_negated = pattern[begin : begin + 1] in ("!", "^")
    begin += is_negated
    end = begin + 1  # a closing bracket in the first position is a member
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    if end >= len(pattern) or "[:" in pattern[begin:end]:
        raise ValueError("an open bracket")
    members = _members(pattern[begin:end])
    # A class never matches the slash, whatever it lists.
    return f"(?!/)[{'^' if is_negated else ''}{members}]", end + 1


def _members(text: str) -> str:
    """Translate a class's members for `re`: ranges and backslash escapes stay, everything else is taken literally."""
    out, at = [], 0
    while at < len(text):
        is_escape = text[at] == "\\" and at + 1 < len(text)
        char = text[at + 1] if is_escape else text[at]
        is_range = char == "-" and not is_escape and 0 < at < len(text) - 1
        out.append("-" if is_range else re.escape(char))
        at += 2 if is_escape else 1
    return "".join(out)

"""Which files are not sent: the patterns of .gitignore and .musterignore, interpreted as git does.

`pathspec` translates a pattern. Which pattern decides is determined here, folder by folder as in git: `GitIgnoreSpec`
itself judges whole paths of files, so that `*` followed by `!*/` and `!*.py` would leave out every folder.

Unlike in git, patterns with POSIX classes (`[[:alpha:]]`) never match, and a backslash within brackets is literal.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

UNLESS_TRACKED = ("__pycache__/", ".venv/", "*.pyc")
OWN_FILE = ".musterignore"
FILES = (".gitignore", OWN_FILE)  # later ones win
OPEN_BRACKET = re.compile(r"(?<!\\)\[(?!\^/\])")  # in an expression of pathspec, whose own brackets are `[^/]`


@dataclass(frozen=True)
class Rule:
    regex: re.Pattern[str]
    is_negated: bool
    wants_folder: bool
    is_anchored: bool  # matched against the path below its base; otherwise against the name alone
    base: str = ""  # the folder of the ignore file, relative to the root: "" or ending in a slash
    is_own: bool = False  # of .musterignore: holds for files that git tracks, too

    def matches(self, path: str, name: str, *, is_folder: bool) -> bool:
        if (self.wants_folder and not is_folder) or not path.startswith(self.base):
            return False
        found = self.regex.search(path[len(self.base) :] if self.is_anchored else name)
        # pathspec's expressions also match whatever is below; their only group is the slash after the folder itself.
        return found is not None and found.lastindex is None


def is_ignored(path: str, *, is_folder: bool, rules: Sequence[Rule]) -> bool:
    """Return whether the path is ignored. `path` has forward slashes and is relative to where the rules begin."""
    rule = deciding(path, is_folder=is_folder, rules=rules)
    return rule is not None and not rule.is_negated


def deciding(path: str, *, is_folder: bool, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule that decides about a path: the last one that matches; None if none does.

    Nothing within an ignored folder can be re-included: the caller does not descend into it.
    """
    name = path.rpartition("/")[2]
    if name == ".git":  # as git itself; `!*` must not send a repository's history and configuration
        return GIT_FOLDER
    return next((rule for rule in reversed(rules) if rule.matches(path, name, is_folder=is_folder)), None)


def rules_of_text(text: str, *, base: str = "", is_own: bool = False) -> list[Rule]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of `re`, about brackets within brackets
        return [rule for rule in (_rule(line, base=base, is_own=is_own) for line in text.splitlines()) if rule]


def rules_of_folder(folder: Path, *, base: str) -> list[Rule]:
    """Return the rules in the ignore files of one folder."""
    found: list[Rule] = []
    for name in FILES:
        path = folder / name
        if path.is_file():
            text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
            found += rules_of_text(text, base=base, is_own=name == OWN_FILE)
    return found


def default_rules() -> list[Rule]:
    return rules_of_text("\n".join(UNLESS_TRACKED))


def rules_above(root: Path, *, top: Path) -> list[Rule]:
    """Return the rules in the folders from a work tree's top down to the one above `root`."""
    above = [parent for parent in root.parents if parent == top or top in parent.parents]
    return [rule for folder in reversed(above) for rule in rules_of_folder(folder, base=place_of(folder, top=top))]


def work_tree(root: Path) -> Path | None:
    """Return the top of the git work tree that a folder is in."""
    return next((folder for folder in [root, *root.parents] if (folder / ".git").exists()), None)


def place_of(folder: Path, *, top: Path) -> str:
    """Return a folder's path for the rules: "" or ending in a slash."""
    relative = folder.relative_to(top)
    return "" if relative == Path() else relative.as_posix() + "/"


def _rule(line: str, *, base: str, is_own: bool) -> Rule | None:
    """Return the rule of a line; None for a comment, and for a pattern that can match nothing, such as `[open`."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # 30 ms that most commands do not need

    line = _without_trailing_spaces(line)
    wants_folder = line.endswith("/")
    line = line[:-1] if wants_folder else line
    if line[-1:].isspace() and not line.endswith("\\ "):
        line = f"{line[:-1]}[{line[-1]}]"  # white space that git keeps, before a slash for example, and pathspec drops
    try:
        pattern = GitIgnoreSpecPattern(line)
    except (ValueError, re.error):
        return None
    if pattern.regex is None or "[:" in line:
        return None
    # Brackets never match the slash between folders, whatever they list.
    regex = re.compile(OPEN_BRACKET.sub("(?!/)[", pattern.regex.pattern))
    return Rule(regex, not pattern.include, wants_folder, "/" in line, base, is_own)


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    escapes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if stripped != line and escapes % 2 else stripped


GIT_FOLDER = Rule(re.compile(""), is_negated=False, wants_folder=False, is_anchored=False, is_own=True)

"""SQL in files of its own: `<app>/sql/<name>.sql` holds one statement, and is read when the module that runs it is imported.

A file begins with a comment: what the statement does, what runs it, what guards it, and its parameters with types. Lines
of comments are not sent. Values are parameters, `%(name)s`. `{name}` is a fragment: SQL from our own code, such as the
columns of a model, or from a file in `<app>/sql/parts/` that several statements share. Nothing that a user sent is ever
a fragment: `load` is called at the top level of modules only (tests/unit/project/test_sql_files.py).
"""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
loaded: dict[str, list[str]] = {}  # what was read in this process: by path, once for each set of fragments
_FRAGMENT = re.compile(r"\{([a-z_]+)\}")


class BadStatement(Exception):
    """A file of SQL is missing, or its fragments are not those that it names."""


def load(path: str, **fragments: str) -> str:
    """Return the statement in this file with its fragments filled in. `path` begins with the app: jobs/sql/name.sql.

    Raises BadStatement, so that a process does not start with a statement that cannot work.
    """
    statement = _statement(path)
    text = _FRAGMENT.sub(lambda found: fragments.get(found[1], found[0]), statement)
    named = set(_FRAGMENT.findall(statement))
    if unknown := sorted(fragments.keys() - named):
        raise BadStatement(f"{path} has no fragment {{{unknown[0]}}}; it has {_listed(named)}")
    if unfilled := sorted(set(_FRAGMENT.findall(text))):
        raise BadStatement(f"{path}: fragment {{{unfilled[0]}}} is not filled in; given are {_listed(fragments)}")
    loaded.setdefault(path, []).append(text)
    return text


def _statement(path: str) -> str:
    """Return the file's text without comments, of which it has at least one, at its head."""
    try:
        text = (ROOT / path).read_text()
    except OSError as error:
        raise BadStatement(
            f"{path} cannot be read ({error.strerror}); it is installed beside the Python files"
        ) from error
    if not text.startswith("-- "):
        raise BadStatement(f"{path} does not begin with a comment on what it is for")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    if not any(line.strip() for line in lines):
        raise BadStatement(f"{path} has comments only")
    return "\n".join(lines).strip()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{{{one}}}" for one in sorted(names)) or "none"

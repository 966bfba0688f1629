"""Constructs that the server's code must not contain, checked statically."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SERVER = ("accounts", "common", "controlplane", "embedded", "jobs", "queues", "workspaces")
# Code evaluation, shells, unsafe deserialization, SQL built from strings, weak randomness and digests, XML, and
# templates built from user input.
BANNED = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.loads", "pickle.load", "marshal.loads",
    "yaml.load", "yaml.unsafe_load", "hashlib.md5", "hashlib.sha1", "random.random", "random.choice", "random.randint",
    "Template", "from_string", "RawSQL", "extra", "raw", "render_to_string_from",
}  # fmt: skip
BANNED_IMPORTS = {"pickle", "marshal", "shelve", "random", "xml", "lxml", "ldap", "telnetlib", "Crypto", "smtplib"}
OWN_MARKUP = {"jobs/templatetags/muster.py", "jobs/web/charts.py"}  # literals of ours, and values through format_html


def files() -> list[Path]:
    return [path for one in SERVER for path in sorted((ROOT / one).rglob("*.py")) if "migrations" not in path.parts]


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def is_composed(node: ast.expr) -> bool:
    """A literal in which psycopg itself places names: sql.SQL("DROP TABLE {}").format(...)."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "format":
        return False
    made = node.func.value
    return isinstance(made, ast.Call) and name_of(made) == "sql.SQL" and isinstance(made.args[0], ast.Constant)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_dangerous_is_called(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not {one.split(".")[0] for one in names} & BANNED_IMPORTS, (path, node.lineno)
        if isinstance(node, ast.Call):
            name = name_of(node)
            assert name not in BANNED, (path, node.lineno, name)
            assert name.rpartition(".")[2] not in {"RawSQL", "extra", "raw", "from_string"}, (path, node.lineno, name)
            assert not [one for one in node.keywords if one.arg == "shell" and getattr(one.value, "value", True)], path
            if name.endswith(".execute"):  # one literal statement or a constant, with parameters passed separately
                statement = node.args[0]
                is_constant = isinstance(statement, ast.Name) and statement.id.isupper()
                assert isinstance(statement, ast.Constant) or is_constant or is_composed(statement), (path, node.lineno)
            if name == "mark_safe":
                assert str(path.relative_to(ROOT)) in OWN_MARKUP, (path, node.lineno)


def ends_before_a_newline(text: str) -> list[str]:
    """Patterns that end in `$`, which also matches before a trailing newline, so that `name\\n` passes as a name."""
    found = []
    for node in ast.walk(ast.parse(text)):
        is_pattern = isinstance(node, ast.Call) and name_of(node).rpartition(".")[2] in PATTERNS
        for one in node.args[:1] if is_pattern else ():
            value = one.value if isinstance(one, ast.Constant) else ""
            words = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            if words.rstrip(")").endswith("$") and not words.endswith("\\$"):
                found.append(words)
    return found


PATTERNS = {"compile", "match", "search", "fullmatch", "findall", "sub", "RegexField", "RegexValidator"}
# Only the agent's top-level modules are checked. Modules that scan the output of ranks line by line are exempt: their
# patterns validate no input.
OF_LINES = {ROOT / "jobs/analysis" / name for name in ("error_kinds.py", "last_words.py", "tracebacks.py")}
CHECKED = [path for path in (*files(), *sorted((ROOT / "agent").rglob("*.py"))) if path not in OF_LINES]


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_pattern_accepts_a_trailing_newline(path):
    assert not ends_before_a_newline(path.read_text())


def test_the_check_for_patterns_finds_one():
    text = (
        r"""re.compile(r"^a(b)?$"); re.compile(rb"x$"); RegexField("^[0-9]$"); re.compile(r"a\Z"); re.compile(r"a\$")"""
    )
    assert ends_before_a_newline(text) == ["^a(b)?$", "x$", "^[0-9]$"]


def test_the_check_for_banned_calls_finds_them():
    found = [name_of(node) for node in ast.walk(ast.parse("eval('1'); os.system('x')")) if isinstance(node, ast.Call)]
    assert set(found) <= BANNED
    assert len(files()) > 60


@pytest.mark.parametrize("path", sorted((ROOT / "templates").rglob("*.html")), ids=lambda path: path.name)
def test_no_template_disables_escaping_or_contains_inline_script(path):
    text = path.read_text()
    for word in (
        "|safe",
        "autoescape off",
        "javascript:",
        "<style",
        " onclick=",
        " onload=",
        " style=",
        "hx-on",
        "<iframe",
    ):
        assert word not in text, (path, word)
    assert text.count("<script") == text.count("<script src=")
    assert "http://" not in text and "https://" not in text


@pytest.mark.parametrize("path", sorted((ROOT / "static").glob("*.js")), ids=lambda path: path.name)
def test_our_scripts_insert_only_text_and_store_no_secret(path):
    text = path.read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "document.cookie",
    ):
        assert word not in text, (path, word)
    assert set(__import__("re").findall(r"localStorage\.(?:get|set)Item\(\"([^\"]+)\"", text)) <= {
        "theme",
        "log-wrap",
        "split",
    }


def test_an_image_contains_no_git_history_and_no_key():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".muster", "**/.env", "**/*.kubeconfig"} <= set(ignored)

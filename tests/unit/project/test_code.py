"""Constructs that the server's code must not contain, checked statically."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SERVER = ("accounts", "common", "controlplane", "embedded", "jobs", "queues", "workspaces", "credentials", "volumes")
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


def dangers(text: str, *, of: str) -> list[str]:
    """What the code of the file `of` calls or imports and must not, each with its line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        words: list[str] = []
        if isinstance(node, ast.Import):
            words = [one.name for one in node.names if one.name.split(".")[0] in BANNED_IMPORTS]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            words = [one for one in [node.module or ""] if one.split(".")[0] in BANNED_IMPORTS]
        elif isinstance(node, ast.Call):
            words = [] if is_harmless(node, of=of) else [name_of(node)]
        found += [f"{of}:{node.lineno} {word}" for word in words]
    return found


def is_harmless(call: ast.Call, *, of: str) -> bool:
    name = name_of(call)
    if name in BANNED or name.rpartition(".")[2] in {"RawSQL", "extra", "raw", "from_string"}:
        return False
    if any(one.arg == "shell" and getattr(one.value, "value", True) for one in call.keywords):
        return False
    if name.endswith(".execute"):  # one literal statement or a constant, with parameters passed separately
        statement = call.args[0]
        is_constant = isinstance(statement, ast.Name) and statement.id.isupper()
        return isinstance(statement, ast.Constant) or is_constant or is_composed(statement)
    return name != "mark_safe" or of in OWN_MARKUP


def test_nothing_dangerous_is_called():
    assert len(files()) > 60
    found = [one for path in files() for one in dangers(path.read_text(), of=str(path.relative_to(ROOT)))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')", "os.system('x')", "import pickle", "import xml.sax", "from random import choice", "Job.objects.raw('x')",
        "x.extra(where=[])", "run('x', shell=True)", "run('x', shell=is_shell)", "cursor.execute(f'SELECT {x}')",
        "cursor.execute('%s' % x)", "cursor.execute(sql.SQL(x).format())", "mark_safe(x)",
    ],
)  # fmt: skip
def test_the_check_for_dangerous_calls_finds_one(text):
    assert len(dangers(text, of="jobs/x.py")) == 1


def test_the_check_for_dangerous_calls_accepts_what_is_safe():
    text = (
        "from . import random; run('x', shell=False); c.execute('SELECT %s', [x]); c.execute(QUERY); re.match('x', y);"
        "c.execute(sql.SQL('DROP TABLE {}').format(x))"
    )
    assert dangers(text, of="jobs/x.py") == []
    assert dangers("mark_safe(x)", of="jobs/web/charts.py") == []


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


def test_no_pattern_accepts_a_trailing_newline():
    found = {str(path.relative_to(ROOT)): ends_before_a_newline(path.read_text()) for path in CHECKED}
    assert {name: patterns for name, patterns in found.items() if patterns} == {}


def test_the_check_for_patterns_finds_one():
    text = (
        r"""re.compile(r"^a(b)?$"); re.compile(rb"x$"); RegexField("^[0-9]$"); re.compile(r"a\Z"); re.compile(r"a\$")"""
    )
    assert ends_before_a_newline(text) == ["^a(b)?$", "x$", "^[0-9]$"]


def test_no_template_disables_escaping_or_contains_inline_script():
    templates = sorted((ROOT / "templates").rglob("*.html"))
    assert len(templates) > 40
    words = (
        "|safe", "autoescape off", "javascript:", "<style", " onclick=", " onload=", " style=", "hx-on", "<iframe", "http://", "https://",
    )  # fmt: skip
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in templates}
    assert [(name, word) for name, text in texts.items() for word in words if word in text] == []
    assert [name for name, text in texts.items() if text.count("<script") != text.count("<script src=")] == []


def test_our_scripts_insert_only_text_and_store_no_secret():
    words = (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "document.cookie",
    )  # fmt: skip
    texts = {path.name: path.read_text() for path in sorted((ROOT / "static").glob("*.js"))}
    assert [(name, word) for name, text in texts.items() for word in words if word in text] == []
    kept = {key for text in texts.values() for key in re.findall(r"localStorage\.(?:get|set)Item\(\"([^\"]+)\"", text)}
    assert texts and kept <= {"theme", "log-wrap", "split"}


def test_an_image_contains_no_git_history_and_no_key():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".muster", "**/.env", "**/*.kubeconfig"} <= set(ignored)

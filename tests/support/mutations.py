"""Mutants of Python files: what can be changed in them, one small change at a time, for `tests.support.mutants`.

`<` becomes `<=`, `and` becomes `or`, a number one more, a text empty; `return x` returns None, a call that stands alone
goes, a condition is negated. Left as they are: annotations, decorators, docstrings, messages and what is logged.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
OPPOSITES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # swapping one already negates the condition
UNCHANGED_FIELDS = {"annotation", "returns", "decorator_list"}
UNCHANGED_NAMES = {"__all__", "__slots__"}
UNCHANGED_CALLS = {"log", "logger", "logging", "cast", "TypeVar", "NewType"}
MESSAGE_CHARACTERS = 40  # a longer text is a message, and so is one with a space: its wording is not a promise
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One change of one file. `id` names neither lines nor other functions, so that edits elsewhere do not alter it."""

    id: str
    path: str
    function: str  # as in a code object's co_qualname; empty where the change is outside functions
    place: int  # the change's number within the file, for `changed`
    text: str


@dataclass(frozen=True)
class Scope:
    """What a change lies in: a function, or a statement of a module or class."""

    prefix: str = ""
    function: str = ""
    label: str = "<module>"
    digest: str = ""  # of the source without comments and docstring, so that these can be edited


@dataclass
class Change:
    scope: Scope
    operator: str
    text: Callable[[], str]
    make: Callable[[], None]


def mutants(root: Path, paths: Sequence[str]) -> list[Mutant]:
    """All mutants of the files at `paths`, relative to `root`, in the order of the source."""
    found = []
    for path in paths:
        seen: Counter[tuple[str, ...]] = Counter()
        for place, one in enumerate(_changes(ast.parse((root / path).read_text()), Scope())):
            key = (one.scope.label, one.operator, one.scope.digest)
            name = "::".join((path, one.scope.label, one.operator, str(seen[key]), one.scope.digest))
            seen[key] += 1
            found.append(Mutant(name, path, one.scope.function, place, one.text()))
    return found


def changed(source: str, place: int) -> ast.Module:
    """The syntax tree of `source` with the change of this number made."""
    tree = ast.parse(source)
    list(_changes(tree, Scope()))[place].make()
    return ast.fix_missing_locations(tree)


Mentions = dict[tuple[str, Scope], set[str]]


def mentions(root: Path, paths: Iterable[str]) -> Mentions:
    """The names that each function, or statement outside functions, of these files mentions."""
    found: Mentions = {}
    for path in paths:
        for scope, name in _names(ast.parse((root / path).read_text()), Scope()):
            found.setdefault((path, scope), set()).add(name)
    return found


def readers(mentioned: Mentions, mutant: Mutant) -> set[tuple[str, str]] | None:
    """The functions, with their files, whose callers can notice the change. For one outside functions those are all that
    mention the name it binds, directly or through other statements; None if it binds no name.
    """
    label = mutant.id.split("::")[1]
    if mutant.function:
        return {(mutant.path, mutant.function)}
    if "<" in label:
        return None
    names, size = _bound(label), 0
    while size != len(names):  # a constant made of another one changes with it
        size = len(names)
        for (_, scope), there in mentioned.items():
            if not scope.function and not there.isdisjoint(names):
                names |= _bound(scope.label)
    return {(path, one.function) for (path, one), there in mentioned.items() if one.function and there & names}


def _bound(label: str) -> set[str]:
    """The default of a field is noticed by those who make such objects, a constant of a class by those who read it too."""
    *classes, name = label.split(".")
    return {*classes, *([name] if not classes or name.isupper() else [])}


def _names(node: ast.AST, scope: Scope) -> Iterator[tuple[Scope, str]]:
    """Every name and attribute; of `Kind.LONG` only the latter, since other constants of Kind are no part of it."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in ("annotation", "returns"):
                continue
            inner = _scope_of(child, scope) if isinstance(child, ast.stmt) else scope
            if isinstance(child, ast.Attribute):
                yield inner, child.attr
            if isinstance(child, ast.Name) and not (isinstance(node, ast.Attribute) and node.attr.isupper()):
                yield inner, child.id
            yield from _names(child, inner)


def _changes(node: ast.AST, scope: Scope) -> Iterator[Change]:
    for name, value in ast.iter_fields(node):
        if name in UNCHANGED_FIELDS:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_exempt(child):
                continue
            inner = _scope_of(child, scope) if isinstance(child, ast.stmt) else scope
            put = _putter(node, name, value, index)
            for operator, new in _replacements(child, node, name):
                yield Change(inner, operator, partial(_text, node, child, new, put), partial(put, new))
            yield from _changes(child, inner)


def _replacements(node: ast.AST, parent: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """The names of the operators that apply to this node, each with what it puts in the node's place."""
    if type(node) in SWAPS:
        new = SWAPS[type(node)]()
        yield f"{type(node).__name__} to {type(new).__name__}", ast.copy_location(new, node)
    match node:
        case ast.UnaryOp(op=ast.Not()):
            yield "without not", node.operand
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(value=int(value) | float(value)):
            yield "one more", ast.copy_location(ast.Constant(value + 1), node)
        case ast.Constant(value=str(value) | bytes(value)) if value and not _is_message(value):
            yield "empty text", ast.copy_location(ast.Constant(value[:0]), node)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return None", ast.copy_location(ast.Return(None), node)
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "without call", ast.copy_location(ast.Pass(), node)
    is_condition = (name == "test" and isinstance(parent, ast.If | ast.While | ast.IfExp)) or name == "ifs"
    is_opposite = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], OPPOSITES)
    if is_condition and not is_opposite and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        yield "negated", ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _is_exempt(node: ast.AST) -> bool:
    """Whether nothing inside is changed: docstrings, names for readers and type checkers, what is logged, messages."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in UNCHANGED_NAMES
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name)) | ast.Name(id=name)):
            return name in UNCHANGED_CALLS
        case ast.Expr(value=ast.Call() as call):
            return _is_exempt(call)
        case ast.If(test=ast.Name(id=name)):
            return name == "TYPE_CHECKING"
        case ast.JoinedStr(values=parts):
            return _is_message("".join(str(one.value) for one in parts if isinstance(one, ast.Constant)))
    return False


def _is_message(text: str | bytes) -> bool:
    return len(text) > MESSAGE_CHARACTERS or (" " if isinstance(text, str) else b" ") in text


def _scope_of(node: ast.stmt, scope: Scope) -> Scope:
    """The innermost function, else the statement of a module or class by the name that it binds."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        name = scope.prefix + node.name
        if isinstance(node, ast.ClassDef):
            return Scope(f"{name}.", scope.function, name, _digest(node.name, *node.bases))
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        return Scope(f"{name}.<locals>.", name, name, _digest(node.args, *body))
    if scope.function:
        return scope
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    name = targets[0].id if isinstance(targets[0], ast.Name) else "<statement>"
    return Scope(scope.prefix, "", scope.prefix + name, _digest(node))


def _digest(*parts: ast.AST | str) -> str:
    text = "\n".join(one if isinstance(one, str) else ast.unparse(one) for one in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _putter(node: ast.AST, name: str, value: object, index: int) -> Callable[[ast.AST], None]:
    return lambda new: value.__setitem__(index, new) if isinstance(value, list) else setattr(node, name, new)


def _text(parent: ast.AST, old: ast.AST, new: ast.AST, put: Callable[[ast.AST], None]) -> str:
    """For readers: the line, the changed expression or statement, and what replaces it."""
    is_whole = isinstance(old, ast.stmt) or (isinstance(parent, ast.stmt) and isinstance(old, ast.expr))
    whole = old if is_whole else parent
    before = ast.unparse(whole)
    put(new)
    after = ast.unparse(new if whole is old else parent)
    put(old)
    line = getattr(old, "lineno", getattr(parent, "lineno", 0))
    return f"line {line}: {before[:160]} => {after[:160]}"

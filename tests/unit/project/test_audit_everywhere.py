"""Every transaction of a service that writes state records an audit entry."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WRITERS = [
    "accounts/members.py", "accounts/tokens.py", "accounts/people.py", "queues/services.py", "queues/allowed.py", "jobs/services.py",
    "jobs/webhooks/services.py", "credentials/services.py", "volumes/services.py",
    "jobs/submission/cluster_checks.py",
]  # fmt: skip


def transactions(tree: ast.AST) -> list[ast.With]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any(
            ast.unparse(one.context_expr).startswith(("faultpoints.atomic(", "transaction.atomic("))
            for one in node.items
        )
    ]


def records(block: ast.With) -> bool:
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) == "audit.record" for node in ast.walk(block))


@pytest.mark.parametrize("path", WRITERS)
def test_every_transaction_of_a_service_records_an_audit_entry(path):
    found = transactions(ast.parse((ROOT / path).read_text()))
    assert found
    assert [f"{path}:{block.lineno}" for block in found if not records(block)] == []


def test_a_transaction_without_an_audit_entry_is_found():
    silent = ast.parse("with faultpoints.atomic('x'):\n    row.save()")
    assert not any(records(block) for block in transactions(silent))
    assert len(transactions(silent)) == 1

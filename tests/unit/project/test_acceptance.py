"""docs/acceptance.md names a test for each item that is there: it exists, it runs in some size, and no item is twice."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support import owners

PAGE = Path(__file__).resolve().parents[3] / "docs/acceptance.md"
OWNER = r"`[\w/]+\.py::\w+`"
ROW = re.compile(
    r"^\| (?P<id>[A-Z]\d+) \| (?P<phrase>\S.*?) \| (?P<state>yes|no|partly: \S.*?) "
    rf"\| (?P<owners>(?:{OWNER}(?:, {OWNER})*)?) ?\|$"
)


def lines() -> list[str]:
    """Every row of the page's tables, as it is written."""
    parts = PAGE.read_text().split("| item | what a user gets | state | shown by |\n|---|---|---|---|\n")[1:]
    return [line for part in parts for line in part.partition("\n\n")[0].splitlines()]


def rows() -> list[re.Match[str]]:
    return [row for row in map(ROW.match, lines()) if row]


def named(row: re.Match[str]) -> list[tuple[str, str]]:
    """The tests that a row names, each as file and name."""
    return [(path, name) for path, name in re.findall(r"`([^`:]+)::(\w+)`", row["owners"])]


def test_every_item_is_one_row_with_a_known_state():
    unread = [line for line in lines() if not ROW.match(line)]
    twice = [item for item, count in Counter(row["id"] for row in rows()).items() if count > 1]
    assert lines() and not unread, "not `| id | phrase | yes, no, or partly: what is missing | tests |`:\n" + "\n".join(
        unread
    )
    assert not twice, f"twice: {', '.join(twice)}"


def test_exactly_the_items_that_are_there_name_a_test():
    wrong = [row["id"] for row in rows() if bool(row["owners"]) is (row["state"] == "no")]
    assert not wrong, f"yes and partly name a test, no names none: {', '.join(wrong)}"


def test_every_named_test_exists_and_runs_in_some_size():
    found = {(row["id"], *test) for row in rows() for test in named(row)}
    missing = sorted(f"{item}: {path}::{name}" for item, path, name in found if not owners.exists(path, name))
    assert not missing, "no such test:\n" + "\n".join(missing)
    idle = sorted(f"{item}: {path}::{name}" for item, path, name in found if not owners.sizes_of(path, name))
    assert not idle, "no size of bin/test runs:\n" + "\n".join(idle)


@pytest.mark.parametrize(
    ("path", "marks", "sizes"),
    [
        ("db/queues/test_templates.py", {"django_db", "parametrize"}, {"quick", "ci", "all"}),
        ("cluster/node/test_real_node.py", {"full"}, {"all"}),
        ("cluster/api/test_spread.py", set(), {"ci", "all"}),
        ("cluster/api/test_spread.py", {"ci", "soak"}, {"soak"}),
        ("unit/core/test_spec.py", {"soak"}, set()),  # that lane is not in the size
        ("unit/core/test_spec.py", {"skip"}, set()),
        ("support/owners.py", set(), set()),
    ],
)
def test_sizes_that_run_a_test_follow_from_its_folder_and_its_marks(path, marks, sizes):
    assert owners.sizes_with(path, marks) == sizes


def test_marks_of_a_test_and_of_its_file_are_read():
    own = owners.sizes_of("db/queues/test_templates.py", "test_a_job_keeps_the_version_that_it_was_submitted_with")
    assert own == {"quick", "ci", "all"}
    assert owners.sizes_of("cluster/node/test_real_node.py", "test_a_rank_out_of_memory_is_named_and_its_earlier_output_is_kept") == {"all"}  # fmt: skip
    of_its_file = owners.sizes_of(
        "process/embedded/test_job_user.py", "test_a_job_cannot_read_the_secrets_of_its_installation"
    )
    assert of_its_file == {"ci", "all"}

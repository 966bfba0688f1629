"""The documentation matches the code."""

import re
from functools import cache
from pathlib import Path

from controlplane.operations import npm
from tests.support import keys

ROOT = Path(__file__).resolve().parents[3]


def test_every_setting_is_documented():
    code = (ROOT / "controlplane/settings.py").read_text()
    named = set(re.findall(r'(?:environ\.get\(|environ\[|_flag\(|_secret\(|_number\(|_networks\()\s*"([A-Z_]+)"', code))
    documented = set(re.findall(r"^\| `([A-Z_]+)`", (ROOT / "docs/settings.md").read_text(), re.M))
    assert named == documented


LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def broken_links(page: Path) -> list[str]:
    found = []
    for target, anchor in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        there = (page.parent / target).resolve()
        if not there.exists():
            found.append(target)
        elif anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if anchor not in slugs:
                found.append(f"{target}#{anchor}")
    return found


def test_links_between_pages_resolve():
    found = {str(page.relative_to(ROOT)): broken_links(page) for page in pages()}
    assert len(found) > 30
    assert {page: broken for page, broken in found.items() if broken} == {}


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "there.md").write_text("# A heading, of two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](gone.md) [c](there.md#a-heading-of-two) [d](there.md#none) [e](https://x.org/y)\n"
    )
    assert broken_links(page) == ["gone.md", "there.md#none"]


PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)(?:::?\w+)?`")
# Files of containers and users, and of other programs.
NOT_OURS = {"start.py", "driver.py", "sitecustomize.py", "train.py"}
STARTS = ("", "tests", "client/muster")  # tests/README.md and ADR 33 name files below these


def missing_paths(text: str) -> list[str]:
    """Backticked words that look like a path of this repository where there is none. Blocks of code are not read."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    return [path for path in PATH.findall(prose) if _is_path(path) and not _exists(path)]


def _is_path(word: str) -> bool:
    first, slash, _ = word.partition("/")
    if slash:
        return first in folders()
    return word.endswith((".py", ".sql")) and word not in NOT_OURS


def _exists(path: str) -> bool:
    return any((ROOT / start / path).exists() for start in STARTS) if "/" in path else path in names_of_files()


@cache
def folders() -> frozenset[str]:
    """The first part of every path: what a run leaves, such as artifacts/, is not among them."""
    paths = (Path(path) for path in keys.tracked())
    return frozenset(
        path.relative_to(start).parts[0]
        for path in paths
        for start in STARTS
        if path.is_relative_to(start) and len(path.relative_to(start).parts) > 1
    )


@cache
def names_of_files() -> frozenset[str]:
    return frozenset(Path(path).name for path in keys.tracked())


def test_paths_in_the_documents_exist():
    texts = [*pages(), ROOT / "tests/README.md", ROOT / "client/README.md"]
    missing = {str(page.relative_to(ROOT)): missing_paths(page.read_text()) for page in texts}
    assert {page: paths for page, paths in missing.items() if paths} == {}


def test_a_path_that_does_not_exist_is_found():
    text = "`jobs/core/lease.py` `jobs/gone.py` `unit/gone.py::test_it` `docs/` `/tmp/x.py` `gone.py` `a/b` `../a` `lease.py`\n"
    assert missing_paths(text + "```\n`jobs/also_gone.py`\n```\n") == ["jobs/gone.py", "unit/gone.py", "gone.py"]


def test_the_index_names_every_page():
    index = (ROOT / "docs/README.md").read_text()
    named = {target for target, _ in LINK.findall(index)}
    there = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert there <= named


def test_every_dependency_is_documented_with_a_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.split(r"[\[~=<>; ]", one)[0].lower() for one in listed}
    documented = {
        name.lower() for name in re.findall(r"^\| `([^`]+)`", (ROOT / "docs/dependencies.md").read_text(), re.M)
    }
    assert names | set(npm.listed()) == documented


def test_lock_files_pin_with_hashes_and_contain_no_url():
    for name, least in (("advisories", 20), ("containers", 3), ("demo", 21), ("dev", 21), ("server", 21)):
        text = (ROOT / f"requirements/{name}.lock").read_text()
        packages = re.findall(r"^[a-z0-9][^\n]*==[^\n]*", text, re.M)
        assert len(packages) >= least, name
        assert all(line.endswith("\\") for line in packages), name
        assert "://" not in text, name


def test_files_from_the_npm_registry_are_pinned_with_hashes_and_name_no_url():
    assert "://" not in npm.LIST.read_text()
    for name, library in npm.listed().items():
        assert library["integrity"].startswith("sha512-")
        assert library["tarball"] == f"{name}/-/{name}-{library['version']}.tgz"


def test_no_source_file_is_longer_than_500_lines():
    """A file that grows past 500 lines is to be restructured."""
    folders = (
        "accounts",
        "agent",
        "client/muster",
        "common",
        "controlplane",
        "credentials",
        "embedded",
        "jobs",
        "queues",
        "volumes",
        "workspaces",
        "bench",
    )
    crowded = {
        str(path.relative_to(ROOT)): count
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "migrations" not in path.parts and (count := len(path.read_text().splitlines())) > 500
    }
    assert crowded == {}


def test_the_documented_permission_table_matches_the_code():
    from accounts.roles import ALLOWED, SCOPES

    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (ROOT / "docs/permissions.md").read_text(), re.M)
    written = {act: [cell.strip() == "yes" for cell in cells.split("|")[:6]] for act, cells in rows}
    columns = [*ALLOWED.values(), *SCOPES.values()]
    assert written == {act: [act in acts for acts in columns] for act in ALLOWED["admin"]}


def test_every_kind_of_failure_is_documented_with_a_remedy():
    from jobs.core.failure_kinds import Kind

    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", (ROOT / "docs/verdicts.md").read_text(), re.M)
    assert [kind for kind, _, _ in rows] == [kind.value for kind in Kind]

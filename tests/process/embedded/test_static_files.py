"""Static files under names that browsers keep: collected once, compressed, and served for good."""

import gzip
import os
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from embedded import static_files
from embedded.installation import Installation


@pytest.fixture
def environ():
    return {**os.environ, "MUSTER_SECRET_KEY": "only for tests" * 4}


def test_several_collect_at_once_and_one_result_stays(tmp_path, environ):
    root = tmp_path / "static" / "0123"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: static_files.collect(root, environ), range(2)))
    assert [path.name for path in root.parent.iterdir()] == ["0123"]
    assert (root / static_files.MANIFEST).exists()
    (named,) = root.glob("job.????????????.css")
    assert named.with_name(named.name + ".gz").exists()
    before = root.stat().st_mtime
    static_files.collect(root, environ)
    assert root.stat().st_mtime == before


def made(root, name: str, *, age: int, is_ours: bool = True):
    """A folder beside `root`, as an earlier state of the checkout leaves it."""
    path = root.parent / name
    path.mkdir(parents=True)
    if is_ours:
        (path / static_files.MANIFEST).touch()
    os.utime(path, (1000 - age, 1000 - age))
    return name


def test_folders_of_other_states_are_cleared_but_for_a_few(tmp_path, environ, monkeypatch):
    root = tmp_path / "static" / ("f" * 16)
    monkeypatch.setattr(static_files, "folder", lambda: root)
    ours = [made(root, f"{number:016x}", age=number) for number in range(static_files.KEPT + 2)]
    theirs = [made(root, "documents", age=900), made(root, "a" * 16, age=901, is_ours=False)]
    static_files.collect(root, environ)
    assert {path.name for path in root.parent.iterdir()} == {root.name, *ours[: static_files.KEPT], *theirs}


def test_nothing_is_cleared_beside_a_folder_that_somebody_chose(tmp_path, environ):
    root = tmp_path / "home" / "static"
    names = [made(root, f"{number:016x}", age=number) for number in range(static_files.KEPT + 2)]
    static_files.collect(root, environ)
    assert {path.name for path in root.parent.iterdir()} == {"static", *names}


def test_an_installation_serves_them_compressed_and_for_good(tmp_path):
    with Installation(tmp_path / "installation", is_temporary=True) as muster:
        page = urllib.request.urlopen(f"{muster.url}/login", timeout=60).read().decode()
        (path,) = re.findall(r'href="(/static/muster\.[0-9a-f]{12}\.css)"', page)
        asked = urllib.request.Request(f"{muster.url}{path}", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert "immutable" in answer.headers["Cache-Control"]
            assert b"--run-soft" in gzip.decompress(answer.read())

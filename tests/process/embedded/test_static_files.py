"""Static files under names that browsers keep: collected once, compressed, and served for good."""

import gzip
import os
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from embedded import static_files


@pytest.fixture
def environ():
    return {**os.environ, "MUSTER_SECRET_KEY": "only for tests" * 4}


def made(root, name: str, *, age: int, is_ours: bool = True):
    """A folder beside `root`, as an earlier state of the checkout leaves it."""
    path = root.parent / name
    path.mkdir(parents=True)
    if is_ours:
        (path / static_files.MANIFEST).touch()
    os.utime(path, (1000 - age, 1000 - age))
    return name


def test_several_collect_at_once_and_one_result_stays_beside_whatever_is_there(tmp_path, environ):
    """As in a folder that somebody chose: nothing beside it is cleared."""
    root = tmp_path / "home" / "static"
    names = [made(root, f"{number:016x}", age=number) for number in range(static_files.KEPT + 2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: static_files.collect(root, environ), range(2)))
    assert {path.name for path in root.parent.iterdir()} == {"static", *names}
    assert (root / static_files.MANIFEST).exists()
    (named,) = root.glob("job.????????????.css")
    assert named.with_name(named.name + ".gz").exists()
    before = root.stat().st_mtime
    static_files.collect(root, environ)
    assert root.stat().st_mtime == before


def test_folders_of_other_states_are_cleared_but_for_a_few(tmp_path, environ, monkeypatch):
    root = tmp_path / "static" / ("f" * 16)
    monkeypatch.setattr(static_files, "folder", lambda: root)
    ours = [made(root, f"{number:016x}", age=number) for number in range(static_files.KEPT + 2)]
    theirs = [made(root, "documents", age=900), made(root, "a" * 16, age=901, is_ours=False)]
    static_files.collect(root, environ)
    assert {path.name for path in root.parent.iterdir()} == {root.name, *ours[: static_files.KEPT], *theirs}


@pytest.mark.ci
def test_an_installation_serves_them_compressed_and_for_good(muster):
    page = urllib.request.urlopen(f"{muster.url}/login", timeout=60).read().decode()
    (path,) = re.findall(r'href="(/static/muster\.[0-9a-f]{12}\.css)"', page)
    asked = urllib.request.Request(f"{muster.url}{path}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "immutable" in answer.headers["Cache-Control"]
        assert b"--run-soft" in gzip.decompress(answer.read())

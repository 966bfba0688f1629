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


def test_folders_of_other_states_are_cleared_but_for_a_few(tmp_path, environ):
    root = tmp_path / "static" / "new"
    for number in range(static_files.KEPT + 2):
        made = root.parent / f"old{number}"
        made.mkdir(parents=True)
        os.utime(made, (number, number))
    static_files.collect(root, environ)
    left = sorted(path.name for path in root.parent.iterdir())
    assert left == ["new", *(f"old{number}" for number in range(2, static_files.KEPT + 2))]


def test_an_installation_serves_them_compressed_and_for_good(tmp_path):
    with Installation(tmp_path / "installation", is_temporary=True) as muster:
        page = urllib.request.urlopen(f"{muster.url}/login", timeout=60).read().decode()
        (path,) = re.findall(r'href="(/static/muster\.[0-9a-f]{12}\.css)"', page)
        asked = urllib.request.Request(f"{muster.url}{path}", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert "immutable" in answer.headers["Cache-Control"]
            assert b"--run-soft" in gzip.decompress(answer.read())

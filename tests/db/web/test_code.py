"""/jobs/<id>/code: the code that a job ran and what changed, shown but never executed."""

import io
import re

import pytest

from accounts.models import Team
from jobs.models import Job
from queues.models import Queue
from tests.support import packs
from tests.support.builders import Lab
from workspaces import sent as entries_of
from workspaces import services
from workspaces.models import Pack, Workspace

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def root(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture
def ran(lab, people, team):
    """A job that ran this code."""

    def make(code: dict[str, bytes], *links: dict, by=people.owner, where=team, of=lab, **sent) -> Job:
        services.receive(team=where, by=by, stream=io.BytesIO(packs.pack(*code.values())))
        put = entries_of.entries([*(packs.file(path, content) for path, content in code.items()), *links])
        workspace, _ = services.create(team=where, by=by, put=put)
        job = of.submit(**sent)
        Job.objects.filter(pk=job.pk).update(workspace=workspace)
        return job

    return make


def test_files_are_listed_with_their_sizes(owner, ran):
    page = owner.get(
        f"/jobs/{ran({'train.py': b'print(1)', 'lib/net.py': b''}, packs.link('link', 'lib')).pk}/code"
    ).text
    assert "train.py" in page and "lib/net.py" in page and "→ lib" in page
    assert "3 files" in page


def test_the_job_page_links_to_its_code(owner, ran):
    job = ran({"train.py": b"1"})
    assert f'href="/jobs/{job.pk}/code"' in owner.get(f"/jobs/{job.pk}").text


def test_one_file_is_shown_line_by_line(owner, ran):
    job = ran({"a b&c.py": b"one\ntwo"})
    page = owner.get(f"/jobs/{job.pk}/code?file=a+b%26c.py").text
    assert "<li>one</li><li>two</li>" in page
    assert "files/a%20b&amp;c.py" in page


def test_changes_since_the_previous_job_of_the_same_name_are_shown(owner, ran):
    before = ran({"train.py": b"a\nb\n", "gone.py": b"x"})
    ran({"other.py": b"y"}, command="torchrun other.py")
    after = ran({"train.py": b"a\nc\n", "new.py": b"z"})
    page = owner.get(f"/jobs/{after.pk}/code").text
    assert f'Changed since job <a href="/jobs/{before.pk}/code">' in page
    assert '<span class="del">-b\n</span><span class="add">+c\n</span>' in page
    for words in ("<b>Added</b>", "?file=new.py", "<b>Removed</b>", "?file=gone.py"):
        assert words in page


def test_any_job_or_none_can_be_chosen_for_the_comparison(owner, ran):
    first, second, third = (ran({"train.py": text}) for text in (b"1", b"2", b"1"))
    assert "both ran the same code" in owner.get(f"/jobs/{third.pk}/code?with={first.pk}").text
    assert "+2" in owner.get(f"/jobs/{second.pk}/code?with={third.pk}").text
    assert "Changed since" not in owner.get(f"/jobs/{third.pk}/code?with=").text


def test_a_job_is_not_compared_with_one_that_the_user_may_not_read(as_, owner, people, ran, lab):
    vision = Team.objects.get(name="vision")
    elsewhere = Lab(Queue.objects.create(name="theirs", team=vision, cluster="local", nominal=8), people.stranger)
    theirs = ran({"secret.py": b"2"}, by=people.stranger, where=vision, of=elsewhere)
    mine = ran({"train.py": b"1"})
    assert owner.get(f"/jobs/{mine.pk}/code?with={theirs.pk}").status_code == 404
    assert (
        as_(people.stranger).get(f"/jobs/{theirs.pk}/code?with={mine.pk}").status_code == 404
        or theirs.workspace_id is None
    )
    assert as_(people.stranger).get(f"/jobs/{mine.pk}/code?file=train.py").status_code == 404


def test_names_and_content_are_inert(owner, ran):
    code = {
        f"{HOSTILE[:-1].replace('/', '')}.py": HOSTILE.encode(),
        "ansi.txt": "\x1b[31mred\x1b]0;title\x07 \u202eeman resu".encode(),
    }
    job = ran(code)
    for path in ["", *(f"?file={name}" for name in code)]:
        assert HOSTILE not in owner.get(f"/jobs/{job.pk}/code{path}").text
        assert not set(owner.get(f"/jobs/{job.pk}/code{path}").text) & {"\x1b", "\x07", "\u202e"}
    assert HOSTILE not in owner.get(f"/jobs/{ran({'x.py': HOSTILE.encode()}).pk}/code").text


def test_binary_empty_linked_and_missing_files_get_a_message(owner, ran):
    job = ran({"weights": b"\0\1\2", "latin": b"caf\xe9", "empty": b""}, packs.link("link", "empty"))
    assert "not text" in owner.get(f"/jobs/{job.pk}/code?file=weights").text
    assert "not text" in owner.get(f"/jobs/{job.pk}/code?file=latin").text
    assert "This file is empty" in owner.get(f"/jobs/{job.pk}/code?file=empty").text
    assert "a link to empty" in owner.get(f"/jobs/{job.pk}/code?file=link").text
    assert owner.get(f"/jobs/{job.pk}/code?file=nosuch").status_code == 404
    assert owner.get(f"/jobs/{job.pk}/code?with=nonsense").status_code == 200
    assert owner.get(f"/jobs/{job.pk}/code?with=99999999").status_code == 404


def test_a_job_without_code_or_with_code_of_an_older_release_gets_a_message(owner, ran, lab):
    assert "submitted without a folder" in owner.get(f"/jobs/{lab.submit().pk}/code").text
    old = ran({"a": b"1"})
    Workspace.objects.update(manifest="")
    assert "upload the code again" in owner.get(f"/jobs/{old.pk}/code").text


def test_a_lost_file_is_reported_on_the_page(owner, ran, root):
    job = ran({"a": b"1"})
    (root / Pack.objects.get().name).unlink()
    assert "cannot be read from the store" in owner.get(f"/jobs/{job.pk}/code?file=a").text


def test_a_long_list_is_truncated_with_a_count(owner, ran, monkeypatch):
    monkeypatch.setattr("jobs.web.code.SHOWN_FILES", 2)
    job = ran({"a": b"", "b": b"", "c": b""})
    assert "and 1 more" in owner.get(f"/jobs/{job.pk}/code").text
    after = ran(dict.fromkeys("defgh", b"1"))
    assert "and 4 more; <code>muster diff" in owner.get(f"/jobs/{after.pk}/code?with={job.pk}").text


def test_what_was_not_sent_is_listed(owner, ran):
    job = ran({"train.py": b"x"})
    left_out = [
        {"path": f"{HOSTILE}/", "files": 2000, "size": 3 << 20, "is_whole": False},
        {"path": "last.ckpt", "files": 1, "size": 2048, "is_whole": True},
    ]
    job.refresh_from_db()
    Workspace.objects.filter(pk=job.workspace.pk).update(left_out=left_out)
    page = owner.get(f"/jobs/{job.pk}/code").text
    words = " ".join(re.sub(r"<[^>]+>", " ", page[page.index('id="left-out"') :]).split())
    assert "more than 2,000 files, 3.0 MiB last.ckpt 2.0 KiB" in words and HOSTILE not in page
    assert 'id="left-out"' not in owner.get(f"/jobs/{ran({'other.py': b'y'}).pk}/code").text

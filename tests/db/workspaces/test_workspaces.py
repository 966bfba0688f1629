"""Uploading code over /api/v1: only missing files are sent, failures leave nothing behind, and teams are isolated."""

import gzip
import io
import json
import secrets
import zlib
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Membership, Role, Team, Token
from common.limits.turns import ThreadTurns
from jobs.ingest import agent_tokens
from jobs.models import Job
from tests.support import packs
from tests.support.builders import identity
from workspaces import files, manifest, reading, services
from workspaces.models import Blob, Pack, TeamStore, Workspace

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def stored(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return lambda: sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file())


class Api:
    def __init__(self, client, token: str):
        self.client, self.headers = client, {"Authorization": f"Bearer {token}"}

    def get(self, path, **query):
        return self.client.get(f"/api/v1/workspaces{path}", query, headers=self.headers)

    def post(self, path="", body=None, **headers):
        headers = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.client.post(f"/api/v1/workspaces{path}", body, content_type="application/json", headers=headers)

    def send(self, data: bytes, query: str = ""):
        kind = "application/x-muster-pack"
        return self.client.post(f"/api/v1/workspaces/files{query}", data, content_type=kind, headers=self.headers)

    def make(self, tree: dict[str, bytes], *links) -> dict:
        """Upload a whole tree, in the order in which a client does it."""
        entries = [packs.file(path, content) for path, content in tree.items()]
        assert self.send(packs.pack(*tree.values())).status_code == 201
        answer = self.post("", {"set": [*entries, *links]})
        assert answer.status_code in (200, 201), answer.json()
        return answer.json()


@pytest.fixture
def as_(client, people):
    return lambda who: Api(client, Token.issue(getattr(people, who), "test")[1])


@pytest.fixture
def api(as_) -> Api:
    return as_("owner")


TREE = {"train.py": b"print(1)\n", "lib/net.py": b"class Net: ...\n", "again.py": b"print(1)\n"}
ENTRIES = [packs.file(path, content) for path, content in TREE.items()]


# -- sending


def test_a_manifest_is_refused_until_its_files_are_uploaded(api):
    answer = api.post("", {"set": ENTRIES})
    assert answer.status_code == 409
    assert sorted(answer.json()["missing"]) == sorted({one["digest"] for one in ENTRIES})
    assert api.send(packs.pack(b"print(1)\n")).json() == {"files": 1}
    assert api.post("", {"set": ENTRIES}).json()["missing"] == [packs.sha(b"class Net: ...\n")]
    assert api.post("/missing", {"digests": [one["digest"] for one in ENTRIES]}).json() == {
        "missing": [packs.sha(b"class Net: ...\n")]
    }
    api.send(packs.pack(b"class Net: ...\n", kind=packs.RAW))
    made = api.post("", {"set": ENTRIES})
    assert made.status_code == 201
    assert made.json()["digest"] == packs.sha(packs.manifest(*ENTRIES).encode())
    assert (made.json()["files"], made.json()["size_bytes"]) == (3, 33)


def test_the_same_tree_is_one_workspace_and_its_files_are_stored_once(api, stored):
    first = api.make(TREE)
    again = api.make(TREE)
    assert first["id"] == again["id"]
    assert Blob.objects.count() == 2
    assert stored() == [".manifest", ".pack"]


def test_a_changed_tree_needs_only_its_changes(api):
    base = api.make(TREE, packs.link("link", "lib"))
    api.send(packs.pack(b"new"))
    answer = api.post(
        "",
        {"base": base["id"], "set": [packs.file("train.py", b"new", executable=True)], "remove": ["again.py", "link"]},
    )
    assert answer.status_code == 201
    whole = [packs.file("train.py", b"new", executable=True), packs.file("lib/net.py", TREE["lib/net.py"])]
    assert answer.json()["digest"] == packs.sha(packs.manifest(*whole).encode())
    assert api.post("", {"base": base["id"], "set": []}).json()["id"] == base["id"]


def test_a_result_with_an_unexpected_digest_is_refused(api):
    base = api.make({"theirs.py": b"1"})
    api.send(packs.pack(b"2"))
    expected = packs.sha(packs.manifest(packs.file("mine.py", b"1"), packs.file("new.py", b"2")).encode())
    body = {"base": base["id"], "set": [packs.file("new.py", b"2")], "digest": expected}
    answer = api.post("", body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "digest")
    assert api.post("", {**body, "digest": "x"}).status_code == 422
    assert Workspace.objects.count() == 1


def test_a_gzipped_list_is_accepted(api):
    api.send(packs.pack(*TREE.values()))
    answer = api.post("", gzip.compress(json.dumps({"set": ENTRIES}).encode()), Content_Encoding="gzip")
    assert answer.status_code == 201


def test_a_gzip_bomb_is_refused(api, monkeypatch):
    monkeypatch.setattr("workspaces.parsers.MAX_JSON_BYTES", 100_000)
    answer = api.post("", gzip.compress(b'{"set": [' + b" " * 10_000_000 + b"]}"), Content_Encoding="gzip")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body")
    assert api.post("", b"no gzip", Content_Encoding="gzip").status_code == 400
    assert api.post("", gzip.compress(b'{"set": []}')[:-9], Content_Encoding="gzip").status_code == 400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"set": [], "base": 999}, "base"), ({"set": [], "base": 10**30}, "base"), ({"set": [], "base": "1"}, "base"),
        ({"set": [], "remove": ["x"]}, "remove"), ({"sett": []}, "sett"), ([], "body"), ({}, "set"),
        ({"set": [], "team": 5}, "team"), ({"set": [], "team": "vision"}, "team"), ({"set": [], "queue": "nosuch"}, "queue"),
        ({"set": [packs.file("../x", b"")]}, "set.0.path"), ({"set": [packs.link("x", "/etc/passwd")]}, "set.0.target"),
        ({"set": [packs.file("a", b""), packs.file("a/b", b"")]}, "set"),
    ],
)  # fmt: skip
def test_an_invalid_manifest_is_refused_with_its_field(api, body, field):
    answer = api.post("", body)
    assert answer.status_code == 422, answer.json()
    assert field in [one["field"] for one in answer.json()["errors"]]
    assert Workspace.objects.count() == 0


@pytest.mark.parametrize(
    "body",
    [
        "{", "[" * 100_000, '{"set": [{"path": "\\ud800"}]}', '{"\\udfff": 1}', '{"set": [], "team": "\\ud800"}', '{"set": [], "base": NaN}',
        '{"set": [], "base": 1e999}', '{"set": [], "base": -Infinity}', '{"set": [], "base": ' + "9" * 5000 + "}", b"\xff\xfe",
    ],
)  # fmt: skip
def test_malformed_json_is_refused(api, body):
    assert api.post("", body).status_code == 400


def test_odd_requests_get_clear_answers(api):
    made = api.make(TREE)["id"]
    assert api.get("", team="a\0b").status_code == 400
    assert api.get("/" + "9" * 40).status_code == 404
    assert api.get(f"/{made}/diff/{'9' * 40}").status_code == 404
    assert api.get(f"/{made}/files/%00").status_code == 400
    assert api.get(f"/{made}/files/%ff").status_code == 404
    assert api.get(f"/{made}/files/../../{made}").status_code == 404
    assert api.get(f"/{made}/files", after="\0").status_code == 400
    assert api.send(packs.pack(b"a"), "?team=a%00b").status_code == 400


def test_a_wrong_file_size_is_refused(api):
    api.send(packs.pack(b"abc"))
    answer = api.post("", {"set": [packs.file("a", b"abc", size=2)]})
    assert (answer.status_code, answer.json()["errors"][0]["value"]) == (422, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"PK", packs.pack(b"abc", b"def")[:-10], packs.pack(b"abc")[:-49], packs.pack(b"abc") + b"x",
        b"MUSTERP1" + packs.frame(b"fine") + packs.frame(b"abc", digest=packs.sha(b"other")) + packs.end(2),
        b"MUSTERP1" + packs.frame(b"", size=5, digest=packs.sha(b"x"), packed=zlib.compress(b"\0" * 10**7)) + packs.end(1),
    ],
)  # fmt: skip
def test_a_broken_pack_leaves_nothing(api, stored, data):
    answer = api.send(data)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "body"
    assert (Pack.objects.count(), Blob.objects.count(), stored()) == (0, 0, [])


def test_a_pack_with_another_content_type_is_refused(api):
    assert (
        api.client.post("/api/v1/workspaces/files", b"x", content_type="text/plain", headers=api.headers).status_code
        == 415
    )


def test_a_failure_between_the_file_and_its_row_leaves_no_file(people, team, stored, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the database went away")

    monkeypatch.setattr(Pack.objects, "create", fail)
    with pytest.raises(RuntimeError):
        services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(b"abc")))
    assert (Pack.objects.count(), stored()) == (0, [])


def test_an_unwritable_store_is_reported_and_leaves_no_row(api, tmp_path):
    (tmp_path / "workspaces").write_text("a file where the folder should be")
    answer = api.send(packs.pack(b"abc"))
    assert (answer.status_code, "cannot store files" in answer.json()["detail"]) == (503, True)
    assert Pack.objects.count() == Blob.objects.count() == 0


def test_a_damaged_store_is_reported(api, tmp_path):
    made = api.make(TREE)["id"]
    (tmp_path / Pack.objects.get().name).write_bytes(b"MUSTERP1" + b"\0" * 300)
    answer = api.get(f"/{made}/files/train.py")
    assert (answer.status_code, "inform the administrator" in answer.json()["detail"]) == (500, True)
    listed = tmp_path / Workspace.objects.get().manifest
    for damage in (b"no zlib", zlib.compress(b"no manifest"), None):
        listed.write_bytes(damage) if damage else listed.unlink()
        answer = api.get(f"/{made}/files")
        assert (answer.status_code, "inform the administrator" in answer.json()["detail"]) == (500, True)
        assert api.post("", {"base": made, "set": []}).json()["errors"][0]["field"] == "base"


# -- limits


def test_a_workspace_over_the_limit_of_its_team_is_refused_with_both_numbers(api, team):
    TeamStore.objects.create(team=team, workspace_limit_bytes=10)
    api.send(packs.pack(b"123456", b"abcdef"))
    answer = api.post("", {"set": [packs.file("a", b"123456"), packs.file("b", b"abcdef")]})
    assert answer.status_code == 422
    assert "12 bytes, of 10" in answer.json()["detail"]
    early = api.post("/missing", {"digests": [], "size_bytes": 11})
    assert (early.status_code, early.json()["errors"][0]["field"]) == (422, "size_bytes")


def test_the_default_limit_applies_to_a_team_without_its_own(api, settings):
    settings.MUSTER_MAX_WORKSPACE_BYTES = 5
    assert api.post("/missing", {"digests": [], "size_bytes": 6}).status_code == 422
    assert api.send(b"MUSTERP1" + packs.frame(b"x" * 300_000) + packs.end(1)).status_code == 422


def test_the_store_of_a_team_cannot_exceed_its_limit(api, team, stored):
    TeamStore.objects.create(team=team, store_limit_bytes=200)
    assert api.send(packs.pack(b"a")).status_code == 201
    answer = api.send(packs.pack(b"b" * 50, kind=packs.RAW))
    assert answer.status_code == 422
    assert "of 200 bytes, and this would add 156" in answer.json()["detail"]
    assert stored() == [".pack"]


def test_lists_of_files_count_towards_the_store_of_the_team(api, team, stored):
    """Lists of links alone used to fill the disk: each small change of a list stores the whole list again."""
    base = api.post("", {"set": [packs.link(f"{n}{secrets.token_hex(40)}", "x") for n in range(100)]})
    assert base.status_code == 201
    one = Workspace.objects.get().manifest_bytes
    assert one > 4000
    TeamStore.objects.filter(team=team).update(store_limit_bytes=2 * one)
    answer = api.post("", {"base": base.json()["id"], "set": [packs.link("one more", "x")]})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["field"] == "set" and f"takes {one:,} of {2 * one:,} bytes" in problem["message"]
    assert (Workspace.objects.count(), stored()) == (1, [".manifest"])


def test_the_size_of_a_list_of_files_is_limited(api, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_TEXT_BYTES", 1000)
    answer = api.post("", {"set": [packs.link(f"{n}{50 * 'ä'}", "x") for n in range(10)]})
    assert answer.status_code == 422
    assert "1,079 bytes in all, of at most 1,000" in answer.json()["detail"]


def test_a_command_shows_and_changes_the_limits_of_a_team(api, team, capsys):
    api.make(TREE)
    call_command("team_store", "nlp", "--workspace-bytes", "40", "--store-bytes", "5000")
    said = capsys.readouterr().out
    assert "1 workspaces in" in said and "of 5,000 bytes" in said and "at most 40 bytes" in said
    assert api.post("/missing", {"digests": [], "size_bytes": 41}).status_code == 422
    call_command("team_store", "nlp", "--workspace-bytes", "default")
    assert "at most 268,435,456" in capsys.readouterr().out
    assert TeamStore.objects.get().store_limit_bytes == 5000
    for wrong in (["nosuch"], ["nlp", "--store-bytes", "many"], ["nlp", "--store-bytes", "-1"]):
        with pytest.raises(CommandError):
            call_command("team_store", *wrong)


# -- permissions


def test_a_member_of_several_teams_must_name_one(api, people, queue):
    Membership.objects.create(user=people.owner, team=Team.objects.get(name="vision"), role=Role.MEMBER)
    assert "nlp, vision" in api.post("", {"set": []}).json()["detail"]
    assert api.post("", {"set": [], "team": "vision"}).json()["team"] == "vision"
    assert api.post("", {"set": [], "queue": "default"}).json()["team"] == "nlp"
    assert api.send(packs.pack(b"a"), "?team=vision").status_code == 201
    assert Blob.objects.get().team.name == "vision"


def test_knowing_the_digest_of_another_teams_file_gives_no_access(as_, api):
    made = api.make(TREE)
    stranger = as_("stranger")
    digest = packs.sha(TREE["lib/net.py"])
    assert stranger.post("/missing", {"digests": [digest]}).json() == {"missing": [digest]}
    answer = stranger.post("", {"set": [packs.file("mine.py", TREE["lib/net.py"])]})
    assert (answer.status_code, answer.json()["missing"]) == (409, [digest])
    assert stranger.post("", {"set": [], "base": made["id"]}).status_code == 422
    assert Workspace.objects.count() == 1


def test_a_pack_may_not_unpack_to_more_than_the_workspace_limit(api, team, stored):
    TeamStore.objects.create(team=team, workspace_limit_bytes=1_000_000)
    answer = api.send(packs.pack(*(bytes([number]) * 900_000 for number in range(3))))
    (problem,) = answer.json()["errors"]
    assert (answer.status_code, problem["field"], problem["value"]) == (422, "body", 1_800_000)
    assert "send several packs" in problem["message"]
    assert stored() == []


def test_a_diff_requires_access_to_both_sides(as_, api):
    mine, theirs = api.make(TREE), as_("stranger").make({"a": b"1"})
    for who in ("owner", "stranger"):
        assert as_(who).get(f"/{mine['id']}/diff/{theirs['id']}").status_code == 404


def test_workspaces_are_listed_to_their_senders_and_by_team_to_its_readers(as_, api):
    made = [api.make({"a": text})["id"] for text in (b"1", b"2", b"3")]
    first = api.get("", limit=2).json()
    assert [one["id"] for one in first["results"]] == made[:0:-1]
    second = api.client.get(first["next"], headers=api.headers).json()
    assert ([one["id"] for one in second["results"]], second["next"]) == (made[:1], None)
    assert as_("teammate").get("").json()["results"] == []
    assert len(as_("viewer").get("", team="nlp").json()["results"]) == 3
    assert as_("stranger").get("", team="nlp").json()["results"] == []


# -- reading


def test_files_are_listed_in_pages(api):
    made = api.make(TREE, packs.link("a link", "lib/net.py"))
    first = api.get(f"/{made['id']}/files", limit=3).json()
    assert [one["path"] for one in first["results"]] == ["a link", "again.py", "lib/net.py"]
    assert first["results"][0] == {
        "path": "a link",
        "kind": "link",
        "size": 0,
        "digest": "",
        "executable": False,
        "target": "lib/net.py",
    }
    rest = api.client.get(first["next"], headers=api.headers).json()
    assert ([one["path"] for one in rest["results"]], rest["next"]) == (["train.py"], None)
    assert api.get(f"/{made['id']}/files", limit="many").status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "train.py",
        "lib/net.py",
        "back\\slash",
        "größe 文件.py",
        "<script>alert(1)</script>.html",
        "a?b#c&d.txt",
        "semi;colon\"quote'",
    ],
)
def test_a_file_is_served_as_an_attachment_and_never_as_html(api, path):
    made = api.make({path: b"<script>alert(1)</script>"})
    answer = api.get(f"/{made['id']}/files/{quote(path)}")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"] == f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"


def test_directories_links_and_missing_files_have_no_content(api):
    made = api.make(TREE, packs.link("link", "lib/net.py"))
    assert api.get(f"/{made['id']}/files/nosuch.py").status_code == 404
    assert api.get(f"/{made['id']}/files/lib").status_code == 404
    assert "is a link to lib/net.py" in api.get(f"/{made['id']}/files/link").json()["detail"]


def test_a_large_file_is_not_shown(api, monkeypatch):
    monkeypatch.setattr("workspaces.reading.MAX_SHOWN_BYTES", 5)
    answer = api.get(f"/{api.make({'a': b'123456'})['id']}/files/a")
    assert (answer.status_code, "at most 5 can be shown" in answer.json()["detail"]) == (422, True)


def test_the_diff_of_two_workspaces(api):
    before = api.make({"same": b"1", "gone": b"2", "text": b"a\nb\n"})
    after = api.make({"same": b"1", "new": b"3", "text": b"a\nc\n"})
    found = api.get(f"/{before['id']}/diff/{after['id']}").json()
    assert [one["path"] for one in found["added"]] == ["new"]
    assert [one["path"] for one in found["removed"]] == ["gone"]
    assert [(one["path"], one["lines"], one["why"]) for one in found["changed"]] == [
        ("text", "@@ -1,3 +1,3 @@\n a\n-b\n+c\n ", "")
    ]


def test_a_workspace_of_an_older_release_gets_a_message(api, people, team):
    old = Workspace.objects.create(team=team, created_by=people.owner, digest="0" * 64, size_bytes=5)
    answer = api.get(f"/{old.pk}/files")
    assert (answer.status_code, "upload the code again" in answer.json()["detail"]) == (422, True)
    assert api.post("", {"base": old.pk, "set": []}).status_code == 422


def test_the_query_count_of_a_file_list_is_constant(api):
    counts = []
    for size in (1, 50):
        made = api.make({f"file-{number}": str(number).encode() for number in range(size)})
        api.get(f"/{made['id']}/files")
        with CaptureQueriesContext(connection) as seen:
            assert len(api.get(f"/{made['id']}/files").json()["results"]) == size
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_the_query_count_of_a_diff_is_constant(api):
    counts = []
    for size in (1, 50):
        before, after = (
            api.make({f"file-{number}": f"{size} {side} {number}".encode() for number in range(size)})["id"]
            for side in ("before", "after")
        )
        with CaptureQueriesContext(connection) as seen:
            found = api.get(f"/{before}/diff/{after}").json()
        assert [bool(one["lines"]) for one in found["changed"]] == [True] * size
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_a_diff_reports_a_file_that_is_missing_from_the_store(api, tmp_path):
    before, after = api.make({"a": b"1"})["id"], api.make({"a": b"2"})["id"]
    Blob.objects.filter(digest=bytes.fromhex(packs.sha(b"1"))).delete()
    answer = api.get(f"/{before}/diff/{after}")
    assert (answer.status_code, "no longer in the store" in answer.json()["detail"]) == (500, True)


def test_a_pack_reports_the_files_that_it_cannot_contain(api, tmp_path):
    workspace = Workspace.objects.get(pk=api.make({"a": b"1", "b": b"2"})["id"])
    digests = [packs.sha(b"1"), packs.sha(b"2")]
    files_, lost = packs.unpacked(b"".join(reading.pack(workspace, [*digests, packs.sha(b"never sent")])))
    assert (set(files_), set(lost)) == (set(digests), {packs.sha(b"never sent")})
    stored = tmp_path / Pack.objects.get().name
    stored.write_bytes(stored.read_bytes()[:-60])
    files_, lost = packs.unpacked(b"".join(reading.pack(workspace, digests)))
    assert (len(files_), len(lost)) == (1, 1)
    stored.unlink()
    files_, lost = packs.unpacked(b"".join(reading.pack(workspace, digests)))
    assert (files_, set(lost)) == ({}, set(digests))


# -- routes of agents


@pytest.fixture
def agent(client, lab, api):
    """The routes of an agent whose job runs TREE."""
    made = Workspace.objects.get(pk=api.make(TREE, packs.link("link", "lib"))["id"])
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(workspace=made)
    return Agent(client, job)


class Agent:
    def __init__(self, client, job):
        self.client, self.job = client, job
        self.headers = {"Authorization": f"Bearer {agent_tokens.issue(identity(job))}"}

    def list(self):
        return self.client.get("/agent/v1/workspace", headers=self.headers)

    def files(self, *digests: str):
        body = b"".join(bytes.fromhex(digest) for digest in digests)
        return self.client.post(
            "/agent/v1/workspace", body, content_type="application/octet-stream", headers=self.headers
        )


def test_an_agent_gets_the_list_and_the_files(agent):
    listed = agent.list()
    text = zlib.decompress(listed.getvalue()).decode()
    assert text == packs.manifest(*ENTRIES, packs.link("link", "lib"))
    assert listed["X-Muster-Digest"] == packs.sha(text.encode())
    wanted = [packs.sha(content) for content in set(TREE.values())]
    found, lost = packs.unpacked(b"".join(agent.files(*wanted).streaming_content))
    assert (found, lost) == ({packs.sha(content): content for content in TREE.values()}, {})


def test_an_agent_gets_no_file_of_another_job(agent, api):
    api.make({"secret": b"of another job"})
    assert agent.files(packs.sha(b"of another job")).status_code == 404
    assert agent.files(packs.sha(TREE["train.py"]), packs.sha(b"of another job")).status_code == 404
    assert agent.files("abcd").status_code == 404


def test_an_agent_of_a_finished_job_or_without_a_token_gets_nothing(agent, lab):
    assert agent.client.get("/agent/v1/workspace").status_code == 401
    lab.finish(agent.job, 0, 0)
    assert agent.list().status_code == 403
    assert agent.files(packs.sha(TREE["train.py"])).status_code == 403


def test_code_of_an_older_release_is_answered_with_410(agent):
    Workspace.objects.update(manifest="")
    assert (agent.list().status_code, "upload it again" in agent.list().json()["title"]) == (410, True)
    assert agent.files(packs.sha(TREE["train.py"])).status_code == 410


def test_a_lost_list_is_answered_with_410(agent):
    files.delete(Workspace.objects.get().manifest)
    assert agent.list().status_code == 410


def test_a_job_without_code_has_no_list(client, lab):
    assert Agent(client, lab.running()).list().status_code == 204


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["", "/missing"])
def test_uploaded_lists_are_parsed_in_turn_and_without_a_database_connection(api, monkeypatch, path):
    """Sixteen gzipped lists of 42 KB took two gigabytes and every connection."""
    kept = []

    class Turns:
        @contextmanager
        def turn(self, group):
            kept.append(connection.connection is not None)
            yield

    monkeypatch.setattr(reading, "turns", Turns())
    api.post(path, {"set": []})
    assert kept == [False]
    turns = ThreadTurns(1, each=1, most_waiting=0, words="several of your file lists are being read")
    monkeypatch.setattr(reading, "turns", turns)
    with turns.turn("somebody"):
        assert api.post(path, {"set": []}).status_code == 429


def test_all_readers_of_file_lists_take_turns(api, client, people, lab, monkeypatch):
    """Each takes about 100 MB: 16 concurrent diffs grew the web process to 2.4 GB, and any viewer may request them."""
    first, second = api.make(TREE)["id"], api.make({"train.py": b"2"})["id"]
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(workspace=first)
    turns = ThreadTurns(1, each=1, most_waiting=0, words="several of your file lists are being read")
    monkeypatch.setattr(reading, "turns", turns)
    client.force_login(people.owner)
    asked = {
        "files": lambda: api.get(f"/{first}/files", limit=1),
        "file": lambda: api.get(f"/{first}/files/train.py"),
        "difference": lambda: api.get(f"/{first}/diff/{second}"),
        "page": lambda: client.get(f"/jobs/{job.pk}/code"),
    }
    with turns.turn("somebody"):
        assert {what: ask().status_code for what, ask in asked.items()} == dict.fromkeys(asked, 429)
    assert {what: ask().status_code for what, ask in asked.items()} == dict.fromkeys(asked, 200)
    assert turns.waiting() == 0


@pytest.mark.parametrize("field", ["team", "queue"])
def test_an_overlong_team_or_queue_name_is_refused_without_a_lookup(api, field):
    answer = api.post("", {field: "k" * 100_000, "set": []})
    assert answer.status_code == 422 and len(answer.content) < 1000
    assert answer.json()["errors"][0]["field"] == field


def test_the_file_list_of_a_job_is_parsed_once_for_all_its_replicas(agent, monkeypatch):
    """A request of 32 bytes used to parse the whole list, which may have 32 MiB."""
    read = []
    monkeypatch.setattr(reading, "lists", reading.FileLists(reading.lists.turns))
    monkeypatch.setattr(files, "text", lambda name, real=files.text: read.append(name) or real(name))
    digest = packs.sha(TREE["train.py"])
    for _ in range(5):
        assert agent.files(digest).status_code == 200
        assert agent.files("ab" * 32).status_code == 404
    assert len(read) == 1


def test_replicas_of_one_team_take_turns_when_a_list_must_be_read(agent, monkeypatch):
    turns = ThreadTurns(1, each=1, most_waiting=0, words="many replicas of this team are fetching their code")
    monkeypatch.setattr(reading, "lists", reading.FileLists(turns))
    with turns.turn(agent.job.team_id):
        assert agent.files(packs.sha(TREE["train.py"])).status_code == 429
    assert agent.files(packs.sha(TREE["train.py"])).status_code == 200


def test_the_number_of_cached_lists_is_bounded(api, monkeypatch):
    monkeypatch.setattr(reading, "lists", reading.FileLists(reading.lists.turns))
    made = [api.make({"train.py": b"%d" % n})["id"] for n in range(reading.KEPT_LISTS + 2)]
    for pk in made:
        assert not reading.without_file(Workspace.objects.get(pk=pk), [])
    assert list(reading.lists.kept) == made[2:]


@pytest.mark.django_db(transaction=True)
def test_a_client_that_waits_to_store_code_holds_no_database_connection(api, team, monkeypatch):
    """Packs of tiny files waited for each other with a connection each, until none was left."""
    kept = []

    class Turns:
        @contextmanager
        def turn(self, group):
            kept.append((group, connection.connection is not None))
            yield

    monkeypatch.setattr(services, "changes", Turns())
    api.make(TREE)
    assert kept == [(team.pk, False)] * 2
    full = ThreadTurns(1, each=1, most_waiting=0, words="other code of this team is being stored")
    monkeypatch.setattr(services, "changes", full)
    with full.turn(team.pk):
        assert api.send(packs.pack(b"another")).status_code == 429
    assert api.send(packs.pack(b"another")).status_code == 201

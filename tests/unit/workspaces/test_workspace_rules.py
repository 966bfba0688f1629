"""Paths, links, manifests and packs: which are accepted, which are refused, and that every refusal names a remedy."""

import hashlib
import io
import os
import posixpath
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidInput
from tests.support import packs
from workspaces import difference, frames, manifest, sent
from workspaces.paths import path_problem

LIMIT = 1 << 20


def entries(*given):
    return sorted(sent.entries(list(given)), key=lambda one: one.path)


# -- paths


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "is empty"),
        ("/etc/passwd", "must be relative"),
        ("../x", "must not contain '..'"),
        ("a/../b", "must not contain '..'"),
        ("a/./b", "must not contain '.'"),
        ("a//b", "must not contain ''"),
        ("a/", "must not contain ''"),
        ("a\0b", "U+0000"),
        ("a\nb", "U+000A"),
        ("tab\there", "U+0009"),
        ("escape\x1b[31m", "U+001B"),
        ("next\x85line", "U+0085"),
        ("half\ud800", "U+D800"),
        ("x" * 256, "a name has at most 255"),
        ("ж" * 128, "a part of 256 bytes"),
        ("/".join(["y" * 200] * 6), "at most 1024"),
    ],
)
def test_a_harmful_path_is_refused_with_a_remedy(path, words):
    said = path_problem(path)
    assert words in said
    assert ";" in said
    with pytest.raises(InvalidInput) as caught:
        sent.entries([packs.file(path, b"")])
    assert caught.value.problems[0].field == "set.0.path"


@pytest.mark.parametrize(
    "path",
    [
        "a",
        ".env",
        "..a",
        "a..",
        "...",
        "back\\slash",
        "größe/文件/ملف.py",
        "x" * 255,
        "caf\u00e9",
        "cafe\u0301",
        "a b",
        "<script>",
    ],
)
def test_a_path_in_any_script_is_kept_unchanged(path):
    assert path_problem(path) == ""
    (kept,) = manifest.read(manifest.text_of(entries(packs.file(path, b"1"))))
    assert kept.path == path


def test_names_that_differ_only_in_case_or_unicode_form_are_different_files():
    kept = entries(*(packs.file(path, b"") for path in ("A", "a", "caf\u00e9", "cafe\u0301")))
    manifest.check(kept, limit_bytes=LIMIT)
    assert len({one.path for one in kept}) == 4


@given(st.text(max_size=40))
def test_an_accepted_path_stays_below_its_folder(path):
    if path_problem(path) == "":
        joined = posixpath.normpath(posixpath.join("/code", path))
        assert joined.startswith("/code/") and joined == f"/code/{path}"


# -- links


@pytest.mark.parametrize(
    ("path", "target", "words"),
    [
        ("a", "/etc", "must not be absolute"),
        ("a", "..", "leaves the workspace"),
        ("d/a", "../..", "leaves the workspace"),
        ("d/a", "../../d/x", "leaves the workspace"),
        ("a", "b/../../c", "down and up again"),
        ("a", "b/..", "down and up again"),
        ("a", "", "is empty"),
        ("a", "x\ny", "U+000A"),
    ],
)
def test_a_link_that_leaves_the_workspace_is_refused(path, target, words):
    with pytest.raises(InvalidInput, match=words.replace("+", r"\+")):
        sent.entries([packs.link(path, target)])


@pytest.mark.parametrize(
    ("path", "target"), [("a", "b"), ("a", "."), ("d/a", ".."), ("d/e/a", "../../x/y"), ("a", "./b//c")]
)
def test_a_link_within_the_workspace_is_kept(path, target):
    (kept,) = manifest.read(manifest.text_of(entries(packs.link(path, target))))
    assert (kept.path, kept.target) == (path, target)


parts = st.sampled_from(["a", "b", "c", "..", "."])
names = st.sampled_from(["a", "b", "c"])


@given(
    st.dictionaries(
        st.lists(names, min_size=1, max_size=3).map("/".join),
        st.lists(parts, min_size=1, max_size=4).map("/".join),
        max_size=6,
    )
)
def test_no_chain_of_accepted_links_leaves_the_workspace(tmp_path_factory, links):
    """The rule is compared with the kernel: every accepted link is created and resolved."""
    try:
        kept = entries(*(packs.link(path, target) for path, target in links.items()))
        manifest.check(kept, limit_bytes=LIMIT)
    except InvalidInput:
        return
    root = tmp_path_factory.mktemp("tree") / "code"
    root.mkdir()
    for one in kept:
        (root / one.path).parent.mkdir(parents=True, exist_ok=True)
        (root / one.path).symlink_to(one.target)
    for one in kept:
        assert os.path.realpath(root / one.path).startswith(str(root))


# -- manifests


def test_the_manifest_text_has_the_documented_format():
    given_ = [packs.file("z.py", b"1"), packs.file("run.sh", b"#!", executable=True), packs.link("a", "z.py")]
    text = manifest.text_of(entries(*given_))
    assert text == packs.manifest(*given_)
    assert manifest.digest_of(text) == hashlib.sha256(text.encode()).hexdigest()
    assert list(manifest.read(text)) == entries(*given_)


@pytest.mark.parametrize(
    "text", ["", "muster workspace 2\n", "muster workspace 1\nf\t1\tabc", "muster workspace 1\nf\tx\n"]
)
def test_malformed_text_is_not_a_manifest(text):
    with pytest.raises(ValueError):
        list(manifest.read(text))


@pytest.mark.parametrize(
    "given_",
    [
        [packs.file("a", b""), packs.file("a/b", b"")],
        [packs.link("a", "c"), packs.file("a/b", b"")],
        [packs.file("a/b", b""), packs.file("a/b/c/d", b"")],
        [packs.file("a", b""), packs.file("a-b", b""), packs.file("a.c", b""), packs.file("a/b", b"")],
    ],
)
def test_a_path_below_a_file_or_a_link_is_refused(given_):
    with pytest.raises(InvalidInput, match="remove one of the two"):
        manifest.check(entries(*given_), limit_bytes=LIMIT)


def test_memory_for_deep_paths_is_linear_in_their_length():
    """A request of 27 KB used 700 MB: every folder of every path was kept as text."""
    deep = [manifest.Entry(f"{number:04}/{'a/' * 400}f", "f", 0, packs.sha(b"")) for number in range(500)]
    tracemalloc.start()
    manifest.check(deep, limit_bytes=LIMIT)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * sum(len(entry.path) for entry in deep)


def test_a_path_named_twice_is_refused():
    with pytest.raises(InvalidInput, match="is named twice"):
        sent.entries([packs.file("a", b""), packs.file("a", b"1")])


def test_more_entries_than_a_workspace_holds_are_refused():
    many = [manifest.Entry(f"{number:06}", "f", 0, packs.sha(b"")) for number in range(manifest.MAX_ENTRIES + 1)]
    with pytest.raises(InvalidInput, match="more than the 100,000 files") as caught:
        manifest.check(many, limit_bytes=LIMIT)
    assert caught.value.problems[0].value == 100_001
    with pytest.raises(InvalidInput, match="at most 100,000"):
        sent.digests([packs.sha(b"")] * (manifest.MAX_ENTRIES + 1))


def test_too_large_a_workspace_is_refused_with_both_numbers():
    with pytest.raises(InvalidInput, match=r"2,000 bytes, of 1,000 .*\.musterignore"):
        manifest.check(entries(packs.file("a", b"x" * 2000)), limit_bytes=1000)


@pytest.mark.parametrize(
    "item",
    [
        None, 1, "a", [], {}, {"path": 1, "kind": "file"}, {"path": "a"}, {"path": "a", "kind": "device"},
        {"path": "a", "kind": "link"}, {"path": "a", "kind": "link", "target": 5},
        packs.file("a", b"", size=-1), packs.file("a", b"", size=True), packs.file("a", b"", size=1.5), packs.file("a", b"", size=1 << 60),
        packs.file("a", b"", digest="A" * 64), packs.file("a", b"", digest="../../x"), packs.file("a", b"", mode=0o777),
    ],
)  # fmt: skip
def test_a_malformed_entry_is_refused_with_its_index(item):
    with pytest.raises(InvalidInput) as caught:
        sent.entries([packs.file("fine", b""), item])
    assert caught.value.problems[0].field.startswith("set.1")


tree = st.dictionaries(st.sampled_from(["a", "b", "c/d", "c/e", "f"]), st.binary(max_size=3), max_size=5)


@given(tree, tree)
def test_applying_changes_to_a_base_gives_the_new_tree(before, after):
    old, new = ([packs.file(path, content) for path, content in one.items()] for one in (before, after))
    put = [one for one in new if one not in old]
    remove = [path for path in before if path not in after]
    found = manifest.changed(entries(*old), put=entries(*put), remove=remove)
    assert found == entries(*new)


def test_removing_a_missing_path_is_refused():
    with pytest.raises(InvalidInput, match="not in the base"):
        manifest.changed([], put=[], remove=["a"])


# -- packs


def received(data: bytes, *, limit: int = LIMIT) -> tuple[list[frames.Frame], bytes]:
    copy = io.BytesIO()
    found = frames.receive(io.BytesIO(data), into=copy, limit_bytes=limit)
    return found, copy.getvalue()


@given(st.lists(st.binary(max_size=2000), max_size=5), st.sampled_from([packs.RAW, packs.DEFLATED]))
def test_packed_contents_are_unpacked_unchanged(contents, kind):
    data = packs.pack(*contents, kind=kind)
    found, copy = received(data)
    assert copy == data
    for frame, content in zip(found, contents, strict=True):
        pieces = frames.pieces_of(io.BytesIO(copy[frame.offset :]), frame.packed)
        assert b"".join(frames.plain(pieces, frame=frame)) == content


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4), st.data())
def test_a_pack_cut_anywhere_is_refused(contents, data):
    whole = packs.pack(*contents)
    with pytest.raises(frames.BadPack):
        received(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(min_size=1, max_size=300), st.data())
def test_one_wrong_bit_anywhere_is_refused(content, data):
    whole = bytearray(packs.pack(content, kind=packs.RAW))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(frames.BadPack):
        received(bytes(whole))


BIG = zlib.compress(b"\0" * 10_000_000)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04 a zip", "does not begin with"),
        (b"MUSTERP1" + packs.frame(b"abc", digest=packs.sha(b"other")) + packs.end(1), "it was damaged in transit"),
        (b"MUSTERP1" + packs.frame(b"abc", size=2) + packs.end(1), "unpacks to more than the 2 bytes"),
        (b"MUSTERP1" + packs.frame(b"abc", size=4) + packs.end(1), "has 3 bytes, not 4"),
        (b"MUSTERP1" + packs.frame(b"", size=1000, packed=BIG) + packs.end(1), "unpacks to more than the 1000 bytes"),
        (b"MUSTERP1" + packs.frame(b"", size=1 << 40, packed=BIG) + packs.end(1), "unpacks to 1,099,511,627,776"),
        (b"MUSTERP1" + packs.frame(b"abc", packed=b"no zlib") + packs.end(1), "cannot be inflated"),
        (
            b"MUSTERP1" + packs.frame(b"abc", packed=zlib.compress(b"abc") + b"more") + packs.end(1),
            "too early or too late",
        ),
        (b"MUSTERP1" + packs.frame(b"abc", packed=zlib.compress(b"abc")[:-2]) + packs.end(1), "too early or too late"),
        (b"MUSTERP1" + packs.frame(b"abc", kind=packs.RAW, packed=b"abcd") + packs.end(1), "is raw"),
        (b"MUSTERP1" + packs.frame(b"abc", kind=9) + packs.end(1), "unknown kind 9"),
        (packs.pack(b"abc")[:-49] + packs.end(2), "declares 2 files at its end"),
        (packs.pack(b"abc") + b"x", "goes on after its end"),
    ],
)
def test_a_pack_that_contradicts_its_headers_is_refused(data, words):
    with pytest.raises(frames.BadPack, match=words.replace("(", r"\(")):
        received(data)


def test_a_decompression_bomb_costs_no_memory():
    bomb = (
        b"MUSTERP1"
        + packs.frame(b"", size=50_000_000, digest=packs.sha(b"x"), packed=zlib.compress(b"\0" * 50_000_000, 9))
        + packs.end(1)
    )
    tracemalloc.start()
    with pytest.raises(frames.BadPack, match="was damaged in transit"):
        received(bomb, limit=60_000_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * frames.PIECE_BYTES


def test_the_sum_of_declared_sizes_is_checked_before_unpacking_beyond_it():
    """A pack of 5 MB with twenty files, each within the limit, took 15 s of CPU time."""
    zeros = bytes(1_000_000)
    one = packs.frame(zeros)
    data = io.BytesIO(b"MUSTERP1" + one * 20 + packs.end(20))
    with pytest.raises(
        frames.BadPack, match="unpacks to 3,000,000 bytes or more; a pack may have at most 2,500,000"
    ) as refused:
        frames.receive(data, into=io.BytesIO(), limit_bytes=2_500_000)
    assert refused.value.value == 3_000_000
    assert data.tell() == len(b"MUSTERP1") + 2 * len(one) + frames.HEAD.size, "the third file was read"


# -- differences


def lines_of(before: str, after: str) -> str:
    return difference.unified(before, after)


def test_a_difference_counts_lines_from_the_beginning_of_the_file():
    before = "".join(f"line {number}\n" for number in range(1, 101))
    assert lines_of(before, before.replace("line 50\n", "line fifty\n")) == (
        "@@ -47,7 +47,7 @@\n line 47\n line 48\n line 49\n-line 50\n+line fifty\n line 51\n line 52\n line 53"
    )


def rebuilt(before: str, hunks: str) -> str:
    """The result of applying the hunks, as `patch` does."""
    old, new, at = before.split("\n"), [], 0
    for line in hunks.split("\n") if hunks else []:
        if line.startswith("@@"):
            begin = int(line.split()[1][1:].split(",")[0]) - (0 if line.split()[1].endswith(",0") else 1)
            new += old[at:begin]
            at = begin
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            new += [line[1:]] if line[0] == " " else []
            at += 1
    return "\n".join([*new, *old[at:]])


text = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=25).map("\n".join)


@given(text, text)
def test_applying_a_difference_gives_the_new_text(before, after):
    assert rebuilt(before, lines_of(before, after)) == after


def test_a_difference_of_large_texts_is_correct():
    before, after = ("\n".join(f"{side} {number % 7}" for number in range(5000)) for side in ("old", "new"))
    assert rebuilt(before, lines_of(before, after)) == after


def test_a_file_that_cannot_be_compared_by_line_gives_a_reason():
    contents = {"text": b"a\nb", "more": b"a\nc", "binary": b"\0\1", "latin": b"caf\xe9", "large": b"x" * 300_000}
    old = entries(*(packs.file(name, b"a\nb") for name in ("text", "binary", "latin", "large", "link", "mode", "gone")))
    new = entries(
        packs.file("text", contents["more"]), packs.file("binary", contents["binary"]), packs.file("latin", contents["latin"]),
        packs.file("large", contents["large"]), packs.link("link", "text"), packs.file("mode", b"a\nb", executable=True), packs.file("new", b""),
    )  # fmt: skip
    by_digest = {packs.sha(content): content for content in contents.values()}
    found = difference.difference(old, new, read=lambda side, entry: by_digest[entry.digest])
    assert ([one.path for one in found.added], [one.path for one in found.removed]) == (["new"], ["gone"])
    assert {one.path: one.lines or one.why for one in found.changed} == {
        "text": "@@ -1,2 +1,2 @@\n a\n-b\n+c", "binary": "not text", "latin": "not text", "large": "larger than 256 KiB",
        "link": "a link is involved", "mode": "only the execute bit changed",
    }  # fmt: skip


def compared(before: dict[str, bytes], after: dict[str, bytes]) -> tuple[dict[str, str], list[str]]:
    """path -> the differing lines or the reason for none; and the paths that were read."""
    by_digest = {packs.sha(content): content for tree in (before, after) for content in tree.values()}
    trees = [entries(*(packs.file(path, content) for path, content in tree.items())) for tree in (before, after)]
    was_read = []

    def read(side: str, entry: manifest.Entry) -> bytes:
        was_read.append(entry.path)
        return by_digest[entry.digest]

    found = difference.difference(*(sorted(tree) for tree in trees), read=read)
    return {one.path: one.lines or one.why for one in found.changed}, was_read


def repeating(first: str, kinds: str, number: int) -> bytes:
    """1,000 lines, each of which equals very many lines of the other side."""
    return "\n".join([first, *(kinds[(line * line + number) % len(kinds)] for line in range(1000)), first]).encode()


@pytest.mark.parametrize("kinds", ["a", "ab", "abc", "abcdefghij"])
def test_files_that_make_difflib_slow_are_not_compared_and_do_not_affect_others(kinds):
    before = {f"hostile-{number}": repeating("old", kinds, number) for number in range(60)} | {"ordinary": b"a\nb"}
    after = {f"hostile-{number}": repeating("new", kinds, 3 * number + 1) for number in range(60)} | {
        "ordinary": b"a\nc"
    }
    found, _ = compared(before, after)
    assert found.pop("ordinary") == "@@ -1,2 +1,2 @@\n a\n-b\n+c"
    assert len(found) == 60
    given_up = [path for path, said in found.items() if said == difference.TOO_COSTLY]
    assert len(given_up) >= 50


def test_the_cost_of_a_comparison_is_checked_before_it_runs():
    """A pair of equal lines is one comparison in each search for the longest match; the work stops at the limit."""
    old, new = repeating("old", "ab", 0).decode(), repeating("new", "ab", 1).decode()
    budget = difference.Budget(comparisons=200_000)
    with pytest.raises(difference.TooCostly):
        difference.unified(old, new, budget)
    assert 0 <= budget.comparisons <= 200_000
    enough = difference.Budget(comparisons=10**12, file_comparisons=10**12)
    assert rebuilt(old, difference.unified(old, new, enough)) == new
    assert 10**12 - enough.comparisons > 200_000


def test_the_number_of_files_read_for_one_answer_is_limited():
    names = [f"{number:04}" for number in range(4000)]
    found, was_read = compared(dict.fromkeys(names, b"a"), dict.fromkeys(names, b"b"))
    assert len(found) == 4000
    assert was_read == [name for name in names[: difference.MAX_READ_FILES] for _ in ("before", "after")]
    assert {found[name] for name in names[difference.MAX_READ_FILES :]} == {difference.TOO_MANY}


def test_the_number_of_bytes_read_for_one_answer_is_limited():
    names = [f"{number:04}" for number in range(40)]
    old, new = (b"x" * (200 << 10) + end for end in (b"a", b"b"))
    found, was_read = compared(dict.fromkeys(names, old), dict.fromkeys(names, new))
    assert len(was_read) * len(old) <= difference.MAX_READ_BYTES
    assert found["0039"] == difference.TOO_MANY


def test_the_number_of_lines_in_one_answer_is_limited():
    before = {f"{number}": b"\n" * 9000 for number in range(4)}
    after = {f"{number}": b"x\n" * 9000 for number in range(4)}
    found, _ = compared(before, after)
    assert sum(said.count("\n") for said in found.values()) <= difference.MAX_TOTAL_LINES
    assert [said == difference.FULL for said in found.values()] == [False, True, True, True]

"""A backup's archive is read whole or refused in one line, whatever its bytes are."""

import io
import random
import tarfile

import pytest

from controlplane.operations.archive import BadArchive, Reader, Writer

ABOUT = {
    "format": 1, "release": "0.1.0", "at": "2026-11-27T12:00:00+00:00", "key": "a", "old_keys": [], "has_keys": True,
    "migrations": [["jobs", "0001_initial"]], "tables": {"jobs_job": ["id"]}, "sequences": {"jobs_job": ["id", 7]},
}  # fmt: skip
KEYS = {"secret_key": "s", "old": ["o"]}
END = {"rows": {"jobs_job": 1}, "files": 1, "missing": []}


def written(about=ABOUT, keys=KEYS, end=END) -> bytes:
    out = io.BytesIO()
    with Writer(out) as archive:
        archive.put_json("about.json", about)
        archive.put_json("keys.json", keys)
        archive.put("tables/jobs_job/000001", b"rows")
        archive.put("files/code/1/x", b"content")
        archive.end(**end)
    return out.getvalue()


def read(text: bytes) -> list[tuple[str, bytes]]:
    archive = Reader(io.BytesIO(text))
    return [(one.name, one.content.read()) for one in archive.entries()]


def test_what_was_written_is_read():
    assert read(written()) == [("tables/jobs_job/000001", b"rows"), ("files/code/1/x", b"content")]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"about": []}, "about.json holds no object"),
        ({"about": {**ABOUT, "format": 2}}, "its format is 2; this release reads 1"),
        ({"about": {**ABOUT, "tables": ["jobs_job"]}}, r"about.json: Expected `object`, got `array` - at `\$.tables`"),
        ({"about": {**ABOUT, "migrations": [["jobs"]]}}, r"about.json: .* - at `\$.migrations\[0\]`"),
        ({"about": {**ABOUT, "sequences": {"jobs_job": ["id", "7"]}}}, r"Expected `int`, got `str`"),
        ({"about": {name: ABOUT[name] for name in ABOUT if name != "key"}}, "missing required field `key`"),
        ({"keys": {"old": []}}, "keys.json: Object missing required field `secret_key`"),
        ({"keys": "s"}, "keys.json holds no object"),
        ({"end": {"rows": {}, "files": "1", "missing": []}}, "end.json: Expected `int`, got `str`"),
        ({"end": {"rows": {}, "files": 1}}, "end.json: Object missing required field `missing`"),
    ],
)
def test_a_part_of_another_shape_is_named(changed, words):
    with pytest.raises(BadArchive, match=words):
        read(written(**changed))


@pytest.mark.parametrize("text", [b"", b"\0" * 10240, b"no archive", b"[" * 100_000])
def test_anything_else_is_no_backup(text):
    with pytest.raises(BadArchive, match="this is no backup of Muster"):
        read(text)


def test_a_part_that_is_no_json_is_named():
    for text in (b"{", b"\xff", b"[" * 100_000):
        out = io.BytesIO()
        with Writer(out) as archive:
            archive.put("about.json", text)
            archive.end(**END)
        with pytest.raises(BadArchive, match=r"about\.json"):
            read(out.getvalue())


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_an_entry_that_is_no_file_is_refused(kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as tar:
        entry = tarfile.TarInfo("about.json")
        entry.type, entry.linkname = kind, "keys.json"
        tar.addfile(entry)
    with pytest.raises(BadArchive):
        read(out.getvalue())


@pytest.mark.parametrize("seed", range(300))
def test_any_damage_is_refused_in_one_line(seed):
    chance, text = random.Random(seed), bytearray(written())
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(text))
        match chance.randrange(3):
            case 0:
                text[place] = chance.randrange(256)
            case 1:
                del text[place : place + chance.randint(1, 700)]
            case _:
                text[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 40)))
    try:
        found, words = read(bytes(text)), ""
    except BadArchive as error:
        found, words = read(written()), str(error)
    assert found == read(written()), "only what tar itself ignores may differ"
    assert "\n" not in words

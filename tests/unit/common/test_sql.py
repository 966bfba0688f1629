"""The loader of statements refuses what could only fail later, and names the file."""

import pytest

from common.db import sql


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(sql, "ROOT", tmp_path)
    monkeypatch.setattr(sql, "loaded", {})

    def written(text: str) -> str:
        (tmp_path / "app/sql").mkdir(parents=True, exist_ok=True)
        (tmp_path / "app/sql/one.sql").write_text(text)
        return "app/sql/one.sql"

    return written


def test_comments_are_not_sent_and_parameters_stay(write):
    path = write(
        "-- Counts, 100% of them.\n--   id  bigint\nSELECT count(*)\n  -- why this one\nFROM t -- 1\nWHERE id = %(id)s\n"
    )
    assert sql.load(path) == "SELECT count(*)\nFROM t -- 1\nWHERE id = %(id)s"
    assert sql.loaded == {path: ["SELECT count(*)\nFROM t -- 1\nWHERE id = %(id)s"]}


def test_fragments_are_filled_everywhere_and_empty_braces_are_none(write):
    path = write("-- Inserts.\nINSERT INTO t ({columns}) SELECT {columns}, '{}' FROM u WHERE a = '{1,2}'{within}\n")
    text = sql.load(path, columns="a, b", within="")
    assert text == "INSERT INTO t (a, b) SELECT a, b, '{}' FROM u WHERE a = '{1,2}'"


@pytest.mark.parametrize(
    ("text", "fragments", "message"),
    [
        ("-- It.\nSELECT {a}", {}, r"app/sql/one\.sql: fragment \{a\} is not filled in; given are none"),
        ("-- It.\nSELECT {a}, {b}", {"b": "1"}, r"app/sql/one\.sql: fragment \{a\} is not filled in; given are \{b\}"),
        ("-- It.\nSELECT {a}", {"a": "{c}"}, r"app/sql/one\.sql: fragment \{c\} is not filled in"),
        ("-- It.\nSELECT {a}", {"a": "1", "b": "2"}, r"app/sql/one\.sql has no fragment \{b\}; it has \{a\}"),
        ("-- It, {a}.\nSELECT 1", {"a": "1"}, r"app/sql/one\.sql has no fragment \{a\}; it has none"),
        ("SELECT 1", {}, r"app/sql/one\.sql does not begin with a comment"),
        ("-- It.\n\n", {}, r"app/sql/one\.sql has comments only"),
    ],
)
def test_what_cannot_work_is_refused(write, text, fragments, message):
    with pytest.raises(sql.BadStatement, match=message):
        sql.load(write(text), **fragments)
    assert sql.loaded == {}


def test_a_missing_file_is_named(write):
    with pytest.raises(sql.BadStatement, match=r"app/sql/gone\.sql cannot be read \(No such file or directory\)"):
        sql.load("app/sql/gone.sql")

"""Environment files: what python-dotenv and Compose accept means the same here."""

from __future__ import annotations

import contextlib
import io

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st
from muster.commands.env_file import read_env
from muster.errors import JobFileError

HERE = {"HOME": "/home/ada", "TOKEN": "t-1"}


def read(text: str) -> dict[str, str]:
    return read_env(text, source=".env", here=HERE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# comment\n\nA=1\nexport B=two words # said\n", {"A": "1", "B": "two words"}),
        ("C='single # quoted'\nD=\"double\"\nE=\nF=a=b\n G = spaced \n", {"C": "single # quoted", "D": "double", "E": "", "F": "a=b", "G": "spaced"}),
        ("\ufeffFIRST=1\r\nSECOND=two words\r\n", {"FIRST": "1", "SECOND": "two words"}),
        ("A=x\nJ='{\n  \"id\": 7\n}'\nB=y\n", {"A": "x", "J": '{\n  "id": 7\n}', "B": "y"}),
        ('PEM="-----BEGIN-----\\nabc\\n"\n', {"PEM": "-----BEGIN-----\nabc\n"}),
        ("URL=https://example.org/#part\nNOTE=it's fine\n", {"URL": "https://example.org/#part", "NOTE": "it's fine"}),
        ("A=${HOME}/data\nB=\"${A}/x\"\nC='${A}'\nD=${NONE:-none}\nE=pa$$word$1\n",
         {"A": "/home/ada/data", "B": "/home/ada/data/x", "C": "${A}", "D": "none", "E": "pa$$word$1"}),
        ("TOKEN\nexport HOME\n", {"TOKEN": "t-1", "HOME": "/home/ada"}),
    ],
)  # fmt: skip
def test_an_environment_file_is_read(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected


def test_values_of_secrets_are_taken_as_they_are() -> None:
    assert read_env("A=x${HOME}\n", source="standard input", here=None) == {"A": "x${HOME}"}
    with pytest.raises(JobFileError):
        read_env("HOME\n", source="standard input", here=None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A=1\n\nnonsense", ".env, line 3: 'nonsense' is not KEY=VALUE, and no variable of this shell either"),
        ("=1", "line 1: '=1' is not KEY=VALUE"),
        ("A B=1", "'A B=1' is not KEY=VALUE"),
        ("A='open", "line 1: a quote is not closed"),
        ('A=1\nB="x" y', "line 2: a quote is not closed, or something follows it"),
        ("A=${NONE}/x", "line 1: ${NONE} is set neither above nor in this shell; write ${NONE:-} for"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(JobFileError) as caught:
        read(text)
    assert sentence in str(caught.value)


names = st.text("ABC_", min_size=1, max_size=3)
values = st.text("ab #'\"\\$\n=", max_size=8)


@given(st.lists(st.tuples(names, st.sampled_from(("", "'", '"')), values), max_size=4))
def test_what_dotenv_reads_is_read_the_same(lines: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{name}={quote}{value}{quote}\n" for name, quote, value in lines)
    with contextlib.suppress(JobFileError):
        assert read(text) == dotenv_values(stream=io.StringIO(text), interpolate=False)


@given(st.text())
def test_no_text_makes_it_raise_another_error(text: str) -> None:
    with contextlib.suppress(JobFileError):
        read(text)

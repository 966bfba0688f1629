"""Modules of the agent within the job's own Python: whatever they meet, the program runs as it would without them."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.frameworks import on_import, start_hook
from agent.state import StateFolder


def test_a_module_that_looks_different_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_framework.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])

    on_import.change({"a_framework": lambda module: module.gone.clear()})
    assert importlib.import_module("a_framework").value == 1
    on_import.change({"a_framework": lambda module: module.gone.clear()})
    del sys.modules["a_framework"]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all(
        line.startswith("muster: a_framework is left as it is: AttributeError") for line in said
    )


def test_the_environments_own_start_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("VALUE = 42")
    hook = start_hook.install(StateFolder(str(tmp_path)), "jax_hook", without="nothing")
    env = {**os.environ, "PYTHONPATH": f"{hook}:{tmp_path}"}
    asked = [sys.executable, "-c", "import sitecustomize; print(sitecustomize.VALUE)"]
    assert subprocess.run(asked, env=env, text=True, capture_output=True, check=True).stdout == "42\n"

"""`make test` keeps what the tests write in memory, and leaves nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "in_memory.py"

loader = SourceFileLoader("in_memory", str(SCRIPT))
in_memory = module_from_spec(ModuleSpec("in_memory", loader))
loader.exec_module(in_memory)

PROGRAM = """
import os, pathlib, sys, tempfile
folder = pathlib.Path(os.environ["PGQUEUE_TEST_FOLDER"])
assert tempfile.gettempdir() == str(folder)
(folder / "left").mkdir()
print(folder)
sys.exit(3)
"""


def meminfo(folder: Path, available_kib: int) -> Path:
    file = folder / "meminfo"
    file.write_text(
        f"MemTotal: 1 kB\nMemAvailable:   {available_kib} kB\nCached: 2 kB\n"
    )
    return file


def test_a_command_has_a_folder_that_goes_away_with_it():
    """And its status is that of the whole."""
    if not in_memory.has_enough(in_memory.MEMORY):
        pytest.skip("this machine has too little memory")
    environment = {k: v for k, v in os.environ.items() if k != "PGQUEUE_TEST_FOLDER"}

    ended = subprocess.run(
        [sys.executable, SCRIPT, sys.executable, "-c", PROGRAM],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert 3 == ended.returncode
    folder = Path(ended.stdout.strip())
    assert in_memory.MEMORY == folder.parent
    assert not folder.exists()


def test_a_machine_that_has_little_keeps_it_on_its_disk(tmp_path, monkeypatch):
    """Neither the folder nor the machine may run full."""
    monkeypatch.setattr(in_memory, "FOLDER_MIN", 0)
    enough = in_memory.AVAILABLE_MIN // 1024
    assert in_memory.has_enough(tmp_path, meminfo(tmp_path, enough))
    assert not in_memory.has_enough(tmp_path, meminfo(tmp_path, enough - 1))
    assert not in_memory.has_enough(tmp_path / "none", meminfo(tmp_path, enough))

    monkeypatch.setattr(in_memory, "FOLDER_MIN", 2**60)
    assert not in_memory.has_enough(tmp_path, meminfo(tmp_path, enough))

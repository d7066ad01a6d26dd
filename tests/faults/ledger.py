"""
Ledgers: what clients, tasks and faults really did, in files beside the database.

One line is one O_APPEND write below 4,096 bytes, so lines of many processes never mix
and a kill leaves whole lines behind. A file per kind of writer.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.harness.system import CLOCK_WRONG

FOLDER = "PGQUEUE_FAULTS_FOLDER"

LINE_BYTES_MAX = 4_096

# Opened once. A fork shares the descriptor, which O_APPEND allows.
_open_files: dict[Path, int] = {}


def write(name: str, event: str, /, *, sync: bool = False, **fields: Any) -> None:
    """
    Add a line to the ledger *name*.

    Args:
        name: "clients", "tasks", "workers" or "faults".
        event: What happened.
        sync: Return when it is on disk; for what a client was told.
        fields: More about it. The clocks are added: ``at`` is the wall clock, which is
            the database's too, since both are on one machine, also where this
            process was given another one; ``raw`` never jumps.
    """
    line = {
        "event": event,
        "at": time.time() - float(os.environ.get(CLOCK_WRONG, "0")),
        "raw": time.clock_gettime(time.CLOCK_MONOTONIC_RAW),
        "pid": os.getpid(),
        **fields,
    }
    data = json.dumps(line).encode() + b"\n"
    assert len(data) <= LINE_BYTES_MAX, f"a line of {len(data)} bytes might be torn"
    path = Path(os.environ[FOLDER]) / f"{name}.ledger"
    if path not in _open_files:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        _open_files[path] = os.open(path, flags, 0o600)
    os.write(_open_files[path], data)
    if sync:
        os.fsync(_open_files[path])


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of a ledger, in the order in which they were written."""
    path = folder / f"{name}.ledger"
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]

"""Real workers on the large queue, and what they print."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.db import connection

REPOSITORY = Path(__file__).resolve().parents[2]

# A stop waits for the jobs that run; ours are short.
STOP_SECONDS_MAX = 60.0


class Running:
    """A supervisor and its processes."""

    def __init__(self, log: Path, pid: int) -> None:
        self.log = log
        self.pid = pid

    def text(self) -> str:
        """Return all that they have printed."""
        return self.log.read_text(errors="replace")

    def has_said(self, words: str) -> bool:
        """Say whether they have printed *words*."""
        return words in self.text()


@contextlib.contextmanager
def worker(
    *arguments: str,
    options: Mapping[str, Any] | None = None,
    pgqueue: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Iterator[Running]:
    """
    Run pgqueue_worker with *arguments* on the database of this process.

    Args:
        arguments: Of the command line.
        options: OPTIONS of its database, {"options": "-c lock_timeout=100ms"} say.
        pgqueue: Keys of PGQUEUE.
        name: Of the database; None: that of "default".
    """
    told = {
        "database": name or connection.settings_dict["NAME"],
        "options": dict(options or {}),
        "pgqueue": dict(pgqueue or {}),
    }
    with tempfile.TemporaryDirectory(prefix="pgqueue-scale-") as folder:
        log = Path(folder) / "worker.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", "pgqueue_worker", *arguments],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "tests.scale.settings",
                    "PGQUEUE_SCALE_WORKER": json.dumps(told),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Running(log, process.pid)
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_SECONDS_MAX)

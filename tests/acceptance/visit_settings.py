"""Settings of a worker that notes which of our files each of its threads visits."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import django_pgqueue
from tests.worker_settings import *  # noqa: F403  # Django's way to widen settings.
from tests.worker_settings import PGQUEUE

# The other modules connect receivers of signals, which then are sent.
PGQUEUE = {**PGQUEUE, "TASK_MODULES": ["tasks"]}

HOME = f"{Path(django_pgqueue.__file__).parent}/"
OUTPUT = Path(os.environ["PGQUEUE_TEST_VISITS"])

_visits: set[tuple[str, str]] = set()


def _note(frame: FrameType, event: str, argument: Any) -> None:
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(HOME):
        _visits.add((threading.current_thread().name, file.removeprefix(HOME)))


def _write(number: int, frame: Any) -> None:
    """Write what was visited since the last signal: a thread and a file a line."""
    seen = "".join(f"{thread} {file}\n" for thread, file in _visits.copy())
    _visits.clear()
    part = OUTPUT.with_suffix(".part")
    part.write_text(seen)
    part.rename(OUTPUT)


# Both are handed down to the processes that the supervisor forks.
signal.signal(signal.SIGUSR2, _write)
threading.setprofile(_note)

"""The guard: a process that stops the server when its users could not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django_pgqueue.postgres.embedded.flocks import locked, try_lock
from django_pgqueue.postgres.embedded.launch import launch
from django_pgqueue.postgres.embedded.stop import stop_if_unused


def ensure_guarded(home: Path) -> None:
    """Start the guard unless there is one. Under ``lock``."""
    guard_fd = try_lock(home / "guard")
    if guard_fd is None:
        return
    try:
        if sys.executable:  # Empty in some embedded interpreters: then there is none.
            main = f"from {__name__} import guard; guard()"
            launch(
                [sys.executable, "-S", "-P", "-c", main, str(home), str(guard_fd)],
                home / "guard.log",
                guard_fd,
                user={},
                environment={"PYTHONPATH": str(Path(__file__).parents[3])},
            )
    finally:
        os.close(guard_fd)


def guard() -> None:
    """Stop the server once its users are gone, however they went. A process's main."""
    home, guard_fd = Path(sys.argv[1]), int(sys.argv[2])
    while True:
        with locked(home / "watched"):
            pass  # Waited, without polling, until nobody is left.
        with locked(home / "lock"):
            if stop_if_unused(home):
                # Under ``lock``, so that the next to start sees that it needs another.
                os.close(guard_fd)
                return

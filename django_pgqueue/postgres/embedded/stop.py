"""
Stop the server unless somebody uses it. All of it happens under ``lock``.

The guard is a process that does so when the users could not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.data import postmaster_pid, serves
from django_pgqueue.postgres.embedded.flocks import (
    is_held,
    locked,
    try_lock,
    wait_until,
)
from django_pgqueue.postgres.embedded.programs import launch

STOP_SECONDS_MAX = 60.0
SIGNAL_SECONDS_MAX = 5.0  # To find the postmaster's pid, and to die of SIGQUIT.


def stop_if_unused(home: Path) -> bool:
    """Stop the server unless somebody uses it; say whether nobody does."""
    users_fd = try_lock(home / "users")
    if users_fd is None:
        return False
    try:
        _stop_server(home)
    finally:
        os.close(users_fd)
    return True


def _stop_server(home: Path) -> None:
    def gone() -> bool:
        return not is_held(home / "server")

    # Fast first: sessions are ended and a checkpoint is written. Then at once, which
    # loses nothing either but makes the next start recover.
    steps = ((signal.SIGINT, STOP_SECONDS_MAX), (signal.SIGQUIT, SIGNAL_SECONDS_MAX))
    for number, seconds in steps:

        def signalled(number: int = number) -> bool:
            return gone() or _signal_postmaster(home, number)

        if wait_until(signalled, SIGNAL_SECONDS_MAX) and wait_until(gone, seconds):
            return
    raise EmbeddedServerError(
        f"The embedded PostgreSQL server in {home} does not stop. End its processes by "
        f"hand; the pid of the first is the first line of data/postmaster.pid."
    )


def _signal_postmaster(home: Path, number: int) -> bool:
    pid = postmaster_pid(home)
    if pid is None or not serves(pid, home / "data"):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


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

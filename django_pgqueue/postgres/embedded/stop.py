"""Stop the server unless somebody uses it. All of it happens under ``lock``."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.flocks import is_held, try_lock
from django_pgqueue.postgres.embedded.postmaster import postmaster_pid, serves
from django_pgqueue.postgres.embedded.wait import wait_until

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

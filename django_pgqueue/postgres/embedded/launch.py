"""Programs that outlive the process that starts them: PostgreSQL and the guard."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django_pgqueue.postgres.embedded.server_user import clean_environment

LOG_BYTES_MAX = 10 * 1024 * 1024


def launch(
    command: Sequence[str],
    log: Path,
    lock_fd: int,
    *,
    user: dict[str, Any],
    environment: dict[str, str] | None = None,
) -> None:
    """
    Start *command* as nobody's child, in a session of its own, holding *lock_fd*.

    Ctrl+C in the terminal does not reach it, and init reaps it: as our child it would
    stay a zombie whose pid PostgreSQL takes for a living server.
    """
    if os.access(log, os.F_OK) and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".old.log"))
    log.touch(mode=0o600)  # It shows statements, and root's home can be entered.
    with log.open("ab") as output:
        subprocess.run(  # noqa: S603  # No shell text from outside: "$@" is verbatim.
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=clean_environment() | (environment or {}),
            pass_fds=(lock_fd,),
            start_new_session=True,
            check=True,
            **user,
        )

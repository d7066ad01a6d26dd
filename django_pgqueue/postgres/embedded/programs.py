"""The server's programs: whom they run as, and how one outlives who starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django_pgqueue.exceptions import EmbeddedServerError

if sys.platform != "win32":  # Which has no such users; see refuse_windows().
    import pwd

SERVER_USER = "nobody"  # Whom the server runs as when root starts it.

LOG_BYTES_MAX = 10 * 1024 * 1024


def _server_user() -> pwd.struct_passwd | None:
    """Whom to run PostgreSQL as: it refuses root. None means ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        raise EmbeddedServerError(
            f"PostgreSQL refuses to run as root, and there is no user {SERVER_USER!r} "
            f"to run it as. Run as another user, or set DATABASE_URL."
        ) from None


def as_server_user() -> dict[str, Any]:
    """The options with which subprocess.run becomes the server's user."""
    user = _server_user()
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def make_folder_of_server_user(folder: Path) -> None:
    """Make *folder*, which only the server's user can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if user := _server_user():
        os.chown(folder, user.pw_uid, user.pw_gid)


def clean_environment() -> dict[str, str]:
    """What programs of the server get to see of our environment."""
    # PGPORT, PGDATA and the like would change what PostgreSQL does; and no secret of
    # root's environment is for the eyes of another user.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {"LC_ALL": "C"}


def run_as_server_user(
    command: Sequence[Path | str],
    **options: Any,  # Those of subprocess.run.
) -> subprocess.CompletedProcess[str]:
    """Run *command* to its end, whatever its status; its stdout has both outputs."""
    return subprocess.run(  # noqa: S603  # Commands of this package, no shell text.
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd="/",  # Ours may be closed to the server's user.
        env=clean_environment(),
        **as_server_user(),
        **options,
    )


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

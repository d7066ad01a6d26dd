"""Start the server unless it runs already. All of it happens under ``lock``."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.binaries import (
    Binaries,
    find_binaries,
    runnable,
)
from django_pgqueue.postgres.embedded.data import pid_file_lines, prepare_data
from django_pgqueue.postgres.embedded.flocks import try_lock, wait_until
from django_pgqueue.postgres.embedded.home import PORT, socket_path
from django_pgqueue.postgres.embedded.programs import (
    as_server_user,
    launch,
    make_folder_of_server_user,
)

START_SECONDS_MAX = 180.0  # Recovery after a crash replays up to max_wal_size.
LOG_LINES_SHOWN = 20

# Given on the command line at each start, so that they hold with old data as well,
# and whatever ALTER SYSTEM has stored.
PARAMETERS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "max_prepared_transactions": "20",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "fsync": "on",
    "port": str(PORT),
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
}


def ensure_running(home: Path) -> None:
    """Return when the server of *home* accepts connections."""
    server_fd = _wait_for_server(home)
    if server_fd is None:
        return
    try:  # Nothing lives in data/ now, and nothing else can move in.
        binaries = runnable(find_binaries(), home)
        prepare_data(home, binaries, server_fd)
        _launch_postgres(home, binaries, server_fd)
    finally:
        os.close(server_fd)
    died = _wait_for_server(home)
    if died is not None:
        os.close(died)
        raise EmbeddedServerError(
            f"The embedded PostgreSQL server in {home} did not start.\n{_log_end(home)}"
        )


def _wait_for_server(home: Path) -> int | None:
    """
    Wait until the server answers (None), or nothing of it lives (the ``server`` lock).

    Both take a moment when a run was killed: a server whose starter is dead still
    recovers, and the backends of a dead postmaster still finish.
    """
    held: list[int] = []

    def decided() -> bool:
        fd = try_lock(home / "server")
        if fd is not None:
            held.append(fd)
        return fd is not None or _answers(home)

    if not wait_until(decided, START_SECONDS_MAX):
        raise EmbeddedServerError(
            f"The embedded PostgreSQL server in {home} does not answer after "
            f"{START_SECONDS_MAX:.0f} s. End its processes, or set DATABASE_URL.\n"
            f"{_log_end(home)}"
        )
    return held[0] if held else None


def _answers(home: Path) -> bool:
    lines = pid_file_lines(home)
    if len(lines) < 8 or not lines[7].startswith("ready"):  # Line 8 is the status.
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        # A file may outlast its server; only a postmaster listens.
        return probe.connect_ex(os.fsencode(socket_path(home))) == 0


def _launch_postgres(home: Path, binaries: Binaries, server_fd: int) -> None:
    folder = home / "socket"
    make_folder_of_server_user(folder)
    # Quoted, as the parameter is a list: a path may have a comma or a space.
    quoted = str(folder).replace('"', '""')
    parameters = {**PARAMETERS, "unix_socket_directories": f'"{quoted}"'}
    command = [str(binaries.folder / "postgres"), "-D", str(home / "data")]
    for name, value in parameters.items():
        command += ["-c", f"{name}={value}"]
    launch(command, home / "postgres.log", server_fd, user=as_server_user())


def _log_end(home: Path) -> str:
    log = home / "postgres.log"
    if not os.access(log, os.R_OK):
        return f"There is no {log}."
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join([f"The end of {log}:", *lines])

"""PgBouncer before the server of the tests, which shares connections by transaction."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from django_pgqueue.testing.embedded import (
    as_server_user,
    clean_environment,
    make_folder_of_server_user,
)
from tests.harness.system import require_system
from tests.harness.waiting import wait_for

# Fewer than a worker of four threads has clients, so that they are shared.
POOL_SIZE = 4

# Nothing is ignored that a client asks for: what PgBouncer cannot do has to be seen.
CONFIGURATION = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens_on}
unix_socket_dir =
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
server_lifetime = 5
server_login_retry = 1
auth_type = trust
auth_file = {folder}/users
admin_users = pgbouncer
logfile = {folder}/log
pidfile =
"""


class PgBouncer:
    """
    A process of its own, from ``with`` until its end.

    Args:
        host: Of the server; a folder with its socket, or a name.
        port: Of the server.
        users: Those who log in, with their passwords.
        pool_size: How many connections to the server each user and database have.
    """

    def __init__(
        self,
        host: str,
        port: int,
        users: Mapping[str, str],
        *,
        pool_size: int = POOL_SIZE,
    ) -> None:
        self._program = require_system(
            "pgbouncer", "/usr/sbin/pgbouncer", reason="to share connections"
        )
        self._host, self._server_port = host, port
        self._users = {**users, "pgbouncer": ""}
        self._pool_size = pool_size
        self.port = _free_port()

    @property
    def address(self) -> dict[str, Any]:
        """What replaces the address in an entry of DATABASES."""
        return {"HOST": "127.0.0.1", "PORT": str(self.port)}

    def ask(self, command: str) -> list[tuple[Any, ...]]:
        """Return what a command of PgBouncer's console answers."""
        # It does not take the extended protocol.
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="pgbouncer",
            dbname="pgbouncer",
            autocommit=True,
            cursor_factory=psycopg.ClientCursor,
        ) as console:
            cursor = console.execute(command)
            return cursor.fetchall() if cursor.description else []

    def __enter__(self) -> Self:
        self._files = tempfile.TemporaryDirectory(prefix="pgbouncer")
        # Open to the server's user, whom root runs it as.
        outer = Path(self._files.name)
        outer.chmod(0o755)
        folder = outer / "files"
        make_folder_of_server_user(folder)
        (folder / "users").write_text(
            "".join(
                f'"{name}" "{password}"\n' for name, password in self._users.items()
            )
        )
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(
                host=self._host,
                port=self._server_port,
                listens_on=self.port,
                pool_size=self._pool_size,
                folder=folder,
            )
        )
        for file in (configuration, folder / "users"):
            file.chmod(0o644)  # Whatever the umask: the folder is closed to others.
        self.log = folder / "log"
        self._process = subprocess.Popen(
            [self._program, "--quiet", configuration],
            cwd="/",
            env=clean_environment(),
            start_new_session=True,
            **as_server_user(),
        )
        wait_for(self._answers, what="PgBouncer answers")
        return self

    def __exit__(self, *args: object) -> None:
        self._process.send_signal(signal.SIGTERM)  # At once, whoever is connected.
        self._process.wait(20)
        self._files.cleanup()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        with contextlib.suppress(psycopg.OperationalError):
            return bool(self.ask("SHOW VERSION"))
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

"""A PostgreSQL server of the run's own, which it may crash, stop and change at will."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import environ
import psycopg

from django_pgqueue.testing.embedded import PORT, EmbeddedServer
from tests.faults import history, schedules
from tests.harness.waiting import wait_for
from tests.harness.worker_process import is_alive

READY_SECONDS = 60.0
REMOVED_SECONDS = 20.0


class Server:
    """One embedded server in a temporary folder, started from a copy of *template*."""

    def __init__(self, template: Path | None = None) -> None:
        # Short, since a socket's path is; and open to the server's user.
        self.folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
        self.folder.chmod(0o755)
        self._uses: list[EmbeddedServer] = []
        if template is not None:
            home = self.folder / ".pgqueue"
            home.mkdir()
            # cp keeps the owner, who is the server's user, and copies sparsely.
            subprocess.run(
                ["cp", "-a", str(template), str(home / "data")], check=True, timeout=60
            )
        self.start()

    @property
    def url(self) -> str:
        """Where it is, for django-environ and psycopg."""
        return self._uses[0].url

    @property
    def address(self) -> tuple[str, int]:
        """The folder of its socket, and its port."""
        return str(self.home / "socket"), PORT

    @property
    def home(self) -> Path:
        """The folder of its files."""
        return self._uses[0].home

    @property
    def database(self) -> dict[str, Any]:
        """An entry for DATABASES."""
        return dict(environ.Env.db_url_config(self.url))

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open one for the run itself, which no fault picks; waits for the server."""

        def open_one() -> psycopg.Connection[tuple[Any, ...]] | None:
            with contextlib.suppress(psycopg.OperationalError):
                return psycopg.connect(
                    self.url,
                    autocommit=True,
                    application_name="faults",
                    options="-c statement_timeout=0 -c lock_timeout=0 "
                    "-c idle_in_transaction_session_timeout=0 "
                    "-c default_transaction_isolation=read\\ committed",
                )
            return None

        return wait_for(open_one, READY_SECONDS, "the server answers")

    def start(self) -> None:
        """Start it, again after a crash or a stop; return when it answers."""
        self._uses.append(EmbeddedServer(self.folder).start())
        self.connect().close()

    def end(self, *, crash: bool) -> None:
        """
        End it as ``pg_ctl stop`` does; return when it is down.

        crash: mode "immediate", without a checkpoint; else "fast".
        """
        self.connect().close()  # It may still be coming back from the last time.
        data = self.home / "data"
        postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGQUIT if crash else signal.SIGINT)
        wait_for(lambda: not is_alive(postmaster), READY_SECONDS, "the server is down")

    def remove(self) -> None:
        """Stop it for good and delete its files."""
        for use in self._uses:
            use.stop()
        until = time.monotonic() + REMOVED_SECONDS
        while self.folder.exists() and time.monotonic() < until:
            # The server's guard may still be on its way out.
            shutil.rmtree(self.folder, ignore_errors=True)
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.remove()


def make_template(build: Path, into: Path) -> Path:
    """Make a cluster with the tables of *build* and the history; return its copy."""
    with Server() as server:
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "--run-syncdb", "-v0"],
            cwd=build,
            env=environment(
                build,
                into,
                {
                    "databases": {"default": server.database},
                    "pgqueue": {},
                    "points": {},
                },
            ),
            check=True,
            timeout=120,
        )
        with server.connect() as connection:
            connection.execute(history.INSTALL)
            connection.execute(schedules.INSTALL)
        server.end(crash=False)
        template = into / "template"
        subprocess.run(
            ["cp", "-a", str(server.home / "data"), str(template)],
            check=True,
            timeout=60,
        )
    return template


def environment(build: Path, folder: Path, told: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a process of the run."""
    inherited = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
    return {
        **inherited,
        "PYTHONPATH": str(build),
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "PGQUEUE_FAULTS_FOLDER": str(folder),
        "PGQUEUE_FAULTS": json.dumps(told),
    }

"""A hundred workers that start at once, and whose database goes away."""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.server import Server
from tests.harness.waiting import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
WORKERS = int(os.environ.get("PGQUEUE_SCALE_WORKERS", "100"))

# Loops of a worker with a connection each, and room for us.
CONNECTIONS_PER_WORKER = 6
AWAY_SECONDS = 15.0
PATIENCE_SECONDS = 120.0

RECEIVED = re.compile(r"^(\d+\.\d+) .*connection received", re.MULTILINE)
SETTINGS = {
    "log_connections": "'on'",
    "log_line_prefix": "'%n '",
    "max_connections": str(WORKERS * CONNECTIONS_PER_WORKER + 50),
}


class Refuser:
    """Stands where the server's socket was, hangs up, and notes when it was called."""

    def __init__(self, path: Path) -> None:
        self.calls: list[float] = []
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        path.chmod(0o777)
        self._socket.listen(4_096)
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        self._socket.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not self._over.is_set():
                if selector.select(0.1):
                    client, _ = self._socket.accept()
                    self.calls.append(time.time())
                    client.close()


def reconnects() -> Iterator[dict[str, Any]]:
    """Yield how often a fleet calls its database, second by second."""
    with Server() as server:
        with server.connect() as connection:
            for name, value in SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}")
        server.end(crash=False)
        server.start()
        folder = Path(tempfile.mkdtemp(prefix="pgqueue-scale-"))
        log = folder / "worker.log"
        environment = {
            **os.environ,
            "DATABASE_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.scale.settings",
            "PGQUEUE_SCALE_WORKER": json.dumps(
                {"database": "pgqueue", "options": {}, "pgqueue": {}}
            ),
        }
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "-v0"],
            cwd=REPOSITORY,
            env=environment,
            check=True,
        )
        started = time.time()
        with log.open("w") as output:
            fleet = subprocess.Popen(
                [
                    *(sys.executable, "-m", "django", "pgqueue_worker"),
                    *(f"--processes={WORKERS}", "--threads=1"),
                ],
                cwd=REPOSITORY,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_for(
                lambda: log.read_text().count("started    worker=") >= WORKERS,
                PATIENCE_SECONDS,
                "all workers have started",
            )
            time.sleep(5.0)
            yield _line("all start at once", _received(server, started))
            path = Path(server.address[0]) / f".s.PGSQL.{server.address[1]}"
            server.end(crash=True)
            refuser = Refuser(path)
            time.sleep(AWAY_SECONDS)
            refuser.close()
            yield _line("the database is away", refuser.calls)
            started = time.time()
            server.start()
            wait_for(lambda: _is_whole(server), PATIENCE_SECONDS, "all are back")
            back = time.time() - started
            yield {
                **_line("the database is back", _received(server, started)),
                "all listen again after s": round(back, 1),
            }
        finally:
            os.killpg(fleet.pid, signal.SIGKILL)
            fleet.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


def _is_whole(server: Server) -> bool:
    with server.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        ).fetchone()
        return row is not None and row[0] >= WORKERS


def _received(server: Server, since: float) -> list[float]:
    """Return when the server was called, since then, as its log says."""
    text = (server.home / "postgres.log").read_text(errors="replace")
    times = map(float, RECEIVED.findall(text))
    return [at for at in times if at >= since]


def _line(what: str, calls: list[float]) -> dict[str, Any]:
    seconds = Counter(int(at - calls[0]) for at in calls) if calls else Counter()
    return {
        "what": f"{WORKERS} workers, {what}",
        "calls": len(calls),
        "highest in a second": max(seconds.values(), default=0),
        "by second": [seconds[n] for n in range(max(seconds, default=-1) + 1)][:20],
    }

"""
Run tests through PgBouncer, which shares connections by transaction: `make pgbouncer`.

    pgbouncer.py [ARGUMENT…]

Django's connections and those of workers go through it, but for the one that listens.
What tests look with beside them, tests.conftest's cursors, goes to the server. The
server and PgBouncer are this run's own. Arguments are pytest's; without a path, all
that talks to the database in these ways.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from django_pgqueue.testing.embedded import PARAMETERS, EmbeddedServer  # noqa: E402
from tests.harness.pgbouncer import PgBouncer  # noqa: E402

MARKS = "not slow and not spark"

CHOSEN = [
    "tests/acceptance",
    "tests/admin",
    "tests/backends",
    "tests/management",
    "tests/operators",
    "tests/schedules",
    "tests/tasks",
    "tests/testing",
    "tests/topics",
]
# Tests hold transactions open, some beside each other.
POOL_SIZE = 20

# They measure.
LEFT_OUT = [
    "tests/admin/test_costs.py",
    "tests/management/test_bench.py",
]
# They end or look for a session by its process id or name, are somebody else in it, set
# what stays with it or starts it, or listen in it.
OF_SESSIONS = [
    (
        "acceptance/test_connections.py::"
        "test_the_supervisor_has_no_connection_and_loops_are_named"
    ),
    (
        "acceptance/test_isolation_of_jobs.py::"
        "test_a_job_finds_everything_as_the_first_one_did"
    ),
    "acceptance/test_roles.py",
    (
        "acceptance/test_wakes.py::"
        "test_every_connection_of_a_worker_is_replaced_when_it_is_terminated"
    ),
    "management/test_doctor.py",
    "tasks/test_unique.py::test_a_deadlock_of_a_bulk_alone_is_run_again",
    "topics/test_backfill.py",
]


def main(*arguments: str) -> int:
    with tempfile.TemporaryDirectory(prefix="pgqueue-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # As root, the server runs as a user who must enter it.
        PARAMETERS["fsync"] = "off"
        with EmbeddedServer(folder) as server:
            address = urlsplit(server.url)
            host = parse_qs(address.query).get("host", [address.hostname])[0]
            port = parse_qs(address.query).get("port", [address.port])[0]
            with PgBouncer(
                str(host),
                int(port or 5432),
                {address.username or "": ""},
                pool_size=POOL_SIZE,
            ) as bouncer:
                print(bouncer.ask("SHOW VERSION")[0][0], flush=True)
                told = {
                    "DATABASE_URL": server.url,
                    "PGQUEUE_TEST_POOLER": str(bouncer.port),
                }
                chosen = [a for a in arguments if a.startswith("tests/")]
                command = [sys.executable, "-m", "pytest", "-n", "0", "-m", MARKS]
                # Dropped with the server: PgBouncer keeps connections to databases.
                command += ["--reuse-db", *(f"--ignore={left}" for left in LEFT_OUT)]
                command += [f"--deselect=tests/{each}" for each in OF_SESSIONS]
                command += [*arguments, *([] if chosen else CHOSEN)]
                return subprocess.run(
                    command, cwd=ROOT, env=os.environ | told, check=False
                ).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

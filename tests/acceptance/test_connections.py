"""The connections of a worker: clean between jobs, named, none before the fork."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection

from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.smoke

BACKENDS = """
SELECT application_name, state FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND backend_type = 'client backend'
"""


def backends():
    with connection.cursor() as cursor:
        cursor.execute(BACKENDS)
        return cursor.fetchall()


def test_the_supervisor_has_no_connection_and_loops_are_named(start_worker, the_ledger):
    """Each loop's backend says what it is, and of which worker process."""
    worker = start_worker("--queues=default", processes=2)
    wait_until_final(enqueue(crash_tasks.record, 10))
    loops = ("listener", "claimer", "settler", "heartbeat")

    def names():
        return {name for name, _ in backends() if name.startswith("pgqueue ")}

    def are_named():
        found = names()
        return all(
            any(n.startswith(f"pgqueue {loop} {who}"[:63]) for n in found)
            for who in worker.names()
            for loop in loops
            if loop != "settler"
        )

    wait_for(are_named, what=f"every loop has a named backend: {names()}")
    assert [] == [name for name in names() if "supervisor" in name]
    assert [] == sockets_of(worker.pid)
    assert len(backends()) <= 2 * (len(loops) + 4) + 2


def sockets_of(pid):
    """Return the network and Unix sockets that a process has open."""
    links = [fd.readlink().name for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:")]

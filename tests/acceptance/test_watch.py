"""The watch tells of what is wrong, whether a worker lives or not."""

from __future__ import annotations

import signal

import pytest

from django_pgqueue.models import Alert
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue

pytestmark = pytest.mark.slow

# The lease of a second has run out, and that is long ago.
LOOK = "SELECT kind, change FROM pgqueue_watch(in_lapsed => '10 ms', in_waits => '1 h')"


def test_with_every_worker_dead_a_lapsed_lease_is_said_once(
    start_worker, the_ledger, gate, cursor
):
    """By plain SQL, until a worker has taken the job over."""
    short = {"LEASE_SECONDS": 1, "POLL_INTERVAL_SECONDS": 0.2}
    enqueue(crash_tasks.record_through_gate, gate=str(gate))
    worker = start_worker(pgqueue=short)
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    worker.signal_group(signal.SIGKILL)
    worker.wait()

    def said():
        cursor.execute(LOOK)
        return cursor.fetchall()

    def standing():
        return Alert.objects.filter(ended_at=None).exists()

    assert [("lapsed_leases", "begins")] == wait_for(said, what="the lease runs out")
    assert [] == said()

    start_worker(pgqueue=short)
    # Its leader looks, too, and may be the one to say so.
    wait_for(lambda: said() or not standing(), what="a worker takes it over")
    assert not standing()
    gate.touch()

"""The watch tells of what is wrong, whether a worker lives or not."""

from __future__ import annotations

import signal

from django_pgqueue.models import Alert
from tests.app import crash_tasks
from tests.harness.notices import heard_until_now
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue

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


def test_the_leader_looks_and_others_hear_of_it(start_worker, cursor, other_cursor):
    """Without anybody's cron."""
    cursor.execute("SELECT pgqueue_channel()")
    (channel,) = cursor.fetchone()
    other_cursor.execute(f'LISTEN "{channel}"')
    enqueue(crash_tasks.record.using(queue="nobody_serves"))
    cursor.execute("UPDATE pgqueue_job SET visible_at = visible_at - interval '1 h'")
    worker = start_worker("--queues", "default")
    worker.wait_for_lines(r"alert +begins kind=unclaimed_jobs subject=nobody_serves")

    assert "!alert" in heard_until_now(other_cursor.connection, channel)

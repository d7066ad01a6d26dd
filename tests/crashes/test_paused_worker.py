"""SIGSTOP beyond the lease, then SIGCONT: a worker that thinks it still owns a job."""

from __future__ import annotations

import os
import signal

from django_pgqueue.models import Job
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

SHORT = {"LEASE_SECONDS": 2, "POLL_INTERVAL_SECONDS": 0.5}


def test_a_settle_after_a_lost_lease_is_refused_counted_and_signalled(
    start_worker, the_ledger, gate
):
    """
    It comes while another process runs the job, and changes nothing: the job stays
    that one's, ends there, and ends once.
    """
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    paused = start_worker(threads=1, pgqueue=SHORT)
    wait_for(lambda: the_ledger.entries("start"), what="it runs in the first worker")
    (child,) = paused.children()

    os.kill(child, signal.SIGSTOP)
    start_worker(threads=1, pgqueue=SHORT)
    wait_for(
        lambda: len(the_ledger.entries("start")) == 2,
        what="it runs in the second worker, after a lease",
    )
    before = live_row(job, "leased_by", "deliveries", "attempt", "crashes", "errors")
    gate.with_name(f"gate.{child}").touch()
    os.kill(child, signal.SIGCONT)
    wait_for(lambda: the_ledger.entries("stale"), what="settle_stale was sent")
    assert before == live_row(
        job, "leased_by", "deliveries", "attempt", "crashes", "errors"
    )
    gate.touch()
    final = wait_until_final([job])

    (stale,) = the_ledger.entries("stale")
    assert (job, child, "ack") == (stale.job, stale.pid, stale.note)
    assert 0 == paused.stop()
    assert 1 == len(paused.lines(rf"stale +job={job} .*kind=ack"))
    assert paused.lines(r"stopped .*stale=1 ")
    assert ("archive", "succeeded") == (final[job].table, final[job].state)
    assert 1 == final[job].crashes


def test_a_paused_worker_does_not_start_what_it_had_claimed_ahead(
    start_worker, the_ledger, gate
):
    """What waited behind a running job lost its lease too: it is not run twice."""
    enqueue(crash_tasks.record, 20)
    paused = start_worker(threads=1, pgqueue=SHORT)
    wait_for(lambda: len(the_ledger.entries("end")) == 20, what="it knows short jobs")
    (running,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    wait_for(lambda: the_ledger.starts()[running], what="the gated job runs")
    ahead = enqueue(crash_tasks.record, 30)
    (child,) = paused.children()
    wait_for(lambda: _leased(ahead), what="some are claimed ahead")

    os.kill(child, signal.SIGSTOP)
    start_worker(threads=1, pgqueue=SHORT)
    wait_for(lambda: the_ledger.starts()[running] == 2, what="the job was taken over")
    gate.touch()
    final = wait_until_final([running, *ahead])
    os.kill(child, signal.SIGCONT)
    wait_for(lambda: the_ledger.entries("stale"), what="the late settle is refused")
    paused.stop()

    assert {"succeeded"} == {place.state for place in final.values()}
    assert {running: 1} == the_ledger.repeated()


def _leased(ids):
    return Job.objects.filter(pk__in=ids, leased_by__isnull=False).count()

"""Many consumers, one backlog: every job is run once."""

from __future__ import annotations

from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final


def consume(start_worker, the_ledger, task, jobs, workers):
    """Run *jobs* jobs with *workers* consumers; assert that each ran exactly once."""
    ids = enqueue(task, jobs)
    started = [start_worker(threads=4, wait=False) for _ in range(workers)]

    def all_take_part():
        if workers == len({entry.pid for entry in the_ledger.entries("claim")}):
            return True
        # The others may be done before the last one has started.
        ids.extend(enqueue(task, workers))
        return False

    wait_for(all_take_part, what="each of them has claimed something")
    final = wait_until_final(ids, 100)

    # Deliveries are not compared: what was claimed ahead on a busy machine may be
    # handed back, unbegun.
    assert {("succeeded", 0)} == {
        (place.state, place.crashes) for place in final.values()
    }
    assert dict.fromkeys(ids, 1) == the_ledger.starts()
    assert [] == the_ledger.entries("stale")
    for worker in started:
        assert 0 == worker.stop()


def test_consumers_share_a_backlog_without_a_duplicate(start_worker, the_ledger):
    """settle="immediate", each consumer a supervisor with a process of its own."""
    consume(start_worker, the_ledger, crash_tasks.record, 1_000, 4)

"""A job that ends its process: it is found out, and takes hardly anybody with it."""

from __future__ import annotations

import pytest

from django_pgqueue.models import DeadLetter
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final


@pytest.mark.parametrize(
    "how,cause",
    [
        ("exit", "exit status 7"),
        # The status of a worker that was told to stop.
        ("clean", "exit status 0"),
        ("kill", "signal 9"),
        ("segfault", "signal 11"),
    ],
)
def test_a_poison_job_is_dead_after_three_deaths_and_costs_neighbours_one(
    start_worker, the_ledger, tmp_path, how, cause
):
    """
    Its first death takes the jobs that ran beside it, one repeat each. From then on
    it runs alone. At CRASHES_MAX it is a dead letter, reason worker_lost.
    """
    release, fatal = tmp_path / "release", tmp_path / "fatal"
    beside = enqueue(crash_tasks.record_through_gate, 3, gate=str(release))
    (bad,) = enqueue(crash_tasks.poison, how=how, gate=str(fatal))
    worker = start_worker(threads=4)
    wait_for(lambda: len(the_ledger.entries("start")) == 4, what="all four run")
    behind = enqueue(crash_tasks.record, 40)

    fatal.touch()
    worker.wait_for_lines("rescued ")
    release.touch()
    final = wait_until_final([bad, *beside, *behind])

    assert ("dead", "worker_lost", 3) == (
        final[bad].table,
        final[bad].state,
        final[bad].crashes,
    )
    starts = the_ledger.starts()
    assert 3 == starts[bad]
    assert [2, 2, 2] == [starts[job] for job in beside]
    assert {1} == {starts[job] for job in behind}
    assert {("succeeded", 1)} == {
        (final[job].state, final[job].crashes) for job in beside
    }
    assert {("succeeded", 0)} == {
        (final[job].state, final[job].crashes) for job in behind
    }
    errors = DeadLetter.objects.get(pk=bad).errors
    assert ["worker_lost"] * 3 == [entry["kind"] for entry in errors]
    assert all(cause in entry["message"] for entry in errors)

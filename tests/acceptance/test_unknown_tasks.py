"""Unknown tasks: held for the grace period, then dead; known ones run beside them."""

from __future__ import annotations

from django_pgqueue.models import DeadLetter, Job
from tests.app import crash_tasks
from tests.harness.factories import make_job
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final


def test_an_unknown_task_is_dead_after_its_grace(start_worker, the_ledger):
    """It burns no attempt while it is held, and keeps nobody from running."""
    unknown = make_job(task="shop.tasks.not_deployed_yet").pk
    good = enqueue(crash_tasks.record, 5)
    start_worker(pgqueue={"UNKNOWN_TASK_GRACE_SECONDS": 1, "POLL_INTERVAL_SECONDS": 1})

    final = wait_until_final([unknown, *good], 30)

    assert ("dead", "unknown_task") == (final[unknown].table, final[unknown].state)
    assert final[unknown].deliveries >= 2
    assert {"succeeded"} == {final[job].state for job in good}
    letter = DeadLetter.objects.get(pk=unknown)
    assert "not_deployed_yet" in letter.errors[-1]["message"]


def test_an_unknown_task_is_held_within_its_grace(start_worker, the_ledger):
    """A deploy may bring it; then it runs as if nothing had been."""
    job = make_job(task="shop.tasks.not_deployed_yet").pk
    worker = start_worker()
    wait_for(
        lambda: live_row(job, "deliveries", "leased_by", "attempt") == (1, None, 0),
        what="it is held",
    )
    # The job says why, and so does the log.
    (said,) = Job.objects.get().errors
    assert "unknown_task" == said["kind"]
    assert "no module of TASK_MODULES declares it" in said["message"]
    worker.wait_for_lines("unknown    job=")

    Job.objects.filter(pk=job).update(
        task=crash_tasks.record.name, visible_at=Job.objects.get().enqueued_at
    )
    start_worker()

    final = wait_until_final([job])
    assert ("succeeded", 1) == (final[job].state, final[job].attempt)

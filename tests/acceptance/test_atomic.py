"""atomic=True: a task's writes and its ack are one transaction."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.postgres.day_tables import ARCHIVE
from tests.app import control_tasks
from tests.app.models import Effect
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

pytestmark = pytest.mark.smoke


def notes_of(job):
    return sorted(Effect.objects.filter(job=job).values_list("note", flat=True))


def run_deeds(deeds):
    """Enqueue a job for each; return its id by the deed."""
    return {what: enqueue(control_tasks.atomic_does, what=what)[0] for what in deeds}


def error_of(job):
    (error,) = DeadLetter.objects.get(pk=job).errors
    return error["message"]


def test_the_writes_and_the_ack_commit_together(start_worker, the_ledger):
    """One effect a job, in the archive with its result."""
    jobs = enqueue(control_tasks.atomic_effect, 50)
    start_worker()

    final = wait_until_final(jobs)

    assert {("succeeded", 1)} == {(p.state, p.attempt) for p in final.values()}
    assert sorted(jobs) == sorted(Effect.objects.values_list("job", flat=True))
    assert sorted(jobs) == sorted(ArchivedJob.objects.values_list("result", flat=True))


def test_a_transaction_that_cannot_commit_is_a_failure(start_worker, the_ledger):
    """Nothing of it stays, and the error says why."""
    messages = {
        "fail": "after its write",
        "caught": "can only be rolled back",
        "set_rollback": "can only be rolled back",
        "close": "its connection was closed meanwhile",
        "commit": "This is forbidden when an 'atomic' block is active.",
        "serialization": "x",
        "deferred": "duplicate key",
    }
    jobs = run_deeds(messages)
    start_worker()

    final = wait_until_final(list(jobs.values()))

    assert {("dead", "exhausted")} == {(p.table, p.state) for p in final.values()}
    assert 0 == Effect.objects.count()
    errors = {what: error_of(job) for what, job in jobs.items()}
    assert [] == [what for what in messages if messages[what] not in errors[what]]


def test_a_task_that_ends_its_own_transaction_fails(start_worker, the_ledger):
    """What it committed by itself cannot be undone; the error says what happened."""
    jobs = run_deeds(["raw commit", "raw commit, then more", "COMMIT", "ROLLBACK"])
    start_worker()

    final = wait_until_final(list(jobs.values()))

    assert {("dead", "exhausted")} == {(p.table, p.state) for p in final.values()}
    for job in jobs.values():
        assert "has ended its transaction itself" in error_of(job)
        assert "in another transaction" not in notes_of(job)


def test_hooks_run_after_the_commit_and_none_keeps_another_from_running(
    start_worker, the_ledger
):
    """A hook that raises does not undo the job: its archived row gets an error."""
    (job,) = enqueue(control_tasks.atomic_does, what="hooks")
    worker = start_worker()
    worker.wait_for_lines("late       job=")

    assert [1, 1] == [entry.note for entry in the_ledger.entries("hook")]
    row = ArchivedJob.objects.get(pk=job)
    assert ("succeeded", ["in a hook"]) == (
        row.state,
        [entry["message"] for entry in row.errors],
    )


def test_a_lost_lease_takes_the_writes_back(start_worker, the_ledger, gate):
    """Counted as stale; the one who took the job over writes them."""
    (job,) = enqueue(control_tasks.atomic_through_gate, gate=str(gate))
    worker = start_worker()
    wait_for(lambda: the_ledger.entries("start"), what="it runs")

    Job.objects.filter(pk=job).update(leased_by="somebody", deliveries=2)
    gate.touch()
    worker.wait_for_lines("stale      job=")

    assert ("somebody", 2) == live_row(job, "leased_by", "deliveries")
    assert [] == notes_of(job)
    assert 1 == len(worker.lines("stale "))


def test_the_lease_is_renewed_while_it_runs(start_worker, the_ledger, gate):
    """No row of the queue is locked before the ack."""
    (job,) = enqueue(control_tasks.atomic_through_gate, gate=str(gate))
    start_worker(pgqueue={"LEASE_SECONDS": 1})
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    (first,) = live_row(job, "visible_at")
    wait_for(
        lambda: (live_row(job, "visible_at")[0] - first).total_seconds() > 1,
        what="its lease is renewed",
    )
    gate.touch()

    final = wait_until_final([job])

    assert ("succeeded", 1) == (final[job].state, final[job].deliveries)
    assert ["after", "before"] == notes_of(job)


def test_a_partition_that_is_dropped_meanwhile_costs_no_attempt(
    start_worker, the_ledger, gate
):
    """The transaction rolls back, the partition is made, and the job runs again."""
    (job,) = enqueue(control_tasks.atomic_through_gate, gate=str(gate))
    start_worker()
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    with connection.cursor() as cursor:
        cursor.execute("SELECT (now() AT TIME ZONE 'UTC')::date")
        (today,) = cursor.fetchone()
        cursor.execute(f"DROP TABLE {ARCHIVE.name_of(today)}")
    gate.touch()

    final = wait_until_final([job])

    assert ("succeeded", 1, 2) == (
        final[job].state,
        final[job].attempt,
        final[job].deliveries,
    )
    assert ["after", "before"] == notes_of(job)

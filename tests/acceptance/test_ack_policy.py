"""Ack policies: when a job counts as done, and what a failure then means."""

from __future__ import annotations

import pytest

from django_pgqueue.models import ArchivedJob, Job
from tests.app import control_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final


def started(the_ledger, count=1):
    wait_for(lambda: len(the_ledger.entries("start")) >= count, what="the jobs run")


def notes(the_ledger, event):
    return [entry.note for entry in the_ledger.entries(event)]


# first -------------------------------------------------------------------------------


def test_first_is_acked_before_the_task_starts(start_worker, the_ledger, gate):
    """The job is archived while its task runs; its result comes after it."""
    (job,) = enqueue(control_tasks.acks_first, gate=str(gate))
    start_worker()
    started(the_ledger)

    row = ArchivedJob.objects.get(pk=job)
    assert ("succeeded", None) == (row.state, row.result)
    assert None is live_row(job, "id")

    gate.touch()
    wait_for(lambda: ArchivedJob.objects.get(pk=job).result == 42, what="its result")


def test_first_that_fails_is_noted_and_never_retried(start_worker, the_ledger):
    """At most once: the archived row keeps its state and gets an error."""
    (job,) = enqueue(control_tasks.acks_first, how="fail")
    worker = start_worker()

    worker.wait_for_lines("late       job=")
    row = ArchivedJob.objects.get(pk=job)
    assert ("succeeded", ["builtins.ValueError"]) == (
        row.state,
        [entry["type"] for entry in row.errors],
    )
    assert {job: 1} == dict(the_ledger.starts())


def test_first_that_kills_its_process_is_no_crash(start_worker, the_ledger):
    """There is nothing left to be run again, and nothing to be counted."""
    (job,) = enqueue(control_tasks.acks_first, how="kill")
    worker = start_worker()
    worker.wait_for_lines(r"started    worker=", 2)
    (good,) = enqueue(control_tasks.acks_first)

    final = wait_until_final([job, good])

    assert ("succeeded", 0, 1) == (
        final[job].state,
        final[job].crashes,
        final[job].deliveries,
    )
    assert 1 == the_ledger.starts()[job]


# reject_on_error ---------------------------------------------------------------------


# manual ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word, table, state",
    [("ack", "archive", "succeeded"), ("reject", "dead", "rejected")],
)
def test_a_word_is_committed_when_it_returns(
    start_worker, the_ledger, gate, word, table, state
):
    """While the task goes on, its job is where the word has sent it."""
    (job,) = enqueue(control_tasks.speaks, words=[word], gate=str(gate))
    start_worker()
    wait_for(lambda: the_ledger.entries("said"), what="the word was said")

    final = wait_until_final([job])

    assert (table, state) == (final[job].table, final[job].state)
    gate.touch()


def test_a_word_about_a_lost_job_raises(start_worker, the_ledger, gate):
    """LeaseLost, and nothing is written: the job is somebody else's."""
    (job,) = enqueue(control_tasks.speaks, words=["ack"], before=str(gate))
    worker = start_worker()
    started(the_ledger)

    Job.objects.filter(pk=job).update(leased_by="somebody", deliveries=2)
    gate.touch()
    wait_for(lambda: the_ledger.entries("refused"), what="the word was refused")
    worker.wait_for_lines("stale      job=.* kind=ack")

    assert ["LeaseLost"] == [name for name, _ in notes(the_ledger, "refused")]
    assert ("somebody", 2) == live_row(job, "leased_by", "deliveries")
    assert 1 == len(worker.lines("stale "))

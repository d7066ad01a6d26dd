"""Logs of jobs: what a task writes down is stored with the end of its attempt."""

from __future__ import annotations

import pytest

from django_pgqueue.models import ArchivedJob, DeadLetter
from tests.app import control_tasks
from tests.app import tasks as plain_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final


def texts(entry):
    return [text for _, text in entry["log"]]


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_each_attempt_has_its_log(start_worker, pool):
    """With its error, or in an entry of its own; whatever runs it."""
    done, *_ = enqueue(plain_tasks.writes_a_log)
    failed, *_ = enqueue(plain_tasks.writes_a_log, how="fail")
    start_worker(f"--pool={pool}")
    wait_until_final([done, failed])

    (entry,) = ArchivedJob.objects.get(pk=done).errors
    assert ["attempt 1, token=s3cret", "100% done"] == texts(entry)
    errors = DeadLetter.objects.get(pk=failed).errors
    assert ["attempt 1, token=s3cret", "attempt 2, token=s3cret"] == [
        texts(each)[0] for each in errors
    ]


def test_the_log_of_a_task_that_is_acked_first_is_noted(start_worker):
    """In its archived row, when it has ended."""
    (job,) = enqueue(control_tasks.logs_after_its_ack)
    start_worker()
    wait_until_final([job])

    (entry,) = wait_for(lambda: ArchivedJob.objects.get(pk=job).errors)
    assert ("log", ["it goes on"]) == (entry["kind"], texts(entry))

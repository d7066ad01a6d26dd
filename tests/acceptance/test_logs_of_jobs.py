"""Logs of jobs: what a task writes down is stored with the end of its attempt."""

from __future__ import annotations

from django_pgqueue.models import ArchivedJob, DeadLetter
from tests.app import tasks as plain_tasks
from tests.harness.worker_process import enqueue, wait_until_final


def texts(entry):
    return [text for _, text in entry["log"]]


def test_each_attempt_has_its_log(start_worker):
    """With its error, or in an entry of its own; whatever runs it."""
    done, *_ = enqueue(plain_tasks.writes_a_log)
    failed, *_ = enqueue(plain_tasks.writes_a_log, how="fail")
    start_worker()
    wait_until_final([done, failed])

    (entry,) = ArchivedJob.objects.get(pk=done).errors
    assert ["attempt 1, token=s3cret", "100% done"] == texts(entry)
    errors = DeadLetter.objects.get(pk=failed).errors
    assert ["attempt 1, token=s3cret", "attempt 2, token=s3cret"] == [
        texts(each)[0] for each in errors
    ]

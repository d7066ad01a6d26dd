"""archive=False: a job that succeeded is gone, and everything else is kept."""

from __future__ import annotations

import pytest

from django_pgqueue import JobNotFound
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.tasks.result import JobResult
from tests.app import control_tasks
from tests.app.models import Effect
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue


def gone():
    """Wait until no job is left in any queue."""
    wait_for(lambda: not Job.objects.exists(), what="no job is left")


@pytest.mark.parametrize(
    "task", [control_tasks.leaves_no_trace, control_tasks.plainly_leaves_no_trace]
)
def test_a_success_leaves_no_row(start_worker, the_ledger, task):
    """Each ran once, and there is no result to ask for."""
    jobs = enqueue(task, 50)
    start_worker()
    gone()

    assert dict.fromkeys(jobs, 1) == dict(the_ledger.starts())
    assert not ArchivedJob.objects.exists()
    assert not DeadLetter.objects.exists()
    with pytest.raises(JobNotFound):
        JobResult(jobs[0]).refresh()


def test_an_atomic_job_is_deleted_with_what_it_writes(start_worker, the_ledger):
    """In the same transaction, once."""
    jobs = enqueue(control_tasks.atomically_leaves_no_trace, 20)
    start_worker()
    gone()

    assert sorted(jobs) == sorted(Effect.objects.values_list("job", flat=True))
    assert not ArchivedJob.objects.exists()

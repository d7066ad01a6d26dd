"""Overdue: the leader cancels workflows whose deadline has passed, all of each."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue import group
from django_pgqueue.models import Job, Workflow
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.settle import Ended, retry
from django_pgqueue.worker.chores.overdue import (
    ASK_AGAIN_SECONDS,
    REST_SECONDS,
    cancel_overdue,
)
from tests.app.workflow_tasks import give
from tests.harness.factories import LEASE


def test_a_job_whose_row_is_held_is_asked_again_until_it_was(link, cursor, new_cursor):
    """It was being put back for another attempt, say, which would run to its end."""
    result = group(give.s(1), give.s(2)).delay(deadline="1h")
    held, free = claim(cursor, queues=["default"], worker="w", limit=2, lease=LEASE)
    Workflow.objects.update(deadline_at=CLOCK - timedelta(minutes=1))
    other = new_cursor()

    with other.connection.transaction():
        other.execute("SELECT FROM pgqueue_job WHERE id = %s FOR UPDATE", [held.id])
        assert ASK_AGAIN_SECONDS == cancel_overdue(link)
        assert [free.id] == asked()
        retry(other, worker="w", ended=[Ended(held.id, held.delivery)])

    assert REST_SECONDS == cancel_overdue(link)
    assert [] == list(Job.objects.filter(id=held.id))
    assert ("running", 1) == (result.refresh().status, result._read().active)
    assert REST_SECONDS == cancel_overdue(link)


def asked():
    """Return the jobs that were asked to stop."""
    found = Job.objects.exclude(cancel_requested_at=None)
    return list(found.values_list("id", flat=True))

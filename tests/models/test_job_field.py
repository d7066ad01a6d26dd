"""JobField: a user's row remembers a job, wherever the job is."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from django_pgqueue.models import ArchivedJob, DeadLetter, Job, JobReference
from django_pgqueue.tasks.result import JobResult
from tests.app.models import Order
from tests.harness.factories import make_archived_job, make_dead_letter, make_job

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "make,model",
    [
        (make_job, Job),
        (make_archived_job, ArchivedJob),
        (make_dead_letter, DeadLetter),
    ],
)
def test_the_job_is_found_in_whichever_table_it_is(make, model):
    """`.job` is a Job, an ArchivedJob or a DeadLetter."""
    row = make()
    order = Order.objects.create(receipt=row.pk)

    found = Order.objects.get(pk=order.pk).receipt.job

    assert (model, row.pk) == (type(found), found.pk)


@pytest.mark.parametrize(
    "remember",
    [
        lambda job: job.pk,
        lambda job: str(job.pk),
        lambda job: job,
        lambda job: JobResult(job.pk),
        lambda job: JobReference(job.pk),
    ],
    ids=["int", "text", "row", "result", "reference"],
)
def test_whatever_names_a_job_can_be_assigned_and_searched_for(remember):
    """An id, a result and a row mean the same job, in an assignment and a filter."""
    job, other = make_job(), make_job()
    Order.objects.create(receipt=other)
    order = Order(receipt=remember(job))
    order.save()

    assert [order] == list(Order.objects.filter(receipt=remember(job)))
    assert [order] == list(Order.objects.filter(receipt__in=[remember(job)]))
    assert [order] == list(Order.objects.exclude(receipt=remember(other)))


@pytest.mark.parametrize("value", ["seven", object(), [1]])
def test_what_names_no_job_is_refused_at_once(value):
    """The error comes where the mistake is, not at the save."""
    with pytest.raises((ValidationError, TypeError)):
        Order(receipt=value)

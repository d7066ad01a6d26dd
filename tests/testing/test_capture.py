"""capture(): the jobs of a block, as they were enqueued."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.testing import capture, drain
from tests.app.models import Order
from tests.app.tasks import add, fails_once, make_order, noop, retries_later
from tests.harness.factories import LEASE


def names():
    return sorted(Order.objects.values_list("name", flat=True))


# As a user would write it ------------------------------------------------------------


class PlainTestCase(TestCase):
    """Everything works inside the transaction that a TestCase rolls back."""

    def test_a_captured_job_runs_when_drained(self):
        """The example of the documentation."""
        with capture() as jobs:
            make_order.delay("from a job")
        assert ["tests.app.tasks.make_order"] == [job.task for job in jobs]

        assert 1 == drain()

        assert ["from a job"] == names()

    def test_nothing_is_left_of_other_tests(self):
        """Neither jobs nor what they wrote; whichever test runs first."""
        assert [] == names()
        assert 0 == Job.objects.count() + ArchivedJob.objects.count()
        make_order.delay("x")
        drain()


pytestmark = pytest.mark.django_db


def test_capture_lists_jobs_in_the_order_of_their_enqueues():
    """With what their rows hold; jobs from before and after the block are not in it."""
    noop.delay("before")
    with capture() as jobs:
        second = noop.using(queue="mail", priority=5, headers={"a": 1}).delay(1, b=2)
        first = add.using(priority=100).delay(1, 2)
        bulk = noop.bulk([(3,), (4,)])
    noop.delay("after")

    assert [r.id for r in (second, first, *bulk)] == [job.id for job in jobs]
    job = jobs[0]
    assert ("tests.app.tasks.noop", "mail", [1], {"b": 2}, 5, {"a": 1}) == (
        job.task,
        job.queue,
        job.args,
        job.kwargs,
        job.priority,
        job.headers,
    )


def test_capture_leaves_out_what_rolled_back():
    """A savepoint took it along."""
    with capture() as jobs:
        noop.delay(1)
        with transaction.atomic():
            noop.delay(2)
            transaction.set_rollback(True)
        noop.delay(3)

    assert [[1], [3]] == [job.args for job in jobs]


def test_a_job_that_ran_inside_the_block_is_as_it_was_enqueued():
    """Whatever became of it, and although its row has changed or moved on."""
    with capture() as jobs:
        add.using(priority=3).delay(1, 2)
        fails_once.delay()
        retries_later.delay()
        assert 3 == drain()

    assert [
        (add.name, [1, 2], 3, 0, 0, []),
        (fails_once.name, [], 0, 0, 0, []),
        (retries_later.name, [], 0, 0, 0, []),
    ] == [(j.task, j.args, j.priority, j.attempt, j.deliveries, j.errors) for j in jobs]
    assert [0, 1, 1] == [model.objects.count() for model in (Order, ArchivedJob, Job)]


def test_jobs_enqueued_by_sql_are_in_it():
    """As those of a trigger; nobody sends a signal for them."""
    with capture() as jobs, connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgqueue_job (task) VALUES ('sql')")
        cursor.execute("SELECT pgqueue_enqueue('function')")

    assert ["sql", "function"] == [job.task for job in jobs]


@pytest.mark.django_db(transaction=True)
def test_what_a_worker_has_claimed_meanwhile_is_as_it_was_enqueued(cursor):
    """Also when the block ends before the job does."""
    with capture() as jobs:
        noop.using(queue="mail").delay(1)
        (claimed,) = claim(cursor, queues=["mail"], worker="w", limit=1, lease=LEASE)

    (job,) = jobs
    assert (claimed.id, "mail", [1], 0, 0) == (
        job.id,
        job.queue,
        job.args,
        job.attempt,
        job.deliveries,
    )


def test_a_captured_list_can_be_asked_before_its_block_ends():
    """refresh() fills it, and so does an assertion."""
    with capture() as jobs:
        noop.delay(1)
        assert [] == jobs
        assert 1 == len(jobs.refresh())
        noop.delay(2)
        jobs.assert_enqueued(noop, count=2)
        assert 2 == len(jobs)
        jobs.assert_not_enqueued(add)


def test_a_captured_list_knows_its_block_alone():
    """Where assert_enqueued() itself looks at all jobs."""
    noop.delay("before")
    with capture() as jobs:
        noop.delay("inside")

    jobs.assert_not_enqueued(noop, "before")
    with pytest.raises(AssertionError, match="'inside', not 'before'"):
        jobs.assert_enqueued(noop, "before")
    with pytest.raises(AssertionError, match="Jobs were enqueued"):
        jobs.assert_not_enqueued()

"""capture(): the jobs of a block, as they were enqueued."""

from __future__ import annotations

import pytest

from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.testing import capture, drain
from tests.app.models import Order
from tests.app.tasks import add, fails_once, noop, retries_later

# As a user would write it ------------------------------------------------------------


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

"""A queue that may hold so many jobs: a leader counts, and producers go by it."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import QueueFull
from django_pgqueue.models import Job, Queue
from django_pgqueue.tasks import depth
from tests.app.tasks import noop
from tests.harness.factories import make_jobs
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

pytestmark = pytest.mark.slow

MAIL = noop.using(queue="mail")


@pytest.fixture(autouse=True)
def _forget():
    """Nothing is known of queues, as in a new process."""
    depth.gauges.clear()
    yield
    depth.gauges.clear()


@pytest.fixture
def limit(settings):
    """A function: the queue "mail" has a limit; returns PGQUEUE for workers."""

    def limit(depth_max, **more):
        settings.PGQUEUE = {"QUEUES": {"mail": {"depth_max": depth_max, **more}}}
        return settings.PGQUEUE

    return limit


def noted():
    return Queue.objects.filter(name="mail").values_list("depth", flat=True).first()


def test_a_producer_is_refused_by_what_the_leader_has_counted(start_worker, limit):
    """It counts nothing itself; when workers have made room, it goes on."""
    pgqueue = limit(50)
    start_worker("--queues", "other", pgqueue=pgqueue)
    make_jobs(49, queue="mail", task="tests.app.tasks.noop")
    wait_for(lambda: 49 == noted(), what="the leader's count")
    MAIL.delay()
    wait_for(lambda: 50 == noted(), what="the leader's next one")

    depth.gauges.clear()
    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(QueueFull, match="it holds 50 jobs of at most 50"),
    ):
        MAIL.delay()
    assert [True] == ["FROM pgqueue_queue" in query["sql"] for query in queries]

    start_worker("--queues", "mail", pgqueue=pgqueue)

    def is_stored():
        try:
            return MAIL.delay()
        except QueueFull:
            return None

    wait_until_final([wait_for(is_stored, what="room").id])


def test_a_producer_that_waits_goes_as_fast_as_workers_do(start_worker, limit):
    """The queue holds no more than it may, and all jobs run."""
    most = 40
    pgqueue = limit(most, on_full="block", block_seconds=60)
    start_worker("--queues", "mail", pgqueue=pgqueue)
    ids, held = [], []
    for _ in range(20):
        ids += [job.id for job in MAIL.bulk([()] * 10)]
        held.append(Job.objects.filter(queue="mail").count())

    wait_until_final(ids)
    assert 200 == len(ids)
    assert max(held) <= most

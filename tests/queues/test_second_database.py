"""Jobs on another alias than "default": every verb works on the second database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connections, transaction

from django_pgqueue import WrongDatabase
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.postgres.wake import listen, prove
from django_pgqueue.queues.claim import claim, known_queues, remember_queues
from django_pgqueue.queues.enqueue import Placement, enqueue
from django_pgqueue.queues.find import find
from django_pgqueue.queues.lease import release, renew, rescue
from django_pgqueue.queues.partitions import make_partitions
from django_pgqueue.queues.redrive import redrive
from django_pgqueue.queues.settle import Ended, ack, applied, dead_letter, retry
from django_pgqueue.testing import capture, drain
from tests.app.models import Order
from tests.app.tasks import add, make_order, noop
from tests.harness.factories import LEASE, make_job

PLAIN = Placement(
    queue="default", task="shop.send", headers="{}", priority=0, max_attempts=5
)


@pytest.fixture(autouse=True)
def _jobs_on_second_database(settings):
    settings.PGQUEUE = {"DATABASE": "queue"}


pytestmark = pytest.mark.django_db(databases=["default", "queue"], transaction=True)


@pytest.fixture
def queue_cursor(new_cursor):
    return new_cursor("queue")


def claim_default(cursor, worker="a"):
    return claim(cursor, queues=["default"], worker=worker, limit=10, lease=LEASE)


def on_default(model):
    return model.objects.using("default").count()


# Storage -----------------------------------------------------------------------------


def test_a_job_lives_its_life_on_the_second_database(queue_cursor):
    """Stored, claimed, renewed, retried, claimed again and archived there."""
    job_id = enqueue(queue_cursor, PLAIN, args="[]", kwargs="{}")
    remember_queues(queue_cursor, [queue.name for queue in known_queues(queue_cursor)])
    (first,) = claim_default(queue_cursor)
    renewed = renew(
        queue_cursor, worker="a", leases=[(first.id, first.delivery)], lease=LEASE
    )
    retried = retry(queue_cursor, worker="a", ended=[Ended(first.id, first.delivery)])
    (second,) = claim_default(queue_cursor)
    acked = ack(
        queue_cursor, worker="a", ended=[Ended(second.id, second.delivery, result="1")]
    )

    assert {job_id} == renewed == retried == acked
    assert {job_id} == applied(queue_cursor, [(job_id, 2)])
    assert "succeeded" == find(queue_cursor, [job_id])[job_id].status
    assert (job_id, 2, 1) == ArchivedJob.objects.values_list(
        "pk", "attempt", "result"
    ).get()
    assert 0 == on_default(Job) + on_default(ArchivedJob)


def test_a_job_gives_up_and_is_redriven_on_the_second_database(queue_cursor):
    """Dead letters are there too, and so is their way back."""
    job = make_job()
    (claimed,) = claim_default(queue_cursor)
    dead_letter(
        queue_cursor,
        worker="a",
        ended=[Ended(claimed.id, claimed.delivery, reason="rejected")],
    )
    assert job.pk == DeadLetter.objects.get().pk

    assert [(job.pk, "default", None, None)] == redrive(queue_cursor, [job.pk])
    assert 0 == on_default(DeadLetter)


def test_leases_are_handed_back_and_rescued_on_the_second_database(queue_cursor):
    """Both leave the job due."""
    make_job()
    (claimed,) = claim_default(queue_cursor)
    release(
        queue_cursor,
        worker="a",
        leases=[(claimed.id, claimed.delivery, claimed.due_at)],
    )
    claim_default(queue_cursor)
    rescue(queue_cursor, worker="a", running=[], lease=LEASE, message="died")

    assert 1 == Job.objects.due().count()


def test_partitions_are_those_of_the_database_that_is_asked(queue_cursor):
    """The archive of the second database has its own days."""
    with queue_cursor.connection.transaction():
        assert [] == make_partitions(queue_cursor)
        (made,) = make_partitions(queue_cursor, days_ahead=8)
        assert made - timedelta(days=8) <= made
        queue_cursor.connection.cursor().execute(
            f"DROP TABLE pgqueue_archived_job_{made:%Y%m%d}"
        )


# Tasks -------------------------------------------------------------------------------


def test_delay_stores_the_job_on_the_second_database():
    """And its result is read from there."""
    result = noop.delay(1, a=2)

    assert 0 == on_default(Job)
    job = Job.objects.get(pk=result.id)
    assert ([1], {"a": 2}) == (job.args, job.kwargs)
    assert ("ready", job) == (result.status, result.job)


def test_a_transaction_on_the_second_database_holds_its_jobs():
    """Rolled back there, the job was never there."""
    with transaction.atomic(using="queue"):
        noop.delay()
        transaction.set_rollback(True, using="queue")

    assert 0 == Job.objects.count()


def test_delay_in_a_transaction_on_default_is_refused():
    """It would not roll back with it; the error names both and the way out."""
    with (
        transaction.atomic(),
        pytest.raises(WrongDatabase, match=r"'default'.*'queue'.*on_commit\(\)"),
    ):
        make_order.delay("x")

    assert 0 == Job.objects.count()


def test_on_commit_stores_the_job_after_the_commit_on_default():
    """The order is committed before its job exists; rolled back, there is none."""
    with transaction.atomic():
        Order.objects.create(name="x")
        noop.on_commit().delay(1)
        assert 0 == Job.objects.count()
    assert [[1]] == list(Job.objects.values_list("args", flat=True))

    with transaction.atomic():
        noop.on_commit().delay(2)
        transaction.set_rollback(True)
    assert 1 == Job.objects.count()


def test_bulk_stores_all_jobs_on_the_second_database():
    """In one transaction of that database."""
    results = add.bulk([(1, 2), {"left": 3, "right": 4}])

    assert [result.id for result in results] == list(
        Job.objects.order_by("pk").values_list("pk", flat=True)
    )
    assert 0 == on_default(Job)


def test_drain_runs_the_jobs_of_the_second_database():
    """Their rows are written where the task writes them, their results read back."""
    order, total = make_order.delay("x"), add.delay(1, 2)

    assert 2 == drain()

    assert ("succeeded", "succeeded", 3) == (order.status, total.status, total.result)
    assert order.result == Order.objects.get().pk
    assert 2 == ArchivedJob.objects.count()
    assert 0 == on_default(ArchivedJob)


def test_capture_finds_the_jobs_of_the_second_database():
    """As a project's own tests ask for them."""
    with capture() as jobs:
        result = add.delay(1, 2)

    assert [(result.id, "tests.app.tasks.add", [1, 2])] == [
        (job.pk, job.task, job.args) for job in jobs
    ]


def test_a_job_field_on_default_finds_its_job_on_the_second_database():
    """The row and the job are in two databases; the number joins them."""
    order = Order.objects.create(receipt=noop.delay())

    assert Job.objects.get() == Order.objects.get(pk=order.pk).receipt.job


def test_workers_are_woken_on_the_second_database(new_cursor):
    """The NOTIFY goes to the database that holds the job."""
    listener = new_cursor("queue")
    listen(listener, ["pgqueue_public"])

    noop.using(queue="mail").delay()

    heard = list(listener.connection.notifies(timeout=10, stop_after=1))
    assert ["mail"] == [notify.payload for notify in heard]


def test_a_wake_waits_for_the_commit_of_its_own_database(new_cursor):
    """Not for that of "default", which has no transaction open."""
    listener, other = new_cursor("queue"), new_cursor("queue")
    listen(listener, ["pgqueue_public"])

    with transaction.atomic(using="queue"):
        noop.using(queue="reports").delay()
        prove(other, channel="pgqueue_public", token="still open")

    heard = listener.connection.notifies(timeout=10, stop_after=2)
    assert ["still open", "reports"] == [notify.payload for notify in heard]


def test_the_two_databases_are_two(queue_cursor, cursor):
    """What these tests rest on."""
    assert (
        connections["queue"].settings_dict["NAME"]
        == queue_cursor.connection.info.dbname
    )
    assert cursor.connection.info.dbname != queue_cursor.connection.info.dbname

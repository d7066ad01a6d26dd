"""Jobs on another alias than "default": every verb works on the second database."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.postgres.wake import listen, prove
from django_pgqueue.queues.claim import claim, known_queues, remember_queues
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.queues.enqueue import Placement, enqueue
from django_pgqueue.queues.find import find
from django_pgqueue.queues.lease import renew
from django_pgqueue.queues.settle import Ended, ack, applied, dead_letter, retry
from tests.app.tasks import noop
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


# Tasks -------------------------------------------------------------------------------


def test_a_wake_waits_for_the_commit_of_its_own_database(new_cursor):
    """Not for that of "default", which has no transaction open."""
    listener, other = new_cursor("queue"), new_cursor("queue")
    listen(listener, ["pgqueue_public"])

    with transaction.atomic(using="queue"):
        noop.using(queue="reports").delay()
        prove(other, channel="pgqueue_public", token="still open")

    heard = listener.connection.notifies(timeout=10, stop_after=2)
    assert ["still open", "reports"] == [notify.payload for notify in heard]

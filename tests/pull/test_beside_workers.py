"""Beside workers of all queues: they leave messages alone, and nobody is alarmed."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue import (
    DeclarationError,
    InvalidOption,
    consume,
    subscribe,
    task,
)
from django_pgqueue.findings.jobs import leases, tasks, unserved
from django_pgqueue.findings.lanes import lanes_held
from django_pgqueue.findings.look import Look
from django_pgqueue.models import Job
from django_pgqueue.pull.queue import queue
from django_pgqueue.queues import claim
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from tests.app.tasks import noop
from tests.harness.factories import LEASE, make_dead_letter, make_jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def parcels(declared_anew):
    parcels = queue("parcels", visibility="60s")
    parcels.send_many([1, 2, 3], group=lambda it: None if it < 3 else "g")
    return parcels


def test_a_claim_passes_messages_by(parcels, cursor):
    """Even one that does not know yet that the queue is a pull queue."""
    for statement in ("known", "unknown"):
        names = ["parcels", "default"] if statement == "unknown" else ["default"]
        make_jobs(1)
        jobs = claim.claim(cursor, queues=names, worker="w", limit=10, lease=LEASE)
        assert ["default"] == [job.queue for job in jobs]
    assert 3 == len(parcels.receive(10))


def test_workers_know_the_queue_as_closed(parcels, cursor):
    """As a paused one: no round looks there, and nothing is drained."""
    known = {each.name: each for each in claim.known_queues(cursor)}
    assert known["parcels"].is_paused
    assert not known["parcels"].pause_seconds
    assert 0 == drain()
    assert 3 == Job.objects.filter(deliveries=0).count()


def test_nobody_is_alarmed(parcels, cursor):
    """By a queue without workers, a task that nobody declares, a lease that ended."""
    parcels.receive(1)
    with connection.cursor() as session:
        session.execute(
            "UPDATE pgqueue_job SET visible_at = visible_at - interval '1 h',"
            " lane_due_at = lane_due_at - interval '1 h'"
        )
    look = Look(cursor)
    for check in (unserved, leases, tasks, lanes_held):
        assert ["ok"] == [each.severity for each in check.examine(look)]
    said = cursor.execute("SELECT kind, detail FROM pgqueue_watch()").fetchall()
    assert ["unclaimed_jobs"] == [kind for kind, _ in said]
    assert "nobody receives them" in said[0][1]


def test_no_task_goes_to_a_pull_queue(parcels):
    """Nobody would run it: the declaration, the call and the subscription refuse."""
    with pytest.raises(InvalidOption, match="'parcels' is a pull queue"):
        noop.using(queue="parcels").delay()
    with pytest.raises(DeclarationError, match="is a pull queue"):
        task(queue="parcels")(lambda_like)
    with pytest.raises(DeclarationError, match="is a pull queue"):
        subscribe("orders.*", queue="parcels")(noop)
    with pytest.raises(DeclarationError, match="Choose another queue"):
        consume("orders", group="g", queue="parcels")(lambda_like)
    with pytest.raises(DeclarationError, match="that of messages"):
        task(name="pgqueue.pull")(lambda_like)


def lambda_like():
    """A function to declare."""


def test_a_dead_letter_goes_where_somebody_takes_it(parcels):
    """A message to pull queues alone, and a job to none of them."""
    queue("letters").send("there")
    message = parcels.receive()[0]
    message.reject()
    assert [] == operate.redrive([message.id], queue="default")
    assert [message.id] == operate.redrive([message.id], queue="letters")
    job = make_dead_letter(queue="default")
    assert [] == operate.redrive([job.pk], queue="parcels")
    assert [job.pk] == operate.redrive([job.pk], queue="other")

"""A pull queue that holds as many messages as PGQUEUE["QUEUES"] says."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_pgqueue import QueueFull
from django_pgqueue.models import Job
from django_pgqueue.pull.queue import queue
from django_pgqueue.signals import queue_full
from django_pgqueue.tasks import depth

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def parcels(declared_anew):
    depth.gauges.clear()
    yield queue("parcels")
    depth.gauges.clear()


@pytest.fixture
def limit(settings):
    """A function: the queue has a limit from here on."""

    def limit(depth_max, on_full="refuse", **more):
        options = {"depth_max": depth_max, "on_full": on_full, **more}
        settings.PGQUEUE = {"QUEUES": {"parcels": options}}

    return limit


def test_what_does_not_fit_is_refused(parcels, limit):
    """One, or all of many; the error says the way out, and nothing is sent. What is
    out with a receiver counts, until it is acked."""
    limit(3)
    parcels.send_many([1, 2])
    with pytest.raises(QueueFull, match="run more receivers") as refused:
        parcels.send_many([3, 4])
    assert ("parcels", 2, 3, 2) == (
        refused.value.queue,
        refused.value.depth,
        refused.value.depth_max,
        refused.value.jobs,
    )
    async_to_sync(parcels.asend)(3)
    (message,) = parcels.receive(1)
    with pytest.raises(QueueFull, match="at most 3"):
        parcels.send(4)
    message.ack()
    depth.gauges.clear()  # As of a process that has just started.
    parcels.send(4)
    assert 3 == Job.objects.filter(queue="parcels").count()


def test_a_sender_waits_for_an_ack(parcels, limit):
    """With "block", and outside of transactions; the signal has the queue as sender."""
    limit(1, "block", block_seconds=60)
    waits = threading.Event()
    heard = []

    def hear(sender, **fields):
        heard.append(sender)
        waits.set()

    queue_full.connect(hear)
    parcels.send(1)
    (message,) = parcels.receive(1)
    with pytest.raises(QueueFull, match="on_commit"), transaction.atomic():
        parcels.send(2)
    waits.clear()
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(in_own_connection, parcels)
        assert waits.wait(60)
        message.ack()
        sent.result()
    queue_full.disconnect(hear)

    assert [parcels] * 2 == heard
    assert [[2]] == [each.args for each in Job.objects.filter(queue="parcels")]


def in_own_connection(parcels):
    from django.db import connection

    try:
        return parcels.send(2)
    finally:
        connection.close()

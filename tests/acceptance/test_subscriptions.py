"""Subscriptions in real workers: declared, back-filled, run, dead and redriven."""

from __future__ import annotations

from django_pgqueue import publish
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Subscription
from django_pgqueue.tasks import operate
from tests.app.models import Order
from tests.harness.waiting import wait_for

SUBSCRIBERS = {"TASK_MODULES": ["subscriber_tasks"]}


def results(queue):
    rows = ArchivedJob.objects.filter(queue=queue, state="succeeded")
    return [row.result for row in rows.order_by("message_id")]


def test_a_worker_declares_and_runs_what_it_subscribes(start_worker):
    """
    What was published before it started, what comes after, and what failed.

    Two workers start at once; a dead letter is redriven with its message.
    """
    early = publish("parcels.packed", {"n": 0})
    workers = [start_worker(pgqueue=SUBSCRIBERS, wait=False) for _ in range(2)]
    for worker in workers:
        worker.wait_for_lines(r"started    worker=")
    assert 3 == Subscription.objects.count()
    wait_for(lambda: results("parcels"), what="the back-fill")

    publish("parcels.lost", {"broken": True})
    sent = publish("parcels.sent", {"n": 2, "country": "FR"}, key="c7")
    publish("parcels.sent", {"n": 3, "country": "DE"})
    wait_for(lambda: len(results("parcels")) == 3, what="the live ones")
    wait_for(lambda: len(results("log")) == 3, what="those of the other task")
    wait_for(lambda: results("watch"), what="the one that is watched")
    assert [[sent, "parcels", "c7"]] == results("watch")
    assert (
        early == ArchivedJob.objects.filter(queue="parcels").earliest("id").message_id
    )
    assert {
        "name": "parcels.sent",
        "payload": {"n": 2, "country": "FR"},
        "tags": ["parcel"],
        "attempt": 1,
    } == results("parcels")[1]

    wait_for(DeadLetter.objects.exists, what="the dead letter")
    letter = DeadLetter.objects.get()
    assert ("exhausted", "parcels.lost") == (
        letter.reason,
        letter.errors[-1]["message"],
    )
    Order.objects.create(name="fixed")
    assert [letter.pk] == operate.redrive([letter.pk])
    wait_for(lambda: len(results("parcels")) == 4, what="the redriven one")
    assert {"broken": True} == results("parcels")[1]["payload"]
    assert not Job.objects.exists()

"""Depths: the leader counts queues that may hold so many jobs, and no others."""

from __future__ import annotations

from django_pgqueue.conf import parse
from django_pgqueue.models import Queue
from django_pgqueue.queues import depth
from django_pgqueue.worker.chores.backlogs import chores
from tests.harness.factories import make_jobs


def test_a_queue_with_a_limit_is_counted(link):
    """About once a second; its row is made where no worker has met it."""
    make_jobs(3, queue="mail")
    make_jobs(3, queue="sms")
    limits = {"mail": {"depth_max": 2}, "sms": {"priority": 1}}
    (chore,) = chores(parse({"QUEUES": limits}))

    assert depth.PAUSE_SECONDS_MIN == chore(link)
    assert [("mail", 3)] == [*Queue.objects.values_list("name", "depth")]

    make_jobs(3, queue="mail")
    first = Queue.objects.get().depth_at
    chore(link)
    assert first < Queue.objects.get().depth_at

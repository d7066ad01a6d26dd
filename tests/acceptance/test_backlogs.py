"""A subscriber that sleeps: what waits for it has a bound, and nothing is lost."""

from __future__ import annotations

import pytest

from django_pgqueue import publish, topic
from django_pgqueue.models import ArchivedJob, Job, Subscription
from tests.harness.waiting import wait_for

NAPS = {"TASK_MODULES": ["backlog_tasks"]}


@pytest.mark.slow
def test_it_wakes_up_and_finds_each_message_once(start_worker):
    """Another worker leads meanwhile, and holds it; then it has its jobs in order."""
    start_worker("--queues", "others", pgqueue=NAPS)
    ids = topic("naps").publish_many(range(25))
    wait_for(Subscription.objects.filter(held_at__isnull=False).exists, what="the hold")
    ids += [publish("naps", n) for n in range(25)]
    assert 25 == Job.objects.count()

    start_worker("--queues", "sleepy", threads=1, pgqueue=NAPS)
    done = ArchivedJob.objects.filter(queue="sleepy", state="succeeded")
    wait_for(lambda: done.count() >= 50, what="the jobs")

    assert ids == [job.result for job in done.order_by("message_id")]
    wait_for(Subscription.objects.filter(held_at=None).exists, what="the release")
    ids.append(publish("naps", 50))
    wait_for(lambda: done.count() == 51, what="the live one")

"""Messages for later: real workers publish them, also after the leader has died."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta

import pytest

from django_pgqueue import topic
from django_pgqueue.bounds import PUBLISH_TASK
from django_pgqueue.models import ArchivedJob, Job, Message
from tests.acceptance.test_schedules import leader
from tests.harness.waiting import wait_for
from tests.log.test_publish import subscribe

pytestmark = [pytest.mark.slow]

COUNT = 400


def test_each_is_published_once_whoever_leads(start_worker):
    """At its moment or after, in order, with a job; the leader is killed between."""
    subscribe("reminders", task="tests.app.tasks.noop")
    workers = [
        start_worker("--queues=default", threads=2, pgqueue={"LEASE_SECONDS": 3})
        for _ in range(2)
    ]
    reminders = topic("reminders")
    ids = reminders.publish_many(
        reminders.message({"n": n}, key="k", run_after=n * 0.01) for n in range(COUNT)
    )
    led = wait_for(leader, what="somebody leads")
    wait_for(lambda: Message.objects.count() >= COUNT // 10, what="some are published")
    (killed,) = [each for each in workers if led.name in each.names()]
    killed.signal_group(signal.SIGKILL)

    left = Job.objects.filter(task=PUBLISH_TASK)
    # What the killed one had claimed waits for the end of its lease.
    wait_for(lambda: not left.exists(), 60, "all are published")
    rows = list(Message.objects.order_by("id"))
    assert list(range(COUNT)) == [row.payload["n"] for row in rows]
    assert ids == [row.headers["pgqueue.scheduled_id"] for row in rows]
    for row in rows:
        moment = datetime.fromisoformat(row.headers["pgqueue.run_after"])
        assert row.published_at - moment >= -timedelta(microseconds=1)
    made = [
        message_id
        for model in (Job, ArchivedJob)  # In this order: jobs move to the archive.
        for (message_id,) in model.objects.values_list("message_id")
    ]
    assert {row.id for row in rows} == set(made)

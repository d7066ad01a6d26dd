"""Repeats: calls that met late jobs are made again by whoever leads."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction

from django_pgqueue import Unique
from django_pgqueue.models import DedupCall, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.worker.chores.overdue import LOOK_SECONDS, repeat
from tests.app.tasks import add
from tests.harness.factories import LEASE
from tests.harness.waiting import wait_for


def call_and_start(cursor):
    """Let a call commit after the late job that it was told of has started."""
    task = add.using(unique=Unique(by="left"), queue="sums")
    task.delay(1, 1)
    cursor.execute("UPDATE pgqueue_job SET visible_at = visible_at - interval '1 h'")
    with transaction.atomic():
        assert "skipped" == task.delay(1, 2).conflict
        claim(cursor, queues=["sums"], worker="worker", limit=1, lease=LEASE)


def test_a_call_is_made_again_and_its_queue_woken(link, cursor, new_cursor, caplog):
    """The log says so, once; then there is nothing to do for a while."""
    listening = new_cursor()
    listening.execute("SELECT pgqueue_channel()")
    channel = listening.fetchone()[0]
    listening.execute(f'LISTEN "{channel}"')
    call_and_start(cursor)

    with caplog.at_level(logging.INFO, logger="django_pgqueue.worker"):
        assert [LOOK_SECONDS] * 2 == [repeat(link), repeat(link)]

    assert [1, 2] == Job.objects.get(leased_by=None).args
    assert ["stored     jobs=1 for calls that met late jobs"] == caplog.messages
    heard = wait_for(
        lambda: [n.payload for n in listening.connection.notifies(timeout=0.1)],
        what="a wake",
    )
    assert "sums" in heard


def test_a_call_that_cannot_be_stored_is_told_of(link, cursor, caplog):
    """It stays, and is tried again with the next look."""
    call_and_start(cursor)
    DedupCall.objects.update(priority=101, period=timedelta(hours=1))

    assert LOOK_SECONDS == repeat(link)

    (line,) = caplog.messages
    assert line.startswith("failed     calls=1 that met late jobs, such as job=")
    assert DedupCall.objects.exists()

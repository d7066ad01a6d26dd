"""Pause a queue, and resume it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from django_pgqueue.models import Queue
from django_pgqueue.queues.claim import known_queues
from django_pgqueue.queues.claim_one import claim_one
from django_pgqueue.queues.pause import pause, resume
from django_pgqueue.queues.stats import queue_stats
from django_pgqueue.queues.suspects import Waiting, waiting
from tests.harness.factories import LEASE, make_job

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("has_row", [False, True])
def test_a_queue_is_paused_by_somebody_for_a_reason(cursor, has_row):
    """Also one that no worker has met yet."""
    if has_row:
        Queue.objects.create(name="bank")
    before = timezone.now()

    assert True is pause(cursor, "bank", by="anna", reason="bank is down")

    row = Queue.objects.get()
    assert ("bank", "anna", "bank is down") == (
        row.name,
        row.paused_by,
        row.pause_reason,
    )
    assert before <= row.paused_at


@pytest.mark.parametrize("until", [HOUR, "a time"])
def test_a_pause_may_end_by_itself(cursor, until):
    """After a time, or at one; workers are told how long that is."""
    now = timezone.now()
    pause(cursor, "bank", until=until if until == HOUR else now + HOUR)

    row = Queue.objects.get()
    assert HOUR == pytest.approx(row.paused_until - now, abs=timedelta(minutes=1))
    (known,) = known_queues(cursor)
    assert known.is_paused
    assert 3_500 < known.pause_seconds <= 3_660


def test_a_pause_that_has_ended_counts_as_none(cursor):
    """To claims of every kind, to who counts, and to who pauses or resumes anew."""
    job = make_job(queue="bank")
    make_job(queue="bank", runs_alone=True)
    pause(cursor, "bank", by="anna", until=HOUR)
    assert None is claim_one(cursor, job.pk, worker="w", lease=LEASE)
    assert [] == waiting(cursor)
    assert queue_stats(cursor)[0].is_paused
    assert 3_500 < queue_stats(cursor)[0].pause_seconds <= 3_600

    Queue.objects.update(paused_until=F("paused_at"))

    (known,) = known_queues(cursor)
    assert (False, None) == (known.is_paused, known.pause_seconds)
    (stats,) = queue_stats(cursor)
    assert (False, None, None) == (stats.is_paused, stats.paused_at, stats.paused_by)
    assert [Waiting("bank", 1)] == waiting(cursor)
    assert claim_one(cursor, job.pk, worker="w", lease=LEASE)
    assert False is resume(cursor, "bank")
    assert (None, None) == Queue.objects.values_list("paused_at", "paused_by").get()
    pause(cursor, "bank", by="anna", until=HOUR)
    Queue.objects.update(paused_until=F("paused_at"))
    assert True is pause(cursor, "bank", by="bert")
    assert ("bert", None) == Queue.objects.values_list(
        "paused_by", "paused_until"
    ).get()

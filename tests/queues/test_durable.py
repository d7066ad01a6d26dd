"""Durable steps and signals in their tables."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue.models import DurableStep, Signal
from django_pgqueue.queues import durable
from django_pgqueue.queues.purge import SIGNALS, batch
from tests.harness.factories import make_archived_job, make_dead_letter, make_job

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
OLD = "2026-01-01T00:00Z"


def step(job_id, *, is_old=True):
    with connection.cursor() as cursor:
        durable.store(cursor, job_id, 0, "one", "step", result="1")
    if is_old:
        DurableStep.objects.filter(job_id=job_id).update(created_at=OLD)


def test_steps_go_once_their_job_is_over():
    """Those of live jobs and dead letters stay, however old; and fresh ones do."""
    live, dead, over, fresh = (
        make_job().id,
        make_dead_letter().id,
        make_archived_job().id,
        make_archived_job().id,
    )
    for job_id in (live, dead, over):
        step(job_id)
    step(fresh, is_old=False)

    with connection.cursor() as cursor:
        purged = batch(cursor, durable.PURGE_STEPS, DAY)

    assert (1, 3, False) == (purged.rows, purged.looked, purged.is_full)
    assert {live, dead, fresh} == set(
        DurableStep.objects.values_list("job_id", flat=True)
    )


def test_old_signals_go():
    """By their age alone."""
    with connection.cursor() as cursor:
        durable.send(cursor, "old", "", "1")
        Signal.objects.update(sent_at=OLD)
        durable.send(cursor, "new", "", "1")
        purged = batch(cursor, SIGNALS, DAY)

    assert 1 == purged.rows
    assert ["new"] == list(Signal.objects.values_list("name", flat=True))


def test_a_place_is_taken_once():
    """By two deliveries of a job: the second one hears of it."""
    job_id = make_job().id
    with connection.cursor() as cursor:
        first = durable.store(cursor, job_id, 0, "one", "step", result="1")
        second = durable.store(cursor, job_id, 0, "two", "step", result="2")

    assert ((True, None), (False, None)) == (first, second)
    assert 1 == DurableStep.objects.get().result


def test_a_signal_wakes_who_waits_for_it_alone():
    """Not who waits for another key, or has had it, or sleeps."""
    waiting, other, served = (make_job(visible_at=DAY).id for _ in range(3))
    with connection.cursor() as cursor:
        durable.store(cursor, waiting, 0, "go", "wait", key="1")
        durable.store(cursor, other, 0, "go", "wait", key="2")
        durable.store(cursor, served, 0, "go", "wait", key="1")
        durable.done(cursor, served, 0)

        assert [waiting] == [job.id for job in durable.wake(cursor, "go", "1")]

"""Find: where a job is, and in which of the states that people are shown."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.queues.find import Found, find
from django_pgqueue.queues.settle import Ended, dead_letter
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)

HOUR = timedelta(hours=1)

STATES = [
    ("ready", make_job, {}),
    ("ready", make_job, {"visible_at": -HOUR, "attempt": 2, "deliveries": 2}),
    # A lapsed lease: any worker may claim it.
    ("ready", make_leased_job, {"visible_at": -HOUR}),
    ("running", make_leased_job, {}),
    ("scheduled", make_job, {"run_after": HOUR}),
    ("retrying", make_job, {"visible_at": HOUR, "attempt": 1, "deliveries": 1}),
    ("parked", make_job, {"lane": "a"}),
    ("parked", make_job, {"visible_at": None}),
    ("succeeded", make_archived_job, {}),
    ("cancelled", make_archived_job, {"state": "cancelled"}),
    ("expired", make_archived_job, {"state": "expired"}),
    ("dead", make_dead_letter, {}),
]


@pytest.mark.django_db
@pytest.mark.parametrize("status,make,columns", STATES)
def test_the_state_is_derived_from_the_row(status, make, columns):
    """Table, lease and time say which it is; it is stored nowhere."""
    row = make(**columns)

    with connection.cursor() as cursor:
        assert status == find(cursor, [row.pk])[row.pk].status


@pytest.mark.django_db
def test_what_is_known_of_a_job_comes_along():
    """Result of an archived job, reason of a dead letter, errors of any."""
    done = make_archived_job(result={"n": 1}, attempt=2, deliveries=2)
    dead = make_dead_letter(reason="rejected", errors=[{"kind": "error"}])

    with connection.cursor() as cursor:
        found = find(cursor, [done.pk, dead.pk])

    assert {
        done.pk: Found(done.pk, "succeeded", 2, 5, '{"n": 1}', None, "[]"),
        dead.pk: Found(dead.pk, "dead", 5, 5, None, "rejected", '[{"kind": "error"}]'),
    } == found


@pytest.mark.django_db
def test_a_job_that_is_nowhere_is_left_out():
    """Never committed, or purged: no entry, no error."""
    job = make_job()

    with connection.cursor() as cursor:
        assert {job.pk} == set(find(cursor, [job.pk, 2**62]))
        assert {} == find(cursor, [])


def test_a_job_on_the_move_is_never_missed(cursor, other_cursor):
    """One that goes to the dead letters and back is in one table in every snapshot."""
    job = make_leased_job("w", deliveries=1)
    stop = threading.Event()
    seen = []

    def look():
        while not stop.is_set():
            seen.append(len(find(other_cursor, [job.pk])))

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(100):
        dead_letter(cursor, worker="w", ended=[Ended(job.pk, 1, reason="rejected")])
        redrive(cursor, [job.pk])
        cursor.execute("UPDATE pgqueue_job SET leased_by = 'w' WHERE id = %s", [job.pk])
    stop.set()
    thread.join()

    assert {1} == set(seen)

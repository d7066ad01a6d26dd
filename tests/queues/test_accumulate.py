"""Accumulate: calls wait for others of their key, and are gathered without waiting."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue.models import Job
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.enqueue import Placement, enqueue, enqueue_many
from django_pgqueue.queues.gather import gather
from django_pgqueue.queues.lease import rescue
from tests.harness.factories import LEASE, make_job, make_leased_job

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
WINDOW = {
    "accumulate_key": "k",
    "accumulate_size": 3,
    "accumulate_within": MINUTE,
}
KEYED = {"task": "shop.index", "accumulate_key": "k"}


def placement(**said):
    return Placement(
        **{
            "queue": "default",
            "task": "shop.index",
            "headers": "{}",
            "priority": 0,
            "max_attempts": 5,
            **WINDOW,
            **said,
        }
    )


def store(cursor, count=1, **said):
    """Store calls one by one; return their ids."""
    return [
        enqueue(cursor, placement(**said), args="[]", kwargs="{}") for _ in range(count)
    ]


def store_many(cursor, count):
    items = [Items(",".join(["[1]"] * count), count)]
    return enqueue_many(cursor, placement(), items)


def waiting(**of):
    """Return the jobs whose window has not ended."""
    return list(Job.objects.scheduled().filter(**of).values_list("pk", flat=True))


def due(**of):
    return list(Job.objects.due().filter(**of).values_list("pk", flat=True))


def leader(cursor, worker="a"):
    (job,) = claim(cursor, queues=["default"], worker=worker, limit=1, lease=LEASE)
    return job


def gathered(cursor, job, limit=100, *, worker="a", within=MINUTE):
    jobs = gather(cursor, job, within=within, worker=worker, limit=limit, lease=LEASE)
    return [job.id for job in jobs]


# When a call is due ------------------------------------------------------------------


def test_a_call_waits_for_its_window(cursor):
    """It has no time of its own: run_after stays NULL."""
    (job,) = store(cursor)

    row = Job.objects.get(pk=job)
    seconds = (row.visible_at - row.enqueued_at).total_seconds()
    assert 59.9 < seconds < 60.1
    assert (None, "k", "shop.index") == (row.run_after, row.accumulate_key, row.task)


def test_the_call_that_makes_up_the_size_is_due_at_once(cursor):
    """And so is each that comes while they still wait."""
    ids = store(cursor, 5)

    assert (ids[:2], ids[2:]) == (waiting(), due())


@pytest.mark.parametrize(
    "other",
    [
        {"accumulate_key": "other"},
        {"accumulate_key": None},
        {"task": "shop.other"},
        {"queue": "other"},
        {"attempt": 1, "deliveries": 1},
        {"deliveries": 1},
        {"run_after": HOUR},
        {"leased_by": "a", "deliveries": 1, "attempt": 1, "leased_at": MINUTE},
    ],
    ids=str,
)
def test_only_calls_that_wait_for_their_window_are_counted(cursor, other):
    """Of another key, task or queue; tried, snoozed, with a time of its own; leased."""
    for _ in range(3):
        make_job(**{**KEYED, "visible_at": MINUTE / 2, **other})

    ids = store(cursor, 3)

    assert {*ids[:2]} <= {*waiting()}
    assert [ids[2]] == due()


def test_callers_do_not_wait_for_each_other(cursor, other_cursor):
    """
    Two long transactions store calls of one key; neither is counted by the other, and
    a worker gathers what is committed.
    """
    other_cursor.execute("SET lock_timeout = '1s'")
    cursor.execute("SET lock_timeout = '1s'")
    (led,) = store(cursor)
    (here,) = store(cursor)
    Job.objects.filter(pk=led).update(visible_at="2020-01-01T00:00:00Z")
    with cursor.connection.transaction():
        first = store(cursor, 2)
        with other_cursor.connection.transaction():
            second = store(other_cursor, 2)
            third = store(cursor, 1)
            store_many(other_cursor, 20)
            with connection.cursor() as worker:
                worker.execute("SET lock_timeout = '1s'")
                job = leader(worker)
                assert (led, [here]) == (job.id, gathered(worker, job))
                worker.execute("RESET lock_timeout")

    assert {*first, *third, *second} <= {*waiting(), *due()}


# What is gathered --------------------------------------------------------------------


def test_the_others_are_leased_as_a_claim_would(cursor):
    """By their ids, up to a limit, whether they are due or wait."""
    ids = store(cursor, 6)
    job = leader(cursor)
    assert ids[2] == job.id

    found = gather(cursor, job, within=MINUTE, worker="a", limit=3, lease=LEASE)

    assert 3 == len(found)
    assert sorted(j.id for j in found) == [j.id for j in found]
    for other in found:
        row = Job.objects.get(pk=other.id)
        assert (1, 1, "a") == (row.attempt, row.deliveries, row.leased_by)
        assert (other.claimed_at, other.claimed_at + LEASE) == (
            row.leased_at,
            row.visible_at,
        )
        assert ("k", 1, 1) == (other.accumulate_key, other.attempt, other.delivery)
    assert 2 == len(gathered(cursor, job))
    assert [] == gathered(cursor, job)


@pytest.mark.parametrize(
    "other",
    [
        {"accumulate_key": "other"},
        {"accumulate_key": None},
        {"task": "shop.other"},
        {"queue": "other"},
        {"visible_at": None},
        {"runs_alone": True, "deliveries": 1, "crashes": 1},
        {"visible_at": MINUTE, "attempt": 1, "deliveries": 1},
        {"visible_at": MINUTE, "deliveries": 1},
        {"run_after": MINUTE},
        {"visible_at": HOUR},
        {"leased_by": "b", "visible_at": MINUTE, "attempt": 1, "deliveries": 1},
        {"leased_by": "b", "visible_at": -MINUTE, "attempt": 1, "deliveries": 1},
    ],
    ids=str,
)
def test_nothing_else_is_gathered(cursor, other):
    """Of others; parked; alone; waiting for a retry, a snooze or a time; leased."""
    make_job(**KEYED, visible_at=-HOUR)
    job = leader(cursor)
    make_job(**{**KEYED, "visible_at": -MINUTE, **other})

    assert [] == gathered(cursor, job)


def test_two_workers_never_gather_the_same_call(cursor, other_cursor):
    """Rows that another transaction holds are passed over."""
    ids = store(cursor, 8)
    job, another = leader(cursor, "a"), leader(other_cursor, "b")

    with cursor.connection.transaction():
        first = gathered(cursor, job, 3)
        second = gathered(other_cursor, another, 100, worker="b")

    assert {*ids} == {job.id, another.id, *first, *second}
    assert 8 == 2 + len(first) + len(second)


# What it costs, and what becomes of it -----------------------------------------------


def test_a_rescue_counts_a_crash_for_each_call_of_a_run(cursor):
    """Those of another key were only claimed."""
    lease = {"visible_at": LEASE, "worker": "dead"}
    led = make_leased_job(**lease, **KEYED)
    other = make_leased_job(**lease, **KEYED)
    ahead = make_leased_job(**lease, **{**KEYED, "accumulate_key": "another"})
    plain = make_leased_job(**lease)

    rescued = rescue(
        cursor, worker="dead", running=[(led.pk, 1)], lease=2 * LEASE, message="killed"
    )

    assert {led.pk: True, other.pk: True, ahead.pk: False, plain.pk: False} == {
        job.id: job.crashed for job in rescued
    }
    rows = Job.objects.filter(crashes=1, runs_alone=True, attempt=0)
    assert {led.pk, other.pk} == {*rows.values_list("pk", flat=True)}

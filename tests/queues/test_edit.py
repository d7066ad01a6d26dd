"""Edit: other arguments for what waits, and for what is dead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.queues.edit import edit, lock, move
from tests.harness.factories import (
    LEASE,
    make_dead_letter,
    make_job,
    make_leased_job,
)

HOUR = timedelta(hours=1)

NEW = {"args": "[2]", "kwargs": '{"a": "ü"}'}


@pytest.fixture(params=[make_job, make_dead_letter], ids=["job", "dead letter"])
def make(request):
    """What can be edited."""
    return request.param


def current(row):
    return type(row).objects.get(pk=row.pk)


def test_a_row_gets_new_arguments(cursor, make):
    """And nothing else of it changes but its errors."""
    row = make(args=[1], queue="mail", deliveries=0, attempt=0, headers={"trace": "t"})

    with cursor.connection.transaction():
        assert (row.task, "[1]", "{}", "mail", None, False) == lock(cursor, row.pk)
        assert True is edit(cursor, row.pk, **NEW)

    edited = current(row)
    assert ([2], {"a": "ü"}) == (edited.args, edited.kwargs)
    changed = {"args", "kwargs", "errors"}
    names = {field.attname for field in row._meta.fields} - changed
    assert {n: getattr(row, n) for n in names} == {n: getattr(edited, n) for n in names}


@pytest.mark.parametrize("before,after", [(None, 1), (1, 2), (41, 42), ("x", 1)])
def test_what_was_delivered_counts_its_edits(cursor, make, before, after):
    """The header goes into the idempotency key; what SQL wrote there counts as none."""
    headers = {"trace": "t"} | ({} if before is None else {"pgqueue.edits": before})
    row = make(deliveries=1, attempt=1, headers=headers)

    edit(cursor, row.pk, **NEW)

    assert {"trace": "t", "pgqueue.edits": after} == current(row).headers


@pytest.mark.parametrize("visible_at", [HOUR, -HOUR], ids=["running", "lapsed"])
def test_a_leased_job_cannot_be_edited(cursor, visible_at):
    """Some worker may be running it with what it has, even past its lease."""
    job = make_leased_job("a", args=[1], visible_at=visible_at)

    assert True is lock(cursor, job.pk).is_leased
    assert False is edit(cursor, job.pk, **NEW)
    assert [1] == current(job).args


def test_a_claim_passes_over_a_job_that_is_being_edited(cursor, other_cursor):
    """So it never runs with half of what it had."""
    make_job()
    job = make_job(queue="mail")

    with cursor.connection.transaction():
        lock(cursor, job.pk)
        claimed = claim(other_cursor, queues=["mail"], worker="a", limit=1, lease=LEASE)
        edit(cursor, job.pk, **NEW)

    assert [] == claimed
    (claimed,) = claim(other_cursor, queues=["mail"], worker="a", limit=1, lease=LEASE)
    assert "[2]" == claimed.args
    assert 0 == DeadLetter.objects.count()


# Lanes --------------------------------------------------------------------------------

LIMIT = {
    "lane_capacity": 5,
    "lane_spacing": 0.5,
    "lane_burst": 2,
    "lane_policy": None,
}


LANE = ("lane", *LIMIT)


@pytest.mark.parametrize("before", [{}, {"lane": "old"}, {"visible_at": HOUR}])
def test_a_job_is_parked_in_its_new_lane(cursor, before):
    """As long due as it was, and with all that its new lane says."""
    row = make_job(**before)

    queue = move(cursor, row.pk, lane="new", columns=LIMIT)

    moved = current(row)
    assert row.queue == queue
    assert ("new", *LIMIT.values()) == tuple(getattr(moved, name) for name in LANE)
    assert moved.visible_at is None
    if row.lane_due_at or row.visible_at > row.enqueued_at + HOUR / 2:
        assert (row.lane_due_at or row.visible_at) == moved.lane_due_at
    else:
        assert row.visible_at < moved.lane_due_at


def test_a_dead_letter_is_redriven_into_its_new_lane(cursor):
    """Nobody is to be told before that."""
    dead = make_dead_letter(lane="old")

    assert move(cursor, dead.pk, lane="new", columns=LIMIT) is None

    redrive(cursor, [dead.pk])
    job = Job.objects.get(pk=dead.pk)
    assert ("new", 5, None) == (job.lane, job.lane_capacity, job.visible_at)

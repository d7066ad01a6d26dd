"""Edit: other arguments for what waits, and for what is dead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.edit import edit, lock, move
from django_pgqueue.queues.errors import ERRORS_MAX
from django_pgqueue.queues.redrive import redrive
from tests.harness.factories import (
    LEASE,
    make_archived_job,
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


def test_a_redriven_job_keeps_the_count(cursor):
    """It is the edited job that runs, whichever came first."""
    dead = make_dead_letter()
    edit(cursor, dead.pk, **NEW)

    redrive(cursor, [dead.pk])

    assert 1 == Job.objects.get(pk=dead.pk).headers["pgqueue.edits"]
    (claimed,) = claim(cursor, queues=["default"], worker="a", limit=1, lease=LEASE)
    assert ("[2]", '{"a": "ü"}') == (claimed.args, claimed.kwargs)


def test_an_edit_is_noted_without_the_values(cursor, make):
    """Who and when, after what is there; the old arguments may be secret."""
    row = make(args=["secret"], errors=[{"kind": "error"}])

    edit(cursor, row.pk, **NEW, by="anna")
    edit(cursor, row.pk, **NEW)

    _, named, nameless = current(row).errors
    assert ("edited", "anna") == (named["kind"], named["by"])
    assert {"kind", "at", "message"} == set(nameless)
    assert "secret" not in str(current(row).errors)


def test_errors_stay_bounded(cursor, make):
    """The first stays."""
    row = make(errors=[{"n": n} for n in range(ERRORS_MAX)])

    edit(cursor, row.pk, **NEW)

    errors = current(row).errors
    assert (ERRORS_MAX, {"n": 0}) == (len(errors), errors[0])


@pytest.mark.parametrize("visible_at", [HOUR, -HOUR], ids=["running", "lapsed"])
def test_a_leased_job_cannot_be_edited(cursor, visible_at):
    """Some worker may be running it with what it has, even past its lease."""
    job = make_leased_job("a", args=[1], visible_at=visible_at)

    assert True is lock(cursor, job.pk).is_leased
    assert False is edit(cursor, job.pk, **NEW)
    assert [1] == current(job).args


def test_what_has_ended_or_never_was_cannot_be_edited(cursor):
    """There is no row to lock."""
    archived = make_archived_job(args=[1])

    for job_id in (archived.pk, 2**62):
        assert None is lock(cursor, job_id)
        assert False is edit(cursor, job_id, **NEW)
    assert [1] == current(archived).args


def test_a_row_that_somebody_holds_is_not_waited_for(cursor, other_cursor, make):
    """It is being claimed, redriven or purged."""
    row = make()

    with other_cursor.connection.transaction():
        lock(other_cursor, row.pk)
        assert None is lock(cursor, row.pk)
    assert None is not lock(cursor, row.pk)


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
NONE = dict.fromkeys(LIMIT)
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


@pytest.mark.parametrize("before", [{}, {"run_after": HOUR}])
def test_a_job_that_waits_for_nobody_any_more_is_due_at_its_time(cursor, before):
    """At once, unless that is to come: no claim has passed it by."""
    row = make_job(lane="old", **before)
    due_at = current(row).lane_due_at

    move(cursor, row.pk, lane=None, columns=NONE)

    moved = current(row)
    assert (None,) * 6 == (moved.lane_due_at, *(getattr(moved, n) for n in LANE))
    assert (due_at == moved.visible_at) is bool(before)
    assert due_at <= moved.visible_at


def test_a_dead_letter_is_redriven_into_its_new_lane(cursor):
    """Nobody is to be told before that."""
    dead = make_dead_letter(lane="old")

    assert move(cursor, dead.pk, lane="new", columns=LIMIT) is None

    redrive(cursor, [dead.pk])
    job = Job.objects.get(pk=dead.pk)
    assert ("new", 5, None) == (job.lane, job.lane_capacity, job.visible_at)


def test_a_job_that_runs_stays_in_its_lane(cursor):
    """Its place is taken."""
    row = make_leased_job()

    move(cursor, row.pk, lane="new", columns=LIMIT)

    assert current(row).lane is None

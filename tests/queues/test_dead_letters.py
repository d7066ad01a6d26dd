"""Dead letters are set aside to the archive, or deleted."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.models import ArchivedJob, DeadLetter
from django_pgqueue.queues.dead_letters import delete, set_aside
from django_pgqueue.queues.settle import KEPT_COLUMNS
from tests.harness.factories import make_dead_letter

HOUR = timedelta(hours=1)


def test_a_dead_letter_that_is_set_aside_is_archived_as_cancelled(cursor):
    """What it is stays; it finished now, so that its retention starts now."""
    dead = make_dead_letter(
        args=[1], headers={"tags": ["x"]}, finished_at=-HOUR, started_at=-HOUR
    )
    kept = KEPT_COLUMNS.split(", ")
    before = DeadLetter.objects.values(*kept).get()

    assert [dead.pk] == set_aside(cursor, [dead.pk])

    assert before == ArchivedJob.objects.values(*kept).get()
    row = ArchivedJob.objects.get()
    assert ("cancelled", "worker", dead.started_at) == (
        row.state,
        row.worker,
        row.started_at,
    )
    assert HOUR <= row.finished_at - dead.finished_at
    assert 0 == DeadLetter.objects.count()


def test_who_set_it_aside_and_why_is_its_last_error(cursor):
    """With what it had died of, which the archive has no column for."""
    dead = make_dead_letter(reason="timeout", errors=[{"kind": "error"}])
    nameless = make_dead_letter()

    set_aside(cursor, [dead.pk], by="anna", reason="customer has left")
    set_aside(cursor, [nameless.pk])

    first, last = ArchivedJob.objects.get(pk=dead.pk).errors
    assert "error" == first["kind"]
    assert last.pop("at")
    assert {
        "kind": "set_aside",
        "by": "anna",
        "dead_for": "timeout",
        "message": "customer has left",
    } == last
    (bare,) = ArchivedJob.objects.get(pk=nameless.pk).errors
    assert {"kind", "at", "dead_for"} == set(bare)


def test_a_deleted_dead_letter_is_gone(cursor):
    """From everywhere; its neighbour stays."""
    dead, other = make_dead_letter(), make_dead_letter()

    assert [dead.pk] == delete(cursor, [dead.pk])
    assert [other.pk] == list(DeadLetter.objects.values_list("pk", flat=True))
    assert 0 == ArchivedJob.objects.count()

"""Reprocess: which dead letters a rule means, and that each is redriven once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import MappingProxyType, SimpleNamespace

import pytest

from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.operators.filters import of_error
from django_pgqueue.queues import reprocess
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.queues.reprocess import START, Floor, look
from tests.harness.factories import make_dead_letter

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

RULE = MappingProxyType(
    {
        "task": None,
        "reason": "exhausted",
        "error": None,
        "after": 10 * MINUTE,
        "max_age": 24 * HOUR,
    }
)

MARKED = "pgqueue.reprocessed_at"


def letter(**columns):
    return make_dead_letter(**{"finished_at": -HOUR, **columns}).pk


def found(cursor, *, floor=START, **asked):
    rule = SimpleNamespace(**{**RULE, **asked})
    return look(cursor, rule, floor=floor, most=100).ids


def test_only_what_a_rule_means_is_found(cursor):
    """By task, reason and age; the oldest first."""
    older = letter(task="shop.call", finished_at=-2 * HOUR)
    other = letter(task="shop.ship")
    rejected = letter(reason="rejected")
    letter(finished_at=-MINUTE)
    letter(finished_at=-25 * HOUR)
    letter(headers={MARKED: "2026-01-01T00:00:00+00:00"})

    assert [older, other] == found(cursor)
    long_ago = Floor(datetime(2020, 1, 1, tzinfo=UTC), 0)
    assert [older, other] == found(cursor, floor=long_ago)
    assert [other] == found(cursor, task="shop.ship")
    assert [rejected] == found(cursor, reason="rejected")
    assert {older, other, rejected} == {*found(cursor, reason=None)}


@pytest.mark.parametrize(
    "name", ["shop.errors.Refused", "Refused", "errors.Refused", "fused", "f.?used"]
)
def test_an_error_is_named_as_in_the_commands(cursor, name):
    """By its whole name, or without its module; the latest of a job counts."""
    letter(errors=[{"type": "shop.errors.Refused"}])
    letter(errors=[{"type": "Refused"}])
    letter(errors=[{"type": "shop.errors.Refused"}, {"type": "KeyError"}])
    letter(errors=[{"kind": "lease_expired"}])
    letter()

    same = DeadLetter.objects.filter(of_error(name)).order_by("pk")
    assert [*same.values_list("pk", flat=True)] == sorted(found(cursor, error=name))


def test_a_walk_meets_each_of_them(cursor, monkeypatch):
    """Of those that gave up at the same moment, too, however few a look reads."""
    monkeypatch.setattr(reprocess, "LOOK_ROWS_MAX", 3)
    first, *others = (letter() for _ in range(5))
    DeadLetter.objects.update(finished_at=DeadLetter.objects.get(pk=first).finished_at)
    rule = SimpleNamespace(**RULE)
    met, step = [], look(cursor, rule, floor=START, most=2)
    while not step.is_all:
        met += step.ids
        step = look(cursor, rule, floor=step.floor, most=2)

    assert [first, *others] == [*met, *step.ids]


def test_a_letter_that_a_rule_has_redriven_is_not_redriven_again(cursor):
    """Not by a second leader that has found it before, either; by people, it is."""
    first, keyed = letter(), letter(dedup_key="k")
    moved = redrive(cursor, [first, keyed], once=True)
    assert {first, keyed} == {job.id for job in moved}
    marks = [job.headers[MARKED] for job in Job.objects.all()]
    assert 2 == len(marks)

    Job.objects.all().delete()
    headers = {MARKED: marks[0]}
    ids = [letter(headers=headers), letter(headers=headers, dedup_key="k")]
    assert [] == redrive(cursor, ids, once=True)
    assert [] == found(cursor)

    assert 2 == len(redrive(cursor, ids))
    assert {marks[0]} == {job.headers[MARKED] for job in Job.objects.all()}

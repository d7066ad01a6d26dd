"""What a process has settled is added to the spans of tasks, once."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import psycopg
import pytest

from django_pgqueue.models import TaskSpan
from django_pgqueue.queues import task_spans
from django_pgqueue.queues.task_spans import COUNTS
from django_pgqueue.worker.chores.counting import Counting
from django_pgqueue.worker.tally import Tally

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.django_db(transaction=True)


def note(tally, end, *, task="shop.send", ran=0.003, times=1):
    job = SimpleNamespace(
        queue="mail",
        task=task,
        due_at=NOON,
        claimed_at=NOON + timedelta(seconds=0.25),
        last_error=None,
    )
    for _ in range(times):
        tally.note(job, end, ran, is_known=True)


def spans(**filters):
    """Return the counts of the longest spans, by task, summed up."""
    found = {}
    for row in TaskSpan.objects.filter(seconds=task_spans.LONGEST, **filters):
        sums = found.setdefault(row.task, dict.fromkeys(COUNTS, 0) | {"ran": 0})
        for name in COUNTS:
            sums[name] += getattr(row, name)
        sums["ran"] += sum(row.runs)
    return found


def counts(**given):
    return dict.fromkeys((*COUNTS, "ran"), 0) | given


def test_each_end_has_its_count(link):
    """An attempt that gave up has failed, too; what was postponed has no count."""
    tally = Tally()
    counting = Counting(tally)
    for end in ("succeeded", "retried", "postponed", "crashed", "dead", "superseded"):
        note(tally, end)
    note(tally, "cancelled")
    note(tally, "expired", ran=None)
    counting.add(link)

    told = counts(succeeded=1, failed=3, dead=1, cancelled=2, expired=1, ran=7)
    assert {"shop.send": told} == spans()


def test_what_was_added_is_not_added_again(link):
    """Of a task that has nothing new, no row is touched."""
    tally = Tally()
    counting = Counting(tally)
    note(tally, "succeeded", times=3)
    counting.add(link)
    counting.add(link)
    note(tally, "succeeded", task="shop.pack")
    counting.add(link)

    one, three = counts(succeeded=1, ran=1), counts(succeeded=3, ran=3)
    assert {"shop.send": three, "shop.pack": one} == spans()


def test_what_cannot_be_added_is_added_later(link, monkeypatch, caplog):
    """It is told once, and the connection is kept."""
    tally = Tally()
    counting = Counting(tally)
    note(tally, "succeeded")

    def locked(link, new):
        raise psycopg.errors.LockNotAvailable("somebody has locked a row")

    caplog.set_level(logging.WARNING)
    assert link.connection is not None
    with monkeypatch.context() as patched:
        patched.setattr(task_spans, "add", locked)
        for _ in range(3):
            counting.add(link)
    assert 1 == caplog.text.count("uncounted  charts lack")
    note(tally, "succeeded")
    counting.add(link)

    assert {"shop.send": counts(succeeded=2, ran=2)} == spans()

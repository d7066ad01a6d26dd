"""What a process has settled is added to the spans of tasks, once."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import psycopg
import pytest

from django_pgqueue.models import TaskSpan
from django_pgqueue.queues import task_spans
from django_pgqueue.queues.task_spans import COUNTS
from django_pgqueue.worker.chores import counting as module
from django_pgqueue.worker.chores.counting import Counting
from django_pgqueue.worker.tally import Tally, TallyBoard, TallyPlace

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


def test_who_takes_a_place_adds_its_own_alone(link):
    """What the one before has counted is in the numbers of the place still."""
    board = TallyBoard(1)
    first = TallyPlace(board, 0)
    note(first.tally, "succeeded", times=5)
    first.show(claimed=5, messages={})

    second = TallyPlace(board, 0)
    counting = Counting(second.tally)
    note(second.tally, "succeeded", times=2)
    counting.add(link)

    assert {"shop.send": counts(succeeded=2, ran=2)} == spans()


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


@pytest.mark.parametrize("tasks, seconds", [(1, 1.0), (20, 2.0), (60, 5.0)])
def test_it_is_added_every_second_or_few(link, monkeypatch, tasks, seconds):
    """However often it is asked to; less often where there is much to add."""
    now = 1_000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    tally = Tally()
    counting = Counting(tally)

    def added():
        for number in range(tasks):
            note(tally, "succeeded", task=f"shop.{number}")
        counting.add_if_due(link)
        return {each["succeeded"] for each in spans().values()}

    assert set() == added()
    now += 1.0
    assert {2} == added()
    now += seconds - 0.01
    assert {2} == added()
    now += 0.02
    assert {4} == added()


def test_two_threads_add_nothing_twice(link, monkeypatch):
    """The heartbeat may be at it when its process stops."""
    tally = Tally()
    counting = Counting(tally)
    note(tally, "succeeded", times=5)
    begun, may_end, add = threading.Event(), threading.Event(), task_spans.add

    def held(link, new):
        begun.set()
        assert may_end.wait(20)
        add(link, new)

    monkeypatch.setattr(task_spans, "add", held)
    monkeypatch.setattr(module, "WAIT_SECONDS_MAX", 20)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(counting.add, link)
        assert begun.wait(20)
        second = threads.submit(counting.add, link)
        may_end.set()
        first.result()
        second.result()

    assert {"shop.send": counts(succeeded=5, ran=5)} == spans()

"""Schedules of a test, and the declared ones put aside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connections

from django_pgqueue.models import Schedule
from django_pgqueue.postgres.connect import Link
from django_pgqueue.schedules import declare
from django_pgqueue.schedules.definition import define
from django_pgqueue.schedules.issue import Issued, issue
from django_pgqueue.schedules.store import ScheduleRow, find_one
from django_pgqueue.worker.chores.scheduler import Scheduler

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is declared but what the test declares."""
    monkeypatch.setattr(declare, "_declared", {})
    monkeypatch.setattr(declare, "_entries", {})


@pytest.fixture
def make(transactional_db: None) -> Callable[..., Schedule]:
    """Make a schedule of a user, whose ticks are due from a moment on."""

    def make_it(
        name: str = "nightly", *, ticks_from: datetime = NOON, **said: Any
    ) -> Schedule:
        if "publication" not in said:
            said.setdefault("task", "tests.app.tasks.noop")
        if "expression" not in said:
            said.setdefault("every_seconds", 60)
        said.setdefault("tz", "UTC")
        values = define(name=name, **said).values()
        schedule = Schedule.objects.create(name=name, ticks_from=ticks_from, **values)
        schedule.refresh_from_db()
        return schedule

    return make_it


@pytest.fixture
def raw(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """A connection as a scheduler has it."""
    link = Link("default", name="test")
    try:
        yield link.connection
    finally:
        link.drop()


def read(name: str) -> ScheduleRow:
    """Return the schedule as a scheduler reads it."""
    with connections["default"].cursor() as cursor:
        row = find_one(cursor, name)
    assert row is not None
    return row


def issue_at(
    raw: psycopg.Connection[Any], now: datetime, name: str = "nightly"
) -> list[Issued]:
    """Issue what is due at *now*."""
    row = read(name)
    with raw.transaction(), raw.cursor() as cursor:
        return issue(cursor, row, now)


def in_back_ticks(count: int, every: int = 60) -> datetime:
    """Return a moment after which *count* ticks of *every* seconds were due by now."""
    whole = int(time.time()) // every * every
    return datetime.fromtimestamp(whole - count * every, UTC)


@pytest.fixture
def scheduler(transactional_db: None) -> Iterator[Scheduler]:
    """A scheduler that leads; its test calls tick()."""
    link = Link("default", name="test scheduler")
    made = Scheduler(link)
    made.set_leading(True)
    try:
        yield made
    finally:
        link.drop()


def tick_until_rest(scheduler: Scheduler, rounds_max: int = 50) -> float:
    """Let it look until it has nothing to do; return how long it would rest."""
    for _ in range(rounds_max):
        seconds = scheduler.tick()
        if seconds > 0:
            return seconds
    raise AssertionError(f"it does not rest after {rounds_max} rounds")


def go_on(scheduler: Scheduler) -> None:
    """Let it look once, and rest as long as it wants."""
    scheduler.wake.clear()
    scheduler.wake.wait(scheduler.tick())

"""Schedules of a test, and the declared ones put aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connections

from django_pgqueue.models import Schedule
from django_pgqueue.runs.schedules import ScheduleRow, find_one
from django_pgqueue.schedules import declare
from django_pgqueue.schedules.definition import define
from django_pgqueue.schedules.issue import Issued, issue

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
    from django_pgqueue.postgres.connect import Link

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

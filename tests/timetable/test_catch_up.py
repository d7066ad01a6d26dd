"""Catch-up: what is due after nobody was there for long, and what it costs to say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from django_pgqueue.timetable.catch_up import CatchUp, find_due
from django_pgqueue.timetable.expression import Expression
from django_pgqueue.timetable.ticks import Cron, Every, Timetable, ticks

NOW = datetime(2026, 12, 15, 12, 0, 0, 400_000, tzinfo=UTC)
SECONDS_MAX = 0.5


def cron(text: str) -> Timetable:
    return Cron(Expression.parse(text), ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize("policy", ["one", "all(50)"])
@pytest.mark.parametrize(
    "table,days",
    [
        (Every(timedelta(seconds=1)), 0.1),
        (Every(timedelta(seconds=7)), 0.3),
        (cron("0 3 * * *"), 900),
        (cron("*/20 9-10 * * 1-5"), 90),
        (cron("*/5 * 3 * * *"), 2),
        (cron("*/10 * * 10 *"), 75),
        (cron("0 0 1 1 *"), 2_000),
    ],
)
def test_the_latest_are_found_from_the_end(
    table: Timetable, days: float, policy: str
) -> None:
    """What is issued and what is counted as missed is as if all were gone through."""
    since = NOW - timedelta(days=days)
    every = list(ticks(table, since, NOW))
    catch_up = CatchUp.parse(policy)
    due = find_due(table, since, NOW, catch_up)
    assert due is not None
    issued = tuple(every[-catch_up.most :])
    assert due.issued == issued
    assert due.missed == min(len(every) - len(issued), 1_000)
    assert due.latest == every[-1]

"""Task spans: what workers add stands in each span; it is read by point and by task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connections

from django_pgqueue.models import TaskSpan
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues.task_spans import (
    BUCKETS,
    KEPT,
    Counted,
    add,
    charts,
    place_of,
)
from tests.harness.factories import make_task_span

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
PAIR = ("mail", "shop.send")


@pytest.fixture
def new_link(transactional_db):
    """A function that opens connections of loops, closed after the test."""
    links = []

    def new_link(alias="default"):
        links.append(Link(alias, name="tests: spans", steady=True))
        return links[-1]

    yield new_link
    for link in links:
        link.drop()


def times(*seconds):
    counts = [0] * BUCKETS
    for each in seconds:
        counts[place_of(each)] += 1
    return counts


def together(counts):
    return [sum(each) for each in zip(*counts, strict=True)]


def clock(cursor):
    cursor.execute("SELECT statement_timestamp()")
    return cursor.fetchone()[0]


# Adding ------------------------------------------------------------------------------


def test_counts_stand_in_a_span_of_each_length(cursor, new_link):
    """The one that the server's clock is in; what is added later is added up."""
    before = clock(cursor)
    link = new_link()
    more = Counted(succeeded=2, wait_seconds=1.5, waits=times(0.5, 1.0))
    add(link, {PAIR: more})
    add(link, {PAIR: Counted(dead=1, failed=3, runs=times(9.0)), ("q", "t"): more})

    rows = TaskSpan.objects.filter(task=PAIR[1])
    for row in rows:
        assert row.since <= clock(cursor)
        assert row.since.timestamp() % row.seconds == 0
        assert before - row.since < timedelta(seconds=row.seconds)
    # Between two calls the next span may have begun.
    for seconds in KEPT:
        own = [row for row in rows if row.seconds == seconds]
        assert (2, 3, 1, 1.5) == (
            sum(row.succeeded for row in own),
            sum(row.failed for row in own),
            sum(row.dead for row in own),
            sum(row.wait_seconds for row in own),
        )
        assert times(0.5, 1.0) == together(row.waits for row in own)
        assert times(9.0) == together(row.runs for row in own)


def test_workers_that_add_at_once_lose_nothing(new_link):
    """Nor do they wait for each other in a circle, in whatever order they count."""
    names = [f"task.{n}" for n in range(8)]
    links = [new_link() for _ in range(4)]

    def work(link, ordered):
        for _ in range(10):
            add(link, {("q", name): Counted(succeeded=1) for name in ordered})

    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(work, link, names if n % 2 else names[::-1])
            for n, link in enumerate(links)
        ]
    for job in jobs:
        job.result()

    for seconds in KEPT:
        own = TaskSpan.objects.filter(seconds=seconds).values_list("task", "succeeded")
        found = dict.fromkeys(names, 0)
        for name, succeeded in own:
            found[name] += succeeded
        assert dict.fromkeys(names, 40) == found


# Reading -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "period, width", [(HOUR, 60), (DAY, 1_800), (7 * DAY, 10_800)], ids=str
)
def test_charts_cover_a_period_with_points_of_one_length(db, period, width):
    """An hour in minutes, a day in half hours, a week in three hours, without a gap."""
    seconds = {HOUR: 60, DAY: 600, 7 * DAY: 3_600}[period]
    make_task_span(timedelta(seconds=seconds), seconds, succeeded=5)
    make_task_span(period / 2, seconds, succeeded=7, dead=1)
    # Those of other lengths tell of the same.
    for other in set(KEPT) - {seconds}:
        make_task_span(period / 2, other, succeeded=1_000)
    with connections["default"].cursor() as cursor:
        until = clock(cursor)
        found = charts(cursor, until - period, until)

    assert width == found.width_seconds
    starts = [point.at for point in found.points]
    step = timedelta(seconds=width)
    assert starts[0] <= until - period < starts[0] + step
    assert starts[-1] < until <= starts[-1] + step
    assert {step} == {after - at for at, after in pairwise(starts)}
    assert len(starts) <= 61
    assert 13 == sum(point.ended for point in found.points)
    (middle,) = (point for point in found.points if point.dead)
    assert middle.at <= until - period / 2 + step
    assert middle.at + step > until - period / 2 - timedelta(seconds=seconds)


def test_a_point_tells_all_that_its_spans_have(db):
    """Counts are summed up, and percentiles are of all together."""
    for n in range(2):
        make_task_span(
            10 * MINUTE,
            task=f"task.{n}",
            succeeded=3,
            failed=2,
            dead=1,
            cancelled=4,
            expired=5,
            wait_seconds=8.0,
            run_seconds=2.0,
            waits=times(*[0.01] * 9, 100.0),
            runs=times(*[3.0] * 4),
        )
    with connections["default"].cursor() as cursor:
        until = clock(cursor)
        (point,) = (p for p in charts(cursor, until - HOUR, until).points if p.ended)

    assert (26, 6, 4, 2, 8, 10) == (
        *(point.ended, point.succeeded, point.failed),
        *(point.dead, point.cancelled, point.expired),
    )
    assert (16.0, 4.0, 8) == (point.wait_seconds, point.run_seconds, point.ran)
    assert 0.008 <= point.wait_p50 < 0.016
    assert 64 <= point.wait_p95 < 131.1
    assert 2.048 <= point.run_p50 <= point.run_p95 < 4.096

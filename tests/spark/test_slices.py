"""Which rows each task reads: every row once, and all up to one bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.postgres import day_tables
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.slices import Slice, cut, distribute, plan
from django_pgqueue.spark.tables import ARCHIVE
from tests.harness.factories import make_archived_job

spark = pytest.mark.spark


@given(
    first=st.integers(1, 2**62), ids=st.integers(1, 10**9), parts=st.integers(1, 300)
)
def test_the_parts_of_a_range_touch_and_never_overlap(first, ids, parts):
    """Together they are the whole range, and about equally large."""
    pieces = cut(Slice(first, first + ids - 1), parts)

    assert pieces[0].first_id == first
    assert pieces[-1].last_id == first + ids - 1
    assert [p.last_id + 1 for p in pieces[:-1]] == [p.first_id for p in pieces[1:]]
    sizes = [p.last_id - p.first_id + 1 for p in pieces]
    assert max(sizes) - min(sizes) <= 1


@given(sizes=st.lists(st.floats(0, 1e12), max_size=60), partitions=st.integers(1, 40))
def test_every_slice_is_given_to_one_task(sizes, partitions):
    """There are no more tasks than asked for, and none without a slice."""
    slices = [(Slice(n, n), size) for n, size in enumerate(sizes)]

    tasks = distribute(slices, partitions)

    assert sorted(part.first_id for task in tasks for part in task) == list(
        range(len(sizes))
    )
    assert len(tasks) == min(partitions, len(sizes))
    assert all(tasks)


@spark
def test_the_archive_is_divided_by_day_and_id(archive_days, dsn, cursor):
    """A slice is of one day, and all end at the moment when they were planned."""
    now = datetime.now(UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    cursor.execute(
        f"CREATE TABLE IF NOT EXISTS "
        f"{day_tables.ARCHIVE.name_of(today - timedelta(days=1))} "
        f"PARTITION OF pgqueue_archived_job FOR VALUES "
        f"FROM ('{today - timedelta(days=1)}') TO ('{today}')"
    )
    for seconds in (1, 2):
        make_archived_job(finished_at=today - timedelta(seconds=seconds))
        make_archived_job(finished_at=today + timedelta(microseconds=seconds))

    with Session(dsn, table="archive") as session:
        tasks = plan(session, ARCHIVE, partitions=4)

    slices = {s for task in tasks for s in task}
    assert {today - timedelta(days=1), today} == {s.since for s in slices}
    (until,) = {s.until for s in slices if s.since == today}
    assert now - timedelta(minutes=1) < until < now + timedelta(minutes=1)

"""Pages: short statements that together are each row once."""

from __future__ import annotations

from itertools import chain

import pytest

from django_pgqueue.models import Job
from django_pgqueue.spark import reader
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.options import ReadOptions, select
from django_pgqueue.spark.reader import PAGE, read
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.slices import plan
from django_pgqueue.spark.tables import ARCHIVE, DEAD_LETTERS, JOBS
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
)

pytestmark = pytest.mark.spark

MANY_JOBS = "INSERT INTO pgqueue_job (task) SELECT 'x' FROM generate_series(1, 20000)"


@pytest.fixture
def session(transactional_db, dsn):
    with Session(dsn, table="jobs") as session:
        yield session


def ids_of(session, table, tasks, *, wait=None, rows_per_second=None):
    """Return the ids that each task reads."""
    return [
        [
            row["id"]
            for batch in read(
                session,
                table,
                select(["id"], table),
                task,
                redaction=Redaction(),
                rows_per_second=rows_per_second,
                wait=wait or (lambda seconds: None),
            )
            for row in batch.to_pylist()
        ]
        for task in tasks
    ]


@pytest.mark.parametrize("page_rows", [1, 10])
def test_pages_of_any_size_are_each_row_once(session, monkeypatch, page_rows):
    """Also where rows are missing in between."""
    monkeypatch.setattr(reader, "PAGE_ROWS_MAX", page_rows)
    ids = make_jobs(10)
    Job.objects.filter(pk__in=ids[3:5]).delete()
    tasks = plan(session, JOBS, partitions=3)

    found = ids_of(session, JOBS, tasks)

    assert ids[:3] + ids[5:] == sorted(chain(*found))


def test_rows_that_come_later_are_left_out_by_every_task(session):
    """One bound, fixed when the reading was planned, holds for all of them."""
    ids = make_jobs(6)
    archived = [make_archived_job().pk for _ in range(3)]
    dead = make_dead_letter(id=10**9).pk
    plans = {
        table: plan(session, table, partitions=3)
        for table in (JOBS, ARCHIVE, DEAD_LETTERS)
    }

    make_jobs(3)
    make_archived_job()
    # Enqueued long ago, and dead only now.
    make_dead_letter(id=10**9 - 1)

    assert ids == sorted(chain(*ids_of(session, JOBS, plans[JOBS])))
    assert archived == sorted(chain(*ids_of(session, ARCHIVE, plans[ARCHIVE])))
    assert [[dead]] == ids_of(session, DEAD_LETTERS, plans[DEAD_LETTERS])


def test_a_page_of_large_rows_is_broken_off(session, monkeypatch):
    """It goes on in a new session, after the last row that it has."""
    ids = [make_job(args=["x" * 2_000_000]).pk for _ in range(30)]
    monkeypatch.setattr("django_pgqueue.spark.reader.PAGE_BYTES_MAX", 1_000_000)
    tasks = plan(session, JOBS, partitions=1)
    asked = ReadOptions().table.columns
    opened = []
    reopen = session.reopen
    monkeypatch.setattr(session, "reopen", lambda: opened.append(reopen()))

    found = [
        row
        for batch in read(
            session,
            JOBS,
            asked,
            tasks[0],
            redaction=Redaction(),
            rows_per_second=None,
        )
        for row in batch.column("id").to_pylist()
    ]

    assert ids == found
    assert len(opened) >= 1


def test_no_snapshot_is_held_while_spark_works(session, cursor):
    """Between two pages, and while one is taken, the session is idle."""
    make_jobs(10)
    tasks = plan(session, JOBS, partitions=1)
    (row,) = session.rows("SELECT pg_backend_pid() AS pid")
    states = []

    def look(seconds):
        cursor.execute(
            "SELECT state, backend_xmin FROM pg_stat_activity WHERE pid = %s",
            [row["pid"]],
        )
        states.append(cursor.fetchone())

    ids_of(session, JOBS, tasks, rows_per_second=4, wait=look)

    assert {("idle", None)} == set(states)


def test_every_page_is_an_index_scan(session, cursor):
    """No sort and no scan of the whole table, though nobody has analysed it."""
    cursor.execute(MANY_JOBS)
    make_archived_job()
    make_dead_letter()
    for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
        (setting,) = session.rows(f"SELECT current_setting('{name}') AS value")
        cursor.execute(f"SET {name} = {setting['value']}")
    for table in (JOBS, ARCHIVE, DEAD_LETTERS):
        ((part,),) = plan(session, table, partitions=1)
        page = PAGE.format(
            columns="id",
            relation=table.relation,
            first=part.first_id,
            condition=part.condition(table),
            limit=reader.PAGE_ROWS_MAX,
        )
        cursor.execute(f"EXPLAIN {page}")
        text = "\n".join(line for (line,) in cursor.fetchall())

        assert "pkey" in text, table.name
        assert "Sort" not in text, table.name

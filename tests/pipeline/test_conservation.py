"""The pipeline job conservation: every job that was seen is somewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from django_pgqueue.management.spark_session import dsn_of
from django_pgqueue.models import ArchivedJob, DeadLetter, EnqueuedHour
from django_pgqueue.pipeline import enqueued_hours
from django_pgqueue.postgres import day_tables
from django_pgqueue.queues.dead_letters import redrive
from tests.harness.factories import make_archived_job, make_dead_letter, make_job

HOUR = timedelta(hours=1)
THEN = datetime.now(UTC).replace(minute=30, second=0, microsecond=0) - 2 * HOUR
BEGAN = THEN.replace(minute=0)


ARCHIVE = """
WITH gone AS (DELETE FROM pgqueue_job WHERE id = %s RETURNING *)
INSERT INTO pgqueue_archived_job (id, queue, task, enqueued_at, state, finished_at)
SELECT id, queue, task, enqueued_at, 'succeeded', clock_timestamp() FROM gone
"""


@pytest.fixture(autouse=True)
def _days_until_now(archive_days, cursor):
    """What ended two hours ago may have done so yesterday."""
    with cursor.connection.transaction():
        day_tables.ARCHIVE.make_day(cursor, THEN.date())


@pytest.fixture
def another():
    """A cursor of another session, in autocommit."""
    with psycopg.connect(dsn_of("default", writes=True), autocommit=True) as connection:
        yield connection.cursor()


def placed():
    return {
        (row.queue, row.task): (row.enqueued, row.waiting, row.archived, row.dead)
        for row in EnqueuedHour.objects.filter(hour=BEGAN)
    }


def test_jobs_are_counted_where_they_are(by_sql):
    """By hour of their enqueue, queue and task; the hour that it is now is not over."""
    for _ in range(2):
        make_job(task="a", enqueued_at=THEN)
    make_job(task="a", enqueued_at=datetime.now(UTC))
    make_archived_job(task="a", enqueued_at=THEN, finished_at=THEN + HOUR)
    make_archived_job(task="b", enqueued_at=THEN, finished_at=THEN + HOUR)
    make_dead_letter(task="a", enqueued_at=THEN, queue="mail")

    ended = by_sql("conservation")

    assert {
        ("default", "a"): (3, 2, 1, 0),
        ("default", "b"): (1, 0, 1, 0),
        ("mail", "a"): (1, 0, 0, 1),
    } == placed()
    assert (5, 3) == (ended.rows_in, ended.rows_out)
    assert "Of 5 jobs" in ended.notes[0]
    assert 0 == by_sql("conservation").rows_out


def test_a_row_that_is_gone_is_missing_until_that_is_accepted(by_sql):
    """Wherever it was; who commits late adds to the hour."""
    job = make_job(enqueued_at=THEN)
    make_archived_job(enqueued_at=THEN, finished_at=THEN)
    make_dead_letter(enqueued_at=THEN)
    by_sql("conservation")
    make_job(enqueued_at=THEN)
    job.delete()
    ArchivedJob.objects.all().delete()
    DeadLetter.objects.all().delete()

    ended = by_sql("conservation")

    (row,) = EnqueuedHour.objects.all()
    assert (3, 2) == (row.enqueued, row.missing)
    assert "2 are nowhere" in ended.notes[0]
    by_sql("conservation", accept="true")
    (row,) = EnqueuedHour.objects.all()
    assert (1, 0) == (row.enqueued, row.missing)


def test_a_job_that_moves_while_it_is_counted_is_counted_once(
    by_sql, another, monkeypatch
):
    """All tables are those of one snapshot: neither a settle nor a redrive between two
    of its statements makes a job missing, or two of it."""
    letter = make_dead_letter(enqueued_at=THEN)
    job = make_job(enqueued_at=THEN)
    by_sql("conservation")
    counted = enqueued_hours.Counting.count_waiting

    def move(counting):
        counted(counting)
        redrive(another, [letter.id])
        another.execute(ARCHIVE, [job.id])

    with monkeypatch.context() as patched:
        patched.setattr(enqueued_hours.Counting, "count_waiting", move)
        assert "0 are nowhere" in by_sql("conservation").notes[0]
    assert {("default", "tests.noop"): (2, 1, 0, 1)} == placed()

    assert "0 are nowhere" in by_sql("conservation").notes[0]
    assert {("default", "tests.noop"): (2, 1, 1, 0)} == placed()

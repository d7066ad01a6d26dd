"""The pipeline jobs replay and backfill, where the database needs no Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import consume, subscribe
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.management.spark_session import dsn_of
from django_pgqueue.models import (
    BulkAct,
    Job,
    Position,
    Subscription,
    Topic,
)
from django_pgqueue.operators import bulk_acts
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.run import Plan
from django_pgqueue.spark.running import run_job
from django_pgqueue.topics.sync import sync_groups
from django_pgqueue.worker.chores.backlogs import Backfills
from tests.harness.factories import make_archived_job
from tests.log.log import put
from tests.topics.conftest import _declarations, deploy, link

pytestmark = pytest.mark.django_db(transaction=True)

__all__ = ["_declarations", "link"]

INTO = "subscription:mail/orders"


@pytest.fixture(autouse=True)
def _no_writes(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_spark_write")


@pytest.fixture
def cursor(transactional_db: None):
    with connection.cursor() as cursor:
        yield cursor


def listen(pattern="orders", task="shop.mail", **said):
    """Subscribe to what is published from now on."""

    def handler(message):
        pass

    subscribe(pattern, queue="mail", name=task, **said)(handler)
    deploy()


def run(job_name: str, /, **options: Any) -> Any:
    """Run a pipeline job that must not start Spark."""

    def no_spark() -> Any:
        raise AssertionError("Spark was started")

    job = find_job(job_name)
    given = job.read_options(options)
    dsn = dsn_of("default", writes=True)
    return run_job(Plan(job, given, dsn, no_spark, by="ann"))


def messages_of_jobs(**filters):
    found = Job.objects.filter(**filters).order_by("id")
    return [*found.values_list("message_id", flat=True)]


def test_a_log_is_replayed_by_the_leader_once_under_a_name(cursor):
    """The run only asks for it; a preview counts, and writes nothing."""
    ids = put(cursor, *({"n": n} for n in range(5)), topic="orders")
    listen()
    asked = {"source": "log", "topic": "orders", "to": INTO, "since": str(ids[1])}

    shown = run("replay", **asked, preview=True)
    assert ("succeeded", 0, 0) == (shown.state, shown.rows_out, BulkAct.objects.count())
    assert "4 messages, published from" in shown.notes[0]
    first = run("replay", **asked, rate=50, name="once")
    again = run("replay", **asked, rate=50, name="once")
    while bulk_acts.step():
        pass

    assert (4, 0) == (first.rows_out, again.rows_out)
    assert "was written already" in again.notes[0]
    assert ids[1:] == messages_of_jobs()
    act = BulkAct.objects.get()
    assert ("ann", 50, "replay") == (act.asked_by, act.per_second, act.verb)


def test_jobs_of_the_archive_run_again(archive_days, cursor):
    """In their queue or another one, as due by the rate; what their first life has left
    is gone, and jobs of messages are left out."""
    ended_at = datetime.now(UTC) - timedelta(hours=1)
    ARCHIVE.make_day(cursor, ended_at.date())
    given = {"finished_at": ended_at, "task": "shop.send", "queue": "mail"}
    for n in range(4):
        headers = {"tags": ["x"], "pgqueue.edits": 1}
        make_archived_job(kwargs={"n": n}, headers=headers, attempt=3, **given)
    make_archived_job(message_id=7, **given)
    make_archived_job(**{**given, "task": "shop.other"})
    asked = {"source": "archive", "since": "2 hours ago", "task": "shop.send"}

    shown = run("replay", **asked, preview=True)
    assert "4 jobs in all. Nothing was written." == shown.notes[-1]
    ended = run("replay", **asked, to="queue:late", rate=2, name="again")
    run("replay", **asked, to="queue:late", rate=2, name="again")

    assert (None, 4) == (ended.error, ended.rows_out)
    jobs = [*Job.objects.order_by("id")]
    assert [(n, "late", 0) for n in range(4)] == [
        (job.kwargs["n"], job.queue, job.attempt) for job in jobs
    ]
    assert {"tags": ["x"], "pgqueue.replay": "again"} == jobs[0].headers
    due = [(job.run_after - jobs[0].run_after).total_seconds() for job in jobs]
    assert [0, 0.5, 1, 1.5] == due


def test_a_new_subscription_gets_what_the_log_has(cursor, link):
    """A back-fill without files lets the leader begin; a second one is refused."""
    old = put(cursor, *({"n": n} for n in range(3)), topic="orders")
    listen()
    (new,) = put(cursor, {"n": 3}, topic="orders")

    ended = run("backfill", topic="orders", to=INTO)
    assert None is ended.error
    again = run("backfill", topic="orders", to=INTO, name="another")
    backfills = Backfills()
    while not backfills(link):
        pass

    assert "is being filled" in again.error
    assert [*old] == [each for each in messages_of_jobs() if each != new]
    row = Subscription.objects.get()
    assert (None, "earliest") == (row.backfill_position, row.start)


def test_a_new_group_reads_what_the_log_has(cursor):
    """From its beginning, unless it has read already."""
    put(cursor, *({"n": n} for n in range(3)), topic="orders")

    @consume("orders", group="stats", queue="stats", name="shop.stats")
    def stats(messages):
        pass

    sync_groups(cursor)
    assert {0} != {*Position.objects.values_list("position", flat=True)}
    ended = run("backfill", topic="orders", to="group:stats")

    assert (None, {0}) == (
        ended.error,
        {*Position.objects.values_list("position", flat=True)},
    )
    again = run("backfill", topic="orders", to="group:stats", name="another")
    assert "has begun to read" in again.error


@pytest.mark.parametrize(
    "job, given, told",
    [
        ("replay", {}, "What is replayed"),
        ("replay", {"source": "log", "to": INTO}, "Whose log"),
        ("replay", {"source": "archive", "since": "7"}, "of jobs it is a time"),
        ("replay", {"source": "/x", "topic": "a", "since": "7"}, "Who gets"),
        ("replay", {"source": "archive", "to": "group:x"}, "their own queues"),
        ("replay", {"source": "archive", "where": "true"}, "where is for files"),
        (
            "replay",
            {"source": "log", "topic": "a", "to": INTO, "task": "x"},
            "for jobs",
        ),
        ("replay", {"source": "archive"}, "Where does it begin"),
        ("replay", {"source": "archive", "state": "done"}, "one of succeeded, exp"),
        ("replay", {"source": "archive", "since": "1d", "rate": -1}, "option rate"),
        ("backfill", {"topic": "orders", "to": "queue:x"}, "for whom"),
        ("backfill", {"topic": "orders", "to": INTO, "since": "soon"}, "option since"),
    ],
)
def test_bad_options_are_refused_before_anything_is_done(db, job, given, told):
    """It says which option, before any SQL but that of the run's row."""
    with pytest.raises(SparkOptionError, match=told):
        run(job, **given)


def test_what_neither_log_nor_files_have_is_said(cursor, tmp_path):
    """No back-fill begins that would have a gap."""
    ids = put(cursor, *({"n": n} for n in range(3)), topic="orders")
    listen()
    Topic.objects.update(removed_to=ids[1])
    nobody = run("backfill", topic="orders", to=INTO, path=str(tmp_path))
    cursor.execute(
        "INSERT INTO pgqueue_ingest_position (topic_id, target, read_to, run_id)"
        " SELECT id, %s, %s, 1 FROM pgqueue_topic",
        [str(tmp_path), ids[0]],
    )
    gap = run("backfill", topic="orders", to=INTO, path=str(tmp_path))

    assert "Nobody has noted" in nobody.error
    assert "neither in the log nor" in gap.error
    assert "latest" == Subscription.objects.get().start

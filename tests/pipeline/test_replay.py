"""The pipeline jobs replay and backfill, from files: each message once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import connection, connections
from pyarrow import dataset

from django_pgqueue import publish as publish_one
from django_pgqueue.log.retain import REMOVE_TO
from django_pgqueue.models import Job, Message, Subscription, Topic
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.running import run_job
from django_pgqueue.spark.store import for_spark
from django_pgqueue.tasks import payload
from django_pgqueue.worker.chores.backlogs import Backfills
from tests.harness.factories import make_archived_job
from tests.pipeline.test_replay_here import listen
from tests.spark.log.conftest import cursor, publish
from tests.topics.conftest import _declarations, link

pytestmark = pytest.mark.spark

__all__ = ["_declarations", "cursor", "link", "publish"]

SECRET = "hunter2-planted"


@pytest.fixture(autouse=True)
def _no_writes(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_spark_write")


def remove(cursor, last):
    """Remove messages from the log up to an id, as retention does."""
    topic = Topic.objects.get(name="orders")
    cursor.execute("DELETE FROM pgqueue_message WHERE id <= %s", [last])
    cursor.execute(REMOVE_TO, {"highest": last, "topic": topic.pk})


def given(job):
    """Return the message that a job is given."""
    ((message,), _) = payload.decode(json.dumps(job.args), "{}")
    return message


def test_files_in_an_object_store_are_asked_for_as_spark_calls_it():
    """By the address that export and ingest were given."""
    assert "s3a://bucket/log" == for_spark("s3://bucket/log")
    assert "file:///srv/log" == for_spark("/srv/log")


def test_messages_of_files_are_replayed(run, plan, publish, cursor, tmp_path):
    """To a subscription as its jobs, in order, without what is hidden in the files; to
    a topic as new messages; of a range; once under a name; also when few files were
    made of many."""
    ids = publish(4)
    path = f"{tmp_path}/our log"
    run("ingest", topic="orders", path=path)
    (secret,) = publish(payload={"token": SECRET, "n": 4})
    run("ingest", topic="orders", path=path)
    remove(cursor, secret)
    listen(tags=["me"])
    asked = {
        "source": path,
        "topic": "orders",
        "since": "earliest",
    }
    into = {**asked, "to": "subscription:mail/orders"}

    shown = run("replay", **into, preview=True)
    assert "5 messages in all. Nothing was written." == shown.notes[-1]
    refused = run_job(plan("replay", **into))
    assert "hidden by redaction" in refused.error
    assert not Job.objects.exists()
    for _ in range(2):
        ended = run("replay", **into, refused_path=f"{tmp_path}/refused", name="one")
    assert "was written already" in ended.notes[0]
    jobs = [*Job.objects.order_by("id")]
    assert [(each, {"n": n}) for n, each in enumerate(ids)] == [
        (given(job).id, given(job).payload) for job in jobs
    ]
    assert {"tags": ["me"], "pgqueue.replay": "one"} == jobs[0].headers
    (aside,) = dataset.dataset(f"{tmp_path}/refused").to_table().to_pylist()
    assert secret == aside["id"]

    assert 5 == run("compact", path=path).rows_out
    asked |= {"until": str(ids[2])}
    run("replay", **asked, to="topic:copies")
    run("replay", **asked, to="topic:late", rate=2)
    copies = Message.objects.filter(name="copies").order_by("id")
    assert [0, 1, 2] == [message.payload["n"] for message in copies]
    due = Job.objects.filter(queue="pgqueue_messages").order_by("run_after")
    assert [0, 1, 2] == [job.args[0]["value"]["payload"]["n"] for job in due]
    assert 1 == (due[2].run_after - due[0].run_after).total_seconds()


def test_jobs_of_files_run_again(run, archive_days, cursor, tmp_path):
    """As from the archive: their arguments are what they were, and a queue 007 is not
    one called 7."""
    args = [{"__pgqueue__": "date", "value": "2026-03-01"}]
    at = datetime.now(UTC) - timedelta(days=2)
    with cursor.connection.transaction():
        ARCHIVE.make_day(cursor, at.date())
    make = partial(make_archived_job, task="shop.send", finished_at=at)
    row = make(queue="007", args=args)
    make(queue="8")
    make(queue="007", message_id=3)
    run("export", path=f"{tmp_path}/jobs")

    given = {"source": f"{tmp_path}/jobs", "since": "earliest", "name": "again"}
    ended = run("replay", **given, task="shop.send", queue="007")

    assert 1 == ended.rows_out
    (job,) = Job.objects.all()
    assert ("shop.send", "007", row.args) == (job.task, job.queue, job.args)
    assert {"pgqueue.replay": "again"} == job.headers


def test_a_backfill_meets_the_live_flow(
    run, plan, publish, cursor, new_cursor, link, tmp_path
):
    """Files, log and what is published meanwhile, also in a snapshot of before the
    subscription: each message has one job."""
    publish(300)
    run("ingest", topic="orders", path=str(tmp_path))
    removed = publish(100)[49]
    run("ingest", topic="orders", path=str(tmp_path))
    remove(cursor, removed)
    stop = threading.Event()

    def live():
        while not stop.wait(0.02):
            publish_one("orders", {"live": True})
        connections.close_all()

    publisher = threading.Thread(target=live)
    old = new_cursor()
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.execute("SELECT count(*) FROM pgqueue_subscription")
    publisher.start()
    asked = {"topic": "orders", "to": "subscription:mail/orders"}
    try:
        listen()
        run("backfill", **asked, path=str(tmp_path))
        again = run_job(plan("backfill", **asked, name="another"))
        (late,) = publish(on=old)
        old.execute("COMMIT")
    finally:
        stop.set()
        publisher.join()
    backfills = Backfills()
    while Subscription.objects.filter(backfill_position__isnull=False).exists():
        backfills(link)

    assert "is being filled" in again.error or "began with" in again.error
    counted = Counter(Job.objects.values_list("message_id", flat=True))
    assert {1} == {*counted.values()}
    left = {*Message.objects.filter(name="orders").values_list("pk", flat=True)}
    assert 350 == len({*counted} - left)
    assert late in left <= {*counted}
    assert removed == max({*counted} - left)

"""Replays and back-fills whose driver is paused or killed at one step or another."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection

from django_pgqueue.models import Job, Message, Subscription
from django_pgqueue.worker.chores.backfills import Backfills
from tests.harness.waiting import wait_for
from tests.pipeline.test_paused import start_driver, take_over
from tests.pipeline.test_replay import remove
from tests.pipeline.test_replay_here import listen
from tests.spark.log.conftest import cursor, publish
from tests.topics.conftest import _declarations, link

# Its driver waits for a Java process of its own.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["_declarations", "cursor", "link", "publish"]

WRITE = "django_pgqueue.spark.write.once:write_named"
FINISH = "django_pgqueue.pipeline.runs:finish"

# Sessions of a write that wait for a lock, and those that are left of it.
WAITING = """
SELECT count(*) FROM pg_stat_activity
 WHERE application_name = 'pgqueue spark: write' AND datname = current_database()
"""


@pytest.mark.parametrize("job", ["replay", "backfill"])
def test_each_message_has_one_job_whatever_becomes_of_the_driver(
    job, run, publish, cursor, new_cursor, link, dsn, request, tmp_path
):
    """It is paused before it writes and before it ends, and goes on when another run
    has taken its place; it is killed with its Java while it commits."""
    with connection.cursor() as plain:
        plain.execute("TRUNCATE pgqueue_spark_write")
    (removed,) = publish(20)[-1:]
    run("ingest", topic="orders", path=str(tmp_path))
    remove(cursor, removed)
    publish(5)
    asked = {"topic": "orders", "to": "subscription:mail/orders"}
    if job == "replay":
        asked |= {"source": str(tmp_path), "since": "earliest", "name": "one"}
    else:
        asked["path"] = str(tmp_path)
    driver = start_driver(dsn, request)
    request.addfinalizer(driver.close)

    def fill(how):
        """Have one subscription filled, and return how often each message was."""
        Job.objects.all().delete()
        Subscription.objects.all().delete()
        cursor.execute("TRUNCATE pgqueue_spark_write")
        listen()
        how()
        backfills = Backfills()
        while Subscription.objects.filter(backfill_position__isnull=False).exists():
            backfills(link)
        return Counter(Job.objects.values_list("message_id", flat=True))

    def pause(place):
        driver.run(job, asked, place)
        take_over(cursor)
        run(job, **asked)
        assert "succeeded" != driver.go_on()[0]

    def kill():
        driver.run(job, asked, WRITE)
        holder = new_cursor()
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE pgqueue_job IN SHARE MODE")
        waits = f"{WAITING} AND wait_event_type = 'Lock'"
        driver.kill_when(lambda: cursor.execute(waits).fetchone() != (0,))
        holder.execute("ROLLBACK")
        gone = lambda: cursor.execute(WAITING).fetchone() == (0,)  # noqa: E731
        wait_for(gone, 60, "its sessions are gone")
        take_over(cursor)
        run(job, **asked)

    expected = dict.fromkeys(range(removed - 19, removed + 1), 1)
    if job == "backfill":
        expected |= {m.pk: 1 for m in Message.objects.filter(name="orders")}
    assert expected == fill(lambda: pause(WRITE))
    assert expected == fill(lambda: pause(FINISH))
    assert expected == fill(kill)

"""Replays and back-fills whose driver, or a Python of it, is paused or killed."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection

from django_pgqueue.models import Job, Message, Subscription
from django_pgqueue.worker.chores.backfills import Backfills
from tests.harness.process_tree import waking
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

# A task that makes the stage, and the commit of the write, wait for these.
BEGINS = "LOCK TABLE pg_class IN SHARE MODE"
COMMITS = "LOCK TABLE pgqueue_job IN SHARE MODE"

SESSION = """
SELECT state, wait_event_type FROM pg_stat_activity
 WHERE application_name = 'pgqueue spark: write' AND datname = current_database()
"""


@pytest.fixture(scope="module")
def driver(dsn, request):
    """A driver with a session of its own."""
    driver = start_driver(dsn, request)
    yield driver
    driver.close()


@pytest.mark.parametrize("job", ["replay", "backfill"])
def test_each_message_has_one_job_whatever_becomes_of_the_driver(
    job, run, publish, cursor, new_cursor, link, driver, tmp_path
):
    """It is paused before it writes or before it ends, and goes on when another run
    has taken its place. It is killed while a task or the commit is in its transaction:
    with its Java and the Python; or these are frozen, wake up and add nothing."""
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

    def die(lock, is_frozen):
        driver.run(job, asked, WRITE)
        holder = new_cursor()
        holder.execute("BEGIN")
        holder.execute(lock)
        driver.go_on_until(lambda: is_in("Lock"))
        if not is_frozen:
            driver.kill()
        with waking(driver.kill_beside_frozen() if is_frozen else []):
            holder.execute("ROLLBACK")
            wait_for(lambda: not is_in("active"), 60, "its statement ends")
            assert is_frozen == is_in("idle in transaction")
            take_over(cursor)
            run(job, **asked)

    def is_in(what):
        return what in (cursor.execute(SESSION).fetchone() or ())

    expected = dict.fromkeys(range(removed - 19, removed + 1), 1)
    if job == "backfill":
        expected |= {m.pk: 1 for m in Message.objects.filter(name="orders")}
    # Both write in the same way, so each is cut off at places of its own.
    if job == "replay":
        assert expected == fill(lambda: pause(WRITE))
        assert expected == fill(lambda: die(BEGINS, is_frozen=True))
        assert expected == fill(lambda: die(COMMITS, is_frozen=True))
    else:
        assert expected == fill(lambda: pause(FINISH))
        assert expected == fill(lambda: die(COMMITS, is_frozen=False))

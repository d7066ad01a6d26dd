"""
The purge of large tables makes no worker wait.

Every statement of a worker runs with a lock_timeout: whoever waits longer for a lock
fails, and so does the test.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from django_pgqueue.queues.cancel import cancel
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.queues.enqueue import Placement, enqueue
from django_pgqueue.queues.lease import renew
from django_pgqueue.queues.partitions import (
    drop_partition,
    expired_partitions,
    make_partitions,
    partition_name,
)
from django_pgqueue.queues.purge import (
    DEAD_LETTERS,
    PURGE_ROWS_MAX,
    purge_dead_letters,
    purge_results,
)
from django_pgqueue.queues.settle import Ended, ack, dead_letter, retry
from tests.harness.databases import lent
from tests.harness.factories import LEASE
from tests.scale import shapes
from tests.scale.database import cursor_of_own_database, own_cursor
from tests.scale.plans import buffers, explain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ALIAS = "purged"
WORKERS = 3
LOCK_WAIT_MAX = "100ms"

PLACEMENT = Placement(
    queue="default",
    task="x",
    headers="{}",
    priority=0,
    max_attempts=5,
    run_at=None,
    delay=None,
    expire_at=None,
    expire_in=None,
)


@pytest.fixture(scope="module")
def scale(django_db_setup, django_db_blocker):
    """A cursor on a database of its own, with the tables of this package."""
    with lent(cursor_of_own_database(ALIAS), django_db_blocker) as cursor:
        yield cursor


def work(name, at_work, over, django_db_blocker):
    """Enqueue, claim, renew, settle, cancel and redrive until it is over."""
    done = 0
    with django_db_blocker.unblock(), own_cursor(ALIAS) as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_WAIT_MAX}'")
        while not over.is_set():
            ids = [
                enqueue(cursor, PLACEMENT, args="[]", kwargs="{}") for _ in range(12)
            ]
            cancel(cursor, ids[:1])
            jobs = claim(cursor, queues=["default"], worker=name, limit=10, lease=LEASE)
            renew(
                cursor,
                worker=name,
                leases=[(job.id, job.delivery) for job in jobs],
                lease=LEASE,
            )
            ended = [
                Ended(job.id, job.delivery, result="1", reason="exhausted")
                for job in jobs
            ]
            retry(cursor, worker=name, ended=ended[8:])
            dead_letter(cursor, worker=name, ended=ended[7:8])
            ack(cursor, worker=name, ended=ended[:7])
            redrive(cursor, [job.id for job in jobs])
            if jobs and not done:
                at_work.wait()
            done += len(jobs)
    return done


def while_working(purge, django_db_blocker):
    """Do *purge* beside workers; return its answer and how many jobs they ran."""
    over = threading.Event()
    at_work = threading.Barrier(WORKERS + 1, timeout=60)
    with ThreadPoolExecutor(WORKERS) as pool:
        workers = [
            pool.submit(work, f"w{n}", at_work, over, django_db_blocker)
            for n in range(WORKERS)
        ]
        try:
            at_work.wait()
            answer = purge()
        finally:
            over.set()
        return answer, [future.result(60) for future in workers]


def until_empty(purge, **options):
    """Purge batch by batch; return how many rows went."""
    total, floor = 0, None
    while True:
        purged = purge(**options, floor=floor)
        total += purged.rows
        floor = purged.floor
        if not purged.is_full:
            return total


def count(cursor, table):
    cursor.execute(f"SELECT count(*) FROM {table}")
    return cursor.fetchone()[0]


def test_purging_dead_letters_makes_no_worker_wait(scale, django_db_blocker):
    """All that are old enough go, in batches, beside new ones that stay."""
    shapes.fill(scale, "99 % archived or dead")
    old = count(scale, "pgqueue_dead_letter") - 1_000

    purged, done = while_working(
        lambda: until_empty(
            partial(purge_dead_letters, scale), keep=timedelta(seconds=10_000)
        ),
        django_db_blocker,
    )

    assert old <= purged <= old + PURGE_ROWS_MAX
    assert 0 < min(done)


def test_a_batch_costs_the_same_while_vacuum_is_held_back(scale, django_db_blocker):
    """It begins where the last one ended, and does not walk over what that deleted."""
    shapes.fill(scale, "99 % archived or dead")
    shapes.analyse(scale)
    keep, floor = timedelta(seconds=10_000), None

    with django_db_blocker.unblock(), own_cursor(ALIAS) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM pgqueue_dead_letter LIMIT 1")
        for _ in range(20):
            floor = purge_dead_letters(scale, keep=keep, floor=floor).floor
        params = {"keep": keep, "floor": floor, "limit": 10}
        onward = explain(scale, DEAD_LETTERS, params)
        anew = explain(scale, DEAD_LETTERS, params | {"floor": None})

    assert buffers(onward) <= 100
    assert buffers(anew) > 500


def test_purging_results_makes_no_worker_wait(scale, django_db_blocker):
    """Half of the archived rows have one; the rows themselves stay."""
    shapes.fill(scale, "99 % archived or dead")
    rows = count(scale, "pgqueue_archived_job")
    scale.execute("SELECT count(*) FROM pgqueue_archived_job WHERE result IS NOT NULL")
    (results,) = scale.fetchone()

    purged, done = while_working(
        lambda: until_empty(partial(purge_results, scale), keep=timedelta(seconds=5)),
        django_db_blocker,
    )

    assert results - 500 <= purged
    assert rows < count(scale, "pgqueue_archived_job")
    assert 0 < min(done)


def test_dropping_a_day_makes_no_worker_wait(scale, django_db_blocker):
    """Detached beside the acks and then dropped; later days are made again."""
    shapes.fill(scale, "99 % archived or dead")
    day = datetime.now(UTC).date() - timedelta(days=2)
    scale.execute(
        f"CREATE TABLE {partition_name(day)} PARTITION OF pgqueue_archived_job"
        f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
    )
    scale.execute(
        "INSERT INTO pgqueue_archived_job (id, task, state, finished_at)"
        " SELECT -n, 'x', 'succeeded', %s FROM generate_series(1, %s) n",
        [datetime(day.year, day.month, day.day, 12, tzinfo=UTC), shapes.ROWS],
    )

    def purge():
        dropped = expired_partitions(scale, keep=timedelta(days=1))
        for expired in dropped:
            drop_partition(scale, expired)
        with scale.connection.transaction():
            made = make_partitions(scale, days_ahead=9)
        return dropped, len(made)

    answer, done = while_working(purge, django_db_blocker)

    assert ([day], 2) == answer
    assert 0 < min(done)

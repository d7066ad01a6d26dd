"""Storing by a dedup key: one live job a key, whoever comes at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_pgqueue.models import DedupWindow, Job
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.enqueue import Placement
from django_pgqueue.queues.purge import DEDUP_WINDOWS, batch
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.queues.unique import (
    Dedup,
    Stored,
    store_unique,
    store_unique_many,
)
from tests.harness.factories import LEASE, make_job, make_leased_job
from tests.harness.waiting import wait_until_blocked

PLACEMENT = Placement(
    queue="default", task="tests.noop", headers="{}", priority=0, max_attempts=5
)
MINUTE = timedelta(minutes=1)
KEY = 'tests.noop "k"'


def store(cursor, key="k", *, hold="queued", conflict="skip", locks=False, **rule):
    """Store a job without arguments, unless *rule* has them."""
    args, kwargs = rule.pop("args", "[]"), rule.pop("kwargs", "{}")
    placement = rule.pop("placement", PLACEMENT)
    dedup = Dedup(hold=hold, conflict=conflict, by=f'"{key}"', **rule)
    return store_unique(cursor, placement, dedup, args=args, kwargs=kwargs, locks=locks)


def claim_all(cursor, worker="worker"):
    """Claim what is due."""
    return claim(cursor, queues=["default"], worker=worker, limit=100, lease=LEASE)


@pytest.fixture
def in_thread():
    """Run a function in a thread; the answer is a future."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


# The key ------------------------------------------------------------------------------


def key_of(cursor, task, by):
    cursor.execute("SELECT pgqueue_dedup_key(%s, %s::jsonb)", [task, by])
    return cursor.fetchone()[0]


@pytest.mark.parametrize(
    "by, key",
    [
        ('{"b": 1, "a": "x"}', 'shop.send {"a": "x", "b": 1}'),
        ('{"a":"x","b":1}', 'shop.send {"a": "x", "b": 1}'),
        ('"order 7"', 'shop.send "order 7"'),
        ("{}", "shop.send {}"),
    ],
)
def test_a_short_key_can_be_read(cursor, by, key):
    """The same values make the same key, in whatever order and spacing they come."""
    assert key == key_of(cursor, "shop.send", by)


# Skip ---------------------------------------------------------------------------------


def test_the_second_call_is_told_of_the_first_ones_job(cursor):
    """The first is stored, and only the first."""
    first = store(cursor)

    assert Stored(first.id, None) == first
    assert Stored(first.id, "skipped") == store(cursor)
    assert [(first.id, KEY)] == list(Job.objects.values_list("pk", "dedup_key"))


def test_a_queued_key_is_free_once_a_worker_has_the_job(cursor):
    """What changes while the job runs makes another job."""
    first = store(cursor)
    claim_all(cursor)

    assert store(cursor).conflict is None
    assert None is Job.objects.get(pk=first.id).dedup_key
    assert KEY == Job.objects.get(pk=first.id).queued_key


def test_a_running_key_is_held_until_the_job_has_ended(cursor):
    """Claimed or not; its ack frees it."""
    first = store(cursor, hold="queued|running")
    claim_all(cursor)
    assert Stored(first.id, "skipped") == store(cursor, hold="queued|running")

    ack(cursor, worker="worker", ended=[Ended(first.id, 1)])

    assert store(cursor, hold="queued|running").conflict is None


def test_a_job_that_has_expired_stands_for_nobody(cursor):
    """It will never run; the new one does, and the old one ends as expired."""
    old = make_job(dedup_key=KEY, queued_key=KEY, expires_at=-MINUTE)

    assert store(cursor).conflict is None
    assert (None, None) == Job.objects.values_list("dedup_key", "queued_key").get(
        pk=old.pk
    )


# At the same moment -------------------------------------------------------------------


def test_a_second_caller_waits_for_the_first_ones_commit(
    cursor, other_cursor, new_cursor, in_thread
):
    """He is told of the job that was committed."""
    with other_cursor.connection.transaction():
        first = store(other_cursor)
        second = in_thread(store, cursor)
        wait_until_blocked(new_cursor(), cursor)

    assert Stored(first.id, "skipped") == second.result(10)


def test_a_second_caller_stores_when_the_first_rolls_back(
    cursor, other_cursor, new_cursor, in_thread
):
    """What was never there holds no key."""
    with other_cursor.connection.transaction(force_rollback=True):
        store(other_cursor)
        second = in_thread(store, cursor)
        wait_until_blocked(new_cursor(), cursor)

    assert second.result(10).conflict is None
    assert 1 == Job.objects.count()


def test_a_job_that_stands_for_a_call_starts_after_its_commit(cursor, other_cursor):
    """Else it would not see what the call's transaction has written."""
    first = store(cursor)
    with other_cursor.connection.transaction():
        store(other_cursor, locks=True)
        assert [] == claim_all(cursor)

    assert [first.id] == [job.id for job in claim_all(cursor)]


def test_callers_that_meet_the_same_jobs_do_not_wait_for_each_other(
    cursor, other_cursor
):
    """So those who meet them in different orders cannot deadlock."""
    for key in "ab":
        store(cursor, key)
    with cursor.connection.transaction(), other_cursor.connection.transaction():
        for ours, theirs in ("ab", "ba"):
            assert "skipped" == store(cursor, ours, locks=True).conflict
            assert "skipped" == store(other_cursor, theirs, locks=True).conflict


def test_a_caller_that_meets_a_claim_stores_another_job(
    cursor, other_cursor, new_cursor, in_thread
):
    """The claim frees the key, and the caller waits for it to commit."""
    first = store(cursor)
    with other_cursor.connection.transaction():
        claim_all(other_cursor)
        second = in_thread(store, cursor, locks=True)
        wait_until_blocked(new_cursor(), cursor)

    assert (None, True) == (second.result(10).conflict, second.result().id > first.id)


# Replace, reschedule ------------------------------------------------------------------


def test_replace_gives_the_waiting_job_the_last_arguments(cursor):
    """Headers and expiry, too. Its time, its place and its id stay."""
    later = Placement(
        queue="default",
        task="tests.noop",
        headers='{"trace": "t"}',
        priority=9,
        max_attempts=1,
        delay=MINUTE,
        expire_in=MINUTE,
    )
    first = store(cursor, conflict="replace", kwargs='{"n": 1}')
    before = Job.objects.get()

    told = store(cursor, conflict="replace", placement=later, kwargs='{"n": 2}')

    after = Job.objects.get()
    assert Stored(first.id, "replaced") == told
    assert ({"n": 2}, {"trace": "t"}) == (after.kwargs, after.headers)
    assert after.expires_at is not None
    for column in ("visible_at", "run_after", "enqueued_at", "priority"):
        assert getattr(before, column) == getattr(after, column), column


def test_reschedule_gives_the_waiting_job_the_calls_time(cursor):
    """Its arguments stay; a call without a time means now."""
    later = Placement(
        queue="default",
        task="tests.noop",
        headers="{}",
        priority=0,
        max_attempts=5,
        delay=MINUTE,
    )
    first = store(cursor, args="[1]")

    told = store(cursor, conflict="reschedule", placement=later, args="[2]")
    assert Stored(first.id, "rescheduled") == told
    assert ([1], []) == (Job.objects.get().args, claim_all(cursor))

    store(cursor, conflict="reschedule")
    assert [first.id] == [job.id for job in claim_all(cursor)]


@pytest.mark.parametrize("conflict", ["replace", "reschedule", "debounce"])
def test_a_job_that_runs_is_never_changed(cursor, conflict):
    """A call that would is skipped, and says so."""
    job = make_leased_job(dedup_key=KEY, args=[1])

    assert Stored(job.pk, "skipped") == store(cursor, conflict=conflict, args="[2]")
    assert [1] == Job.objects.get().args


# Periods ------------------------------------------------------------------------------


def test_a_period_outlives_its_job(cursor):
    """Within it there is one job, though that has long ended."""
    first = store(cursor, period=MINUTE)
    claim_all(cursor)
    ack(cursor, worker="worker", ended=[Ended(first.id, 1)])

    assert Stored(first.id, "skipped") == store(cursor, period=MINUTE)
    DedupWindow.objects.update(until=first_moment())
    assert store(cursor, period=MINUTE).conflict is None


def first_moment():
    """Return a time that has passed."""
    from django.db.models.functions import Now

    return Now()


def test_a_throttle_lets_so_many_through(cursor):
    """None of them has a key; those who come too late are told of the last one."""
    told = [store(cursor, hold=None, period=MINUTE, jobs=2) for _ in range(4)]

    assert [None, None, "throttled", "throttled"] == [t.conflict for t in told]
    assert [told[1].id] * 2 == [t.id for t in told[2:]]
    assert [None, None] == list(Job.objects.values_list("dedup_key", flat=True))


def test_two_first_callers_of_a_period_make_one_job(
    cursor, other_cursor, new_cursor, in_thread
):
    """The second takes back what it has stored, and is told of the other's job."""
    with other_cursor.connection.transaction():
        first = store(other_cursor, hold=None, period=MINUTE)
        second = in_thread(store, cursor, hold=None, period=MINUTE)
        wait_until_blocked(new_cursor(), cursor)

    assert Stored(first.id, "throttled") == second.result(10)
    assert [first.id] == list(Job.objects.values_list("pk", flat=True))


def test_periods_that_are_over_are_purged(cursor):
    """The one that is still open stays."""
    for key in "ab":
        store(cursor, key, hold=None, period=MINUTE)
    ended = DedupWindow.objects.filter(key='tests.noop "a"')
    ended.update(until=first_moment())

    assert 1 == batch(cursor, DEDUP_WINDOWS, timedelta(0)).rows
    assert 'tests.noop "b"' == DedupWindow.objects.get().key


# Debounce -----------------------------------------------------------------------------


def debounced(delay):
    return Placement(
        queue="default",
        task="tests.noop",
        headers="{}",
        priority=0,
        max_attempts=5,
        delay=delay,
    )


def test_each_call_of_a_debounce_puts_the_job_off(cursor):
    """With the arguments of that call."""
    rule = {"conflict": "debounce", "placement": debounced(MINUTE)}
    first = store(cursor, args="[1]", **rule)
    Job.objects.update(run_after=first_moment(), visible_at=first_moment())

    assert Stored(first.id, "debounced") == store(cursor, args="[2]", **rule)
    job = Job.objects.get()
    assert ([2], []) == (job.args, claim_all(cursor))
    assert job.run_after == job.visible_at


def test_max_wait_is_counted_from_the_first_call(cursor):
    """Calls that never end cannot keep the job from running."""
    job = make_job(
        dedup_key=KEY,
        queued_key=KEY,
        enqueued_at=-timedelta(seconds=110),
        visible_at=timedelta(seconds=30),
    )

    store(
        cursor,
        conflict="debounce",
        placement=debounced(MINUTE),
        max_wait=timedelta(minutes=2),
    )

    latest = job.enqueued_at + timedelta(minutes=2)
    assert (latest, latest) == Job.objects.values_list("run_after", "visible_at").get()


# Many ---------------------------------------------------------------------------------


def store_many(cursor, values, *, conflict="skip", locks=False):
    """Store a job for each value; the value before the colon is its key."""
    keys = [value.partition(":")[0] for value in values]
    items = [Items(f'["{value}"]', 1) for value in values]
    dedup = Dedup(hold="queued", conflict=conflict, bys=[f'"{key}"' for key in keys])
    return store_unique_many(cursor, PLACEMENT, dedup, items, locks=locks)


def test_many_are_answered_in_the_callers_order(cursor):
    """Whatever the order of their keys, in which they are stored."""
    (held,) = store_many(cursor, ["c"])
    told = store_many(cursor, ["d", "c", "a", "b"])

    assert [None, "skipped", None, None] == [t.conflict for t in told]
    assert held.id == told[1].id
    args = dict(Job.objects.values_list("pk", "args"))
    assert [["d"], ["c"], ["a"], ["b"]] == [args[t.id] for t in told]
    assert told[2].id < told[3].id < told[0].id


@pytest.mark.parametrize(
    "conflict, said, kept",
    [("skip", "skipped", "k:1"), ("replace", "replaced", "k:3")],
)
def test_items_of_one_key_meet_in_their_order(cursor, conflict, said, kept):
    """The first is stored; the last wins where that is asked for."""
    told = store_many(cursor, ["k:1", "k:2", "k:3"], conflict=conflict)

    assert [None, said, said] == [t.conflict for t in told]
    assert [kept] == Job.objects.get().args


def test_two_bulks_of_the_same_keys_cannot_deadlock(new_cursor, in_thread):
    """Both take them in one order, whatever order they were given in."""
    keys = [f"{n:03}" for n in range(300)]
    together = threading.Barrier(4)

    def run(cursor, values):
        together.wait()
        return store_many(cursor, values)

    for turn in range(5):
        values = [f"{turn}-{key}" for key in keys]
        told = [
            in_thread(run, new_cursor(), order)
            for order in (values, values[::-1], values[1::2] + values[::2], values)
        ]
        created = [t for one in told for t in one.result(30) if t.conflict is None]
        assert len(keys) == len(created)


# SQL ----------------------------------------------------------------------------------


def test_sql_producers_get_the_holders_id(cursor):
    """pgqueue_enqueue() never fails for a key, and holds it until the job has ended."""
    enqueue = "SELECT pgqueue_enqueue('tests.noop', dedup_key => 'k')"
    first, second = (cursor.execute(enqueue).fetchone()[0] for _ in range(2))

    assert first == second
    assert (None, "k") == Job.objects.values_list("queued_key", "dedup_key").get()


def test_sql_and_python_agree_about_a_key(cursor):
    """A trigger that makes the key by the function meets the calls of the site."""
    cursor.execute(
        "SELECT pgqueue_enqueue('tests.noop',"
        " dedup_key => pgqueue_dedup_key('tests.noop', '\"k\"'))"
    )
    (job_id,) = cursor.fetchone()

    assert Stored(job_id, "skipped") == store(cursor)

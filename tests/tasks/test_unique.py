"""What a second call does, and what each call is told of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from django.db.models import Value

from django_pgqueue import (
    DeclarationError,
    DuplicateJob,
    TransactionAborted,
    Unique,
    signals,
    task,
)
from django_pgqueue.models import Job
from django_pgqueue.testing import drain
from tests.app.models import Order
from tests.app.tasks import add
from tests.harness.waiting import wait_until_blocked

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)

BY_LEFT = Unique(by="left")


def told(*results):
    """Return what callers were told."""
    return [result.conflict for result in results]


# Declaring ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"by": 7}, r"by=….* is 7; it must be the name"),
        ({"while_": "running"}, r"while_='running'.*must be one of 'queued'"),
        ({"conflict": "replcae"}, r"Did you mean 'replace'"),
        ({"period": 0}, r"longer than zero"),
        (
            {"conflict": "replace", "while_": "queued|running"},
            r"a job that runs has read its arguments. Say while_='queued'",
        ),
        ({"conflict": "reschedule", "period": "1h"}, r"within the period"),
    ],
)
def test_what_unique_cannot_be(options, message):
    """Refused where it is written, with the way out."""
    with pytest.raises(DeclarationError, match=message):
        Unique(**options)


# The key ------------------------------------------------------------------------------


def test_the_way_of_calling_is_no_part_of_the_key(declared):
    """By place or by name, a default said or left out."""

    @task(name="tests.defaults", unique=Unique())
    def defaults(left, right=2, *rest, note="x", **more):
        pass

    first = defaults.delay(1)
    for again in (
        defaults.delay(1, 2),
        defaults.delay(left=1),
        defaults.delay(1, note="x"),
        *defaults.bulk([[1, 2], {"left": 1, "note": "x"}]),
    ):
        assert (first.id, "skipped") == (again.id, again.conflict)
    others = [defaults.delay(1, 3), defaults.delay(1, 2, 3), defaults.delay(1, more=1)]
    assert [None] * 3 == told(*others)


def test_a_model_instance_makes_the_key_of_its_row(declared):
    """That is how it is stored: another row is another key."""

    @task(name="tests.takes_order", unique=Unique(by="order"))
    def takes_order(order):
        pass

    first, other = (Order.objects.create(name="a") for _ in range(2))
    again = Order.objects.get(pk=first.pk)

    calls = [takes_order.delay(order) for order in (first, again, other)]
    assert [None, "skipped", None] == told(*calls)


@pytest.mark.parametrize("by", [None, "password"])
def test_arguments_that_may_be_secret_are_in_no_key(declared, by):
    """All of them, or one that PGQUEUE['REDACT'] names: whoever sees keys sees none."""

    @task(name="tests.logs_in", unique=Unique(by=by))
    def logs_in(password):
        pass

    assert [None, "skipped"] == told(logs_in.delay("hunter2"), logs_in.delay("hunter2"))
    assert "hunter2" not in Job.objects.get().dedup_key


# What callers are told ----------------------------------------------------------------


@pytest.mark.parametrize(
    "conflict, said",
    [("skip", "skipped"), ("replace", "replaced"), ("reschedule", "rescheduled")],
)
def test_every_way_of_calling_says_the_same(conflict, said):
    """One call, many, from async code, after a commit and of a query's rows."""
    Order.objects.create(name="a")
    rule = add.using(unique=Unique(by="left", conflict=conflict), run_after="1h")
    first = rule.delay(1, 1)
    by_query = rule.from_queryset(
        Order.objects.annotate(one=Value(1)), left="one", right=Value(5)
    )

    results = [
        rule.delay(1, 2),
        rule.enqueue(1, 3),
        *rule.bulk([[1, 4], {"left": 1, "right": 5}]),
    ]

    assert 0 == by_query
    assert {(first.id, False, said)} == {(r.id, r.created, r.conflict) for r in results}
    job = Job.objects.get()
    arguments = job.kwargs or dict(zip(("left", "right"), job.args, strict=True))
    assert {"left": 1, "right": 5 if conflict == "replace" else 1} == arguments


def test_error_names_the_existing_job():
    """Nothing is stored, and the caller's transaction can be used."""
    rule = add.using(unique=Unique(by="left", conflict="error"))
    first = rule.delay(1, 1)

    for call in (
        lambda: rule.delay(1, 2),
        lambda: rule.bulk([[3, 1], [1, 2]]),
        lambda: rule.from_queryset(
            Order.objects.annotate(one=Value(1)), left="one", right=Value(1)
        ),
    ):
        Order.objects.create(name="a")
        with pytest.raises(DuplicateJob, match=f"job {first.id} has the same") as error:
            call()
        assert first.id == error.value.job_id
    assert [first.id] == list(Job.objects.values_list("pk", flat=True))


def test_receivers_hear_of_jobs_that_were_stored():
    """And not of calls that another job stands for."""
    heard = []

    def receiver(job_id, **fields):
        heard.append(job_id)

    signals.job_enqueued.connect(receiver)
    try:
        rule = add.using(unique=Unique(by="left", conflict="replace"))
        first, *others = [*rule.bulk([[1, 1], [1, 2], [2, 1]]), rule.delay(1, 3)]
    finally:
        signals.job_enqueued.disconnect(receiver)

    assert [first.id, others[1].id] == heard


@committed
def test_a_skipped_call_in_a_transaction_wakes_workers_after_it(monkeypatch):
    """A claim has passed over the job meanwhile, and would find it by its poll."""
    from django_pgqueue.postgres import wake

    woken = []
    monkeypatch.setattr(wake, "_send", lambda _, queue, __: woken.append(queue))
    rule = add.using(unique=BY_LEFT)
    rule.delay(1, 1)
    with transaction.atomic():
        rule.delay(1, 2)
        assert ["default"] == woken
    assert ["default", "default"] == woken
    rule.delay(1, 3)
    assert ["default", "default"] == woken


# Without a worker ---------------------------------------------------------------------


def test_a_task_may_enqueue_itself(declared):
    """While it runs, the key of a waiting job is free; that of a running one is not."""
    said = {}

    def declare(name, **options):
        @task(name=f"tests.{name}", **options)
        def again(more=True):
            if more:
                said[name] = again.using(run_after="1h").delay(more=False).conflict

        return again

    declare("waits", unique=Unique(by=())).delay()
    declare("runs", unique=Unique(by=(), while_="queued|running")).delay()
    drain()

    assert {"waits": None, "runs": "skipped"} == said


# Deadlocks ----------------------------------------------------------------------------

# Of another transaction, which takes a key as delay() would.
TAKE = """
INSERT INTO pgqueue_job (task, dedup_key)
SELECT 'tests.app.tasks.add',
       pgqueue_dedup_key('tests.app.tasks.add', jsonb_build_object('left', %s::int))
"""


@pytest.fixture
def other(new_cursor):
    """A transaction that has key 2, and never looks for deadlocks."""
    other = new_cursor()
    other.execute("SET deadlock_timeout = '1min'")
    other.execute("BEGIN")
    other.execute(TAKE, [2])
    yield other
    with connection.cursor() as ours:
        ours.execute("RESET deadlock_timeout")


def look_after(timeout):
    """Let this test's own connection look for a deadlock after so long a wait."""
    with connection.cursor() as ours:
        ours.execute(f"SET deadlock_timeout = '{timeout}'")
        return connection.connection


@committed
def test_a_deadlock_in_a_transaction_is_one_documented_error(new_cursor, other):
    """The other one goes on; whoever runs his transaction again finds its jobs."""
    rule = add.using(unique=BY_LEFT)
    look_after("10ms")

    def deadlock(pool):
        with transaction.atomic():
            rule.delay(1, 0)
            pool.submit(other.execute, TAKE, [1])
            wait_until_blocked(new_cursor(), other)
            rule.delay(2, 0)

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(TransactionAborted, match=r"40P01.*run it again") as error,
    ):
        deadlock(pool)
    other.execute("COMMIT")

    assert "40P01" == error.value.sqlstate
    assert ["skipped", "skipped"] == told(rule.delay(1, 0), rule.delay(2, 0))


@committed
def test_a_deadlock_of_a_bulk_alone_is_run_again(new_cursor, other):
    """It had key 1 and met a transaction that took them in another order."""
    ours = look_after("1s")

    def cross():
        wait_until_blocked(new_cursor(), ours)
        other.execute(TAKE, [1])
        other.execute("COMMIT")

    with ThreadPoolExecutor(1) as pool:
        crossed = pool.submit(cross)
        results = add.using(unique=BY_LEFT).bulk([[1, 0], [2, 0], [3, 0]])
        crossed.result(10)

    assert ["skipped", "skipped", None] == told(*results)
    assert 3 == Job.objects.count()


@committed
def test_a_strict_transaction_is_told_to_run_again(other):
    """At REPEATABLE READ a call may not see who has its key."""
    rule = add.using(unique=BY_LEFT)

    def strictly():
        with transaction.atomic():
            with connection.cursor() as ours:
                ours.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                ours.execute("SELECT count(*) FROM pgqueue_job")
            other.execute("COMMIT")
            rule.delay(2, 0)

    with pytest.raises(TransactionAborted, match=r"40001.*isolation level") as error:
        strictly()
    assert "40001" == error.value.sqlstate
    assert "skipped" == rule.delay(2, 0).conflict

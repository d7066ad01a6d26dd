"""What a second call does, and what each call is told of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import Value

from django_pgqueue import (
    DeclarationError,
    DuplicateJob,
    InvalidOption,
    Snooze,
    TransactionAborted,
    Unique,
    WrongState,
    signals,
    task,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain, freeze
from tests.app.models import Order
from tests.app.tasks import add
from tests.harness.factories import make_dead_letter, make_job
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


@pytest.mark.parametrize(
    "options, message",
    [
        ({"unique": "order_id"}, r"it must be a Unique"),
        ({"unique": Unique(), "debounce": 3}, r"unique and debounce contradict"),
        ({"debounce": 3, "throttle": "1/h"}, r"debounce and throttle contradict"),
        ({"max_wait": 3}, r"max_wait needs debounce"),
        ({"debounce": "5m", "max_wait": "1m"}, r"max_wait='1m' is shorter"),
        ({"by": "left"}, r"by needs debounce or throttle"),
        ({"throttle": "often"}, r"'N/period', such as '1/h'"),
        ({"throttle": "0/h"}, r"1 to 1,000,000 jobs"),
        ({"debounce": 3, "by": "middle"}, r"add has no parameter of that name"),
        ({"unique": Unique(by="left.pk")}, r"names a parameter, not what is inside"),
        ({"unique": Unique(by="lef")}, r"Did you mean 'left'"),
    ],
)
def test_contradictions_are_refused_where_they_are_said(declared, options, message):
    """In a declaration and in a call alike."""
    with pytest.raises(InvalidOption, match=message):
        add.using(**options)
    with pytest.raises(DeclarationError, match=rf"(?s){message}"):
        task(name="tests.contradicts", **options)(add.function)


def test_the_call_wins_over_the_task(declared):
    """A rule takes the place of the declared one; False is none at all."""

    @task(name="tests.unique_by_default", unique=Unique(by="left"))
    def unique(left, right):
        pass

    assert [None, "skipped"] == told(unique.delay(1, 1), unique.delay(1, 2))
    by_both = unique.using(unique=Unique(by=["right", "left"]))
    assert [None, "skipped"] == told(by_both.delay(1, 3), by_both.delay(1, 3))
    no_rule = unique.using(unique=False)
    assert [None, None] == told(no_rule.delay(1, 1), no_rule.delay(1, 1))
    keyed = unique.using(key="k")
    assert [None, "skipped"] == told(keyed.delay(4, 4), keyed.delay(5, 5))


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


def test_a_query_makes_the_keys_that_calls_make():
    """Also where a parameter is left to its default, and where keys are hashed."""
    Order.objects.bulk_create([Order(name="a"), Order(name="b")])
    first = Order.objects.order_by("pk").first()
    for rule in (add.using(unique=Unique()), add.using(unique=Unique(by=["left"]))):
        one = rule.delay(first.pk, 1)
        created = rule.from_queryset(Order.objects.all(), left="pk", right=Value(1))
        assert (True, 1) == (one.created, created)
        Job.objects.all().delete()


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


# Debounce and throttle ----------------------------------------------------------------


def test_a_debounced_job_runs_after_the_last_call():
    """With its arguments, once; calls that never end put it off for max_wait."""
    with freeze() as clock:
        began = clock.now
        rule = add.using(debounce="30s", max_wait="70s", key="k")
        results = []
        for seconds in range(4):
            results.append(rule.delay(0, seconds))
            assert 0 == drain()
            clock.advance("20s")
        # Due after 70 s, though the last call was 20 s ago.
        assert began + timedelta(seconds=70) == Job.objects.get().visible_at
        drain()

        assert [None, "debounced", "debounced", "debounced"] == told(*results)
        assert [0, 3] == ArchivedJob.objects.get().args
        assert rule.delay(0, 9).created


def test_a_throttle_counts_from_the_first_job_of_a_period():
    """What it lets through runs as ever; the period begins anew after its end."""
    with freeze() as clock:
        rule = add.using(throttle="2/h", by="left")
        results = rule.bulk([[1, 1], [1, 2], [1, 3], [2, 1]])
        assert 3 == drain()
        clock.advance("59m")
        late = rule.delay(1, 4)
        clock.advance("2m")

        assert [None, None, "throttled", None] == told(*results)
        assert (results[1].id, "throttled") == (late.id, late.conflict)
        assert rule.delay(1, 5).created


# Without a worker ---------------------------------------------------------------------


def test_a_drained_retry_that_meets_a_twin_is_cancelled(declared):
    """As by a worker, and its receivers hear that it was."""

    @task(name="tests.enqueues_a_twin", unique=Unique(by=()), retries=3)
    def enqueues_a_twin(first=False):
        if first:
            enqueues_a_twin.using(run_after="1h").delay()
            raise Snooze("5s")

    heard = []

    def receiver(job, **fields):
        heard.append(job.id)

    signals.job_cancelled.connect(receiver)
    job = enqueues_a_twin.delay(first=True)
    ran = drain()
    signals.job_cancelled.disconnect(receiver)

    assert {"cancelled": 1} == ran.statuses
    assert ("cancelled", [job.id]) == (job.status, heard)
    assert Job.objects.get().pk == job.errors[-1]["holder"]


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


# Redrive ------------------------------------------------------------------------------


def test_a_redrive_takes_the_key_again():
    """So the job keeps others out, as it did before."""
    dead = make_dead_letter(task=add.name, queued_key="k", args=[1, 2])
    held = make_dead_letter(task=add.name, dedup_key="h", args=[1, 2])

    assert [dead.pk, held.pk] == sorted(operate.redrive([dead.pk, held.pk]))
    assert {(dead.pk, "k", "k"), (held.pk, "h", None)} == set(
        Job.objects.values_list("pk", "dedup_key", "queued_key")
    )


def test_a_redrive_that_meets_a_live_job_says_so():
    """The dead letter stays, whoever asks, and the job is named."""
    dead = make_dead_letter(queued_key="k")
    job = make_job(dedup_key="k")

    assert [] == operate.redrive([dead.pk])
    assert {dead.pk: job.pk} == operate.key_holders([dead.pk, job.pk])
    result = add.delay(1, 2)
    result.id = dead.pk
    with pytest.raises(WrongState, match=f"is dead: job {job.pk} has its dedup key"):
        result.retry()
    assert dead.pk == DeadLetter.objects.get().pk


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

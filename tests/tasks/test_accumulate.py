"""Accumulate: what is declared, what is refused, and what a call becomes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    Accumulate,
    Cancel,
    DeclarationError,
    InvalidArgument,
    PayloadTooLarge,
    Reject,
    RetryLater,
    Snooze,
    UndecodablePayload,
    signals,
    task,
)
from django_pgqueue.conf import get_settings
from django_pgqueue.models import Job
from django_pgqueue.tasks.gathered import share
from django_pgqueue.tasks.outcome import (
    Cancelled,
    GaveUp,
    Performed,
    Retried,
    outcome_after,
)
from django_pgqueue.testing import drain, immediate
from tests.app.accumulate_tasks import by_size, makes_orders
from tests.app.models import Order
from tests.app.tasks import noop
from tests.tasks.test_outcome import claimed

db = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def takes(calls):
    """Be a function that takes calls."""


# What is declared --------------------------------------------------------------------


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    "said, why",
    [
        (
            {"atomic": True},
            "accumulate and atomic=True contradict each other",
        ),
        (
            {"ack_policy": "first"},
            "accumulate and ack_policy='first' contradict",
        ),
        ({"ack_policy": "first", "atomic": True}, "contradict each other"),
        ({"accumulate": 500}, r"accumulate=500: it must be an Accumulate\(size=…"),
        ({"accumulate": Accumulate}, "it must be an Accumulate"),
    ],
    ids=str,
)
def test_options_that_no_run_of_many_can_have_are_refused(said, why):
    """One by one its calls are neither acked first nor within a transaction."""
    with pytest.raises(DeclarationError, match=why):
        task(**{"accumulate": Accumulate(), "name": "x", **said})(takes)


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    "function, takes_context, fits",
    [
        (lambda calls: None, False, True),
        (lambda calls=(): None, False, True),
        (lambda *calls: None, False, True),
        (lambda ctx, calls: None, True, True),
        (lambda: None, False, False),
        (lambda calls, more: None, False, False),
        (lambda calls, more=1: None, False, False),
        (lambda *, calls: None, False, False),
        (lambda ctx: None, True, False),
        (lambda ctx, calls, more: None, True, False),
    ],
)
def test_a_task_of_many_calls_takes_one_list(function, takes_context, fits):
    """After its context, if it takes one."""

    def declare():
        task(name="x", takes_context=takes_context, accumulate=Accumulate())(function)

    if fits:
        declare()
        return
    with pytest.raises(DeclarationError, match="must take one positional parameter"):
        declare()


# What a call becomes -----------------------------------------------------------------


def rows(*columns):
    return list(Job.objects.order_by("pk").values_list(*columns))


@db
def test_each_call_is_a_job_in_one_query():
    """With any arguments that can travel, and the key of the call or of its task."""
    with CaptureQueriesContext(connection) as queries:
        by_size.delay(1, a=2)
    by_size.using(key=7, queue="q", priority=3, tags=["t"]).delay()
    by_size.using(key="x").enqueue(1, b=2)

    assert 1 == len(queries)
    assert [
        ("", "default", 0, [1], {"a": 2}),
        ("7", "q", 3, [], {}),
        ("x", "default", 0, [1], {"b": 2}),
    ] == rows("accumulate_key", "queue", "priority", "args", "kwargs")
    assert 3 == Job.objects.scheduled().count()


@db
def test_a_bulk_stores_calls_in_its_order():
    """Dicts, lists and tuples; a wrong item is named, and nothing is stored."""
    signals_seen = []

    def note(sender, job_id, **kwargs):
        signals_seen.append(job_id)

    signals.job_enqueued.connect(note)
    try:
        results = by_size.bulk([[1], (2,), {"a": 3}])
        results += by_size.using(key="k").bulk([{"a": n} for n in range(3)])
    finally:
        signals.job_enqueued.disconnect(note)

    stored = rows("pk", "args", "kwargs", "accumulate_key")
    assert [result.id for result in results] == [row[0] for row in stored]
    assert [row[0] for row in stored] == signals_seen
    assert [
        ([1], {}, ""),
        ([2], {}, ""),
        ([], {"a": 3}, ""),
        *(([], {"a": n}, "k") for n in range(3)),
    ] == [row[1:] for row in stored]
    for wrong in ([[1], 2], [{1: 2}], [{"a": object()}]):
        with pytest.raises(InvalidArgument, match=r"item \d"):
            by_size.bulk(wrong)
    with pytest.raises(PayloadTooLarge, match="item 0"):
        by_size.bulk([["x" * 2_000_000]])
    assert 6 == Job.objects.count()


@db
def test_rows_of_a_queryset_become_calls():
    """Its fields are their keyword arguments; as many as make up the size are due."""
    Order.objects.bulk_create([Order(name=f"o{n}") for n in range(12)])
    orders = Order.objects.order_by("pk")

    assert 12 == by_size.using(key="q").from_queryset(orders, name="name")

    assert [({"name": f"o{n}"}, "q") for n in range(12)] == rows(
        "kwargs", "accumulate_key"
    )
    due = Job.objects.due().order_by("pk").values_list("kwargs__name", flat=True)
    assert ["o9", "o10", "o11"] == list(due)


# What a run means for its calls ------------------------------------------------------


def run_of(error, *jobs, options=None):
    """Return what becomes of jobs whose run raised *error*."""
    options = options or noop.resolve("default", get_settings())
    outcome = outcome_after(jobs[0], options, error)
    return share(Performed(outcome, error, 0.1), list(jobs), options)


def test_what_failed_together_comes_back_together():
    """One draw of the jitter for all; each by its own attempts."""
    jobs = [claimed(id=n, max_attempts=5) for n in range(20)]
    last = claimed(id=99, attempt=5, max_attempts=5)
    later = claimed(id=98, attempt=2, max_attempts=5)

    ends = run_of(ValueError("x"), *jobs, last, later)

    delays = {end.outcome.delay for end in ends[:20]}
    assert 1 == len(delays)
    assert GaveUp("exhausted") == ends[20].outcome
    # Each rounded to a microsecond.
    rounding = timedelta(microseconds=2)
    assert abs(2 * delays.pop() - ends[21].outcome.delay) <= rounding
    assert 1 == len({id(end.words[1]) for end in ends})


@pytest.mark.parametrize(
    "error, outcome",
    [
        (Reject("no"), GaveUp("rejected")),
        (Cancel(), Cancelled()),
        (Snooze("1m"), Retried(MINUTE, gives_attempt_back=True, is_failure=False)),
        (RetryLater("1m"), Retried(MINUTE)),
    ],
    ids=repr,
)
def test_what_a_run_raises_holds_for_each_of_its_calls(error, outcome):
    """As for one job."""
    ends = run_of(error, claimed(id=1), claimed(id=2))

    assert [outcome] * 2 == [end.outcome for end in ends]


# Without a worker --------------------------------------------------------------------


@db
def test_drain_settles_each_call_of_a_run():
    """A failure is each one's; what cannot be read is a dead letter of its own."""
    results = makes_orders.bulk([["a"], ["b"], []])
    Job.objects.filter(pk=results[1].id).update(
        args=[{"__pgqueue__": "nothing", "value": 1}]
    )

    drained = drain()

    # The third has no first argument, so the run of both fails.
    assert {
        results[0].id: "retrying",
        results[1].id: "dead",
        results[2].id: "retrying",
    } == {run.id: run.status for run in drained.runs}
    assert {IndexError} == {type(e) for e in drained.errors if e is not None} - {
        UndecodablePayload
    }


@db
def test_immediate_mode_runs_a_call_at_once_and_a_bulk_together():
    """Nobody would come when the time is over."""
    with immediate():
        makes_orders.delay("a")
        makes_orders.bulk([["b"], ["c"], ["d"], ["e"]])

    names = Order.objects.order_by("pk").values_list("name", flat=True)
    assert ["a", "b,c,d", "e"] == list(names)

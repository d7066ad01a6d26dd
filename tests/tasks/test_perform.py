"""Perform: run one claimed job; whatever goes wrong is an outcome of this one job."""

from __future__ import annotations

import itertools
import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from django_pgqueue import Reject, Retry, TaskTimeout, UndecodablePayload, task
from django_pgqueue.conf import parse
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.context import Inline
from django_pgqueue.tasks.outcome import (
    Cancelled,
    Expired,
    GaveUp,
    Performed,
    Retried,
    Succeeded,
)
from django_pgqueue.tasks.perform import perform, timed_out
from django_pgqueue.tasks.prepare import Prepared, prepare, refuse
from django_pgqueue.tasks.raised import Snooze
from django_pgqueue.tasks.settlement import ended, error_entry
from tests.app import tasks as sample
from tests.app.models import Order

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SETTINGS = parse({})


def claimed(task_name="tests.app.tasks.noop", **fields):
    """Return a claimed job as a plain value."""
    return Claimed(
        **{
            "id": 7,
            "delivery": 1,
            "task": task_name,
            "args": "[]",
            "kwargs": "{}",
            "headers": "{}",
            "queue": "default",
            "priority": 0,
            "attempt": 1,
            "max_attempts": 5,
            "crashes": 0,
            "runs_alone": False,
            "last_error": None,
            "enqueued_at": NOW,
            "accumulate_key": None,
            "lane": None,
            "lane_policy": None,
            "is_paced": False,
            "expired": None,
            "claimed_at": NOW,
            "due_at": NOW,
            **fields,
        }
    )


def run(job, settings=SETTINGS):
    clock = itertools.count().__next__
    prepared = prepare(job, settings)
    if isinstance(prepared, Performed):
        return prepared
    return perform(job, prepared, settings, installation="uuid", clock=clock)


@pytest.fixture
def performed(declared):
    """A function that runs *function* as a task and returns what came of it."""

    def performed(function, settings=SETTINGS, *, attempt=1, **options):
        task(name="of.test", **options)(function)
        return run(claimed("of.test", attempt=attempt), settings)

    return performed


# Before the attempt ------------------------------------------------------------------


def test_a_job_that_may_run_is_not_refused():
    """None: run it."""
    assert refuse(claimed(), SETTINGS) is None


@pytest.mark.parametrize(
    "fields, outcome",
    [
        ({"expired": True}, Expired()),
        ({"attempt": 6, "delivery": 6}, GaveUp("exhausted")),
        ({"crashes": 3, "last_error": "worker_lost"}, GaveUp("worker_lost")),
        ({"cancel_requested": True}, Cancelled()),
        ({"delivery": 101}, GaveUp("exhausted")),
    ],
)
def test_the_policy_is_asked_with_the_settings(fields, outcome):
    """CRASHES_MAX is 3, DELIVERIES_MAX 100."""
    job = claimed(**fields)

    assert outcome == refuse(job, SETTINGS).outcome
    assert refuse(job, SETTINGS).ran_seconds is None


@pytest.mark.parametrize(
    "headers, refused",
    [
        ({"pgqueue.deliveries_before": 100}, False),
        ({"pgqueue.deliveries_before": 101}, True),
        ({"pgqueue.deliveries_before": -5}, True),
        ({"pgqueue.deliveries_before": "many"}, True),
        ({"x": "pgqueue.deliveries_before"}, True),
    ],
)
def test_deliveries_count_anew_after_a_redrive(headers, refused):
    """A header that makes no sense counts nothing."""
    job = claimed(delivery=101, headers=json.dumps(headers))

    assert refused is (refuse(job, SETTINGS) is not None)


def test_a_job_is_prepared_from_its_row():
    """Task, options, arguments, headers."""
    prepared = prepare(
        claimed(
            args='[1, {"__pgqueue__": "timedelta", "value": [0, 5, 0]}]',
            kwargs='{"a": [2]}',
            headers='{"trace": "t"}',
        ),
        SETTINGS,
    )

    assert isinstance(prepared, Prepared)
    assert sample.noop is prepared.task
    assert ([1, timedelta(seconds=5)], {"a": [2]}, {"trace": "t"}) == (
        prepared.args,
        prepared.kwargs,
        prepared.headers,
    )


@pytest.mark.parametrize(
    "column", [{"args": "[1" + "0" * 5_000 + "]"}, {"kwargs": "[]"}, {"headers": "["}]
)
def test_a_row_that_cannot_be_read_is_a_dead_letter(column):
    """Its neighbours run."""
    performed = prepare(claimed(**column), SETTINGS)

    assert GaveUp("undecodable") == performed.outcome
    assert isinstance(performed.error, UndecodablePayload)
    assert performed.ran_seconds is None


def stored_order(pk, db="default"):
    return json.dumps(
        [{"__pgqueue__": "model", "value": "testapp.order", "pk": pk, "db": db}]
    )


@pytest.mark.django_db
def test_a_job_whose_model_instance_is_gone_is_rejected():
    """It can never run."""
    performed = prepare(claimed(args=stored_order(5)), SETTINGS)

    assert GaveUp("rejected") == performed.outcome
    assert isinstance(performed.error, Reject)


@pytest.mark.parametrize("attempt, outcome", [(1, Retried), (4, Retried), (5, GaveUp)])
def test_a_database_that_cannot_be_asked_is_a_failed_attempt(attempt, outcome):
    """It may be back for the next one; the last one is the last. No django_db here."""
    job = claimed(args=stored_order(5), attempt=attempt)
    performed = prepare(job, SETTINGS)

    assert outcome is type(performed.outcome)
    assert "Database access not allowed" in str(performed.error)


@pytest.mark.parametrize(
    "headers, expected",
    [
        ("{}", Retried),
        (json.dumps({"pgqueue.unknown_since": NOW.isoformat()}), Retried),
        (
            json.dumps(
                {"pgqueue.unknown_since": (NOW - timedelta(hours=2)).isoformat()}
            ),
            GaveUp,
        ),
        (json.dumps({"pgqueue.unknown_since": "soon"}), Retried),
        (json.dumps({"pgqueue.unknown_since": 5}), Retried),
        (json.dumps({"pgqueue.unknown_since": "2026-11-20T10:00:00"}), Retried),
        ("[", Retried),
    ],
)
def test_a_job_of_an_unknown_task_is_held_and_then_given_up(headers, expected):
    """A deploy may be under way; a mark that makes no sense starts the wait anew."""
    performed = prepare(claimed("no.such.task", headers=headers), SETTINGS)

    assert expected is type(performed.outcome)
    if expected is Retried:
        assert performed.outcome.unknown_task
        assert performed.outcome.gives_attempt_back


# The attempt -------------------------------------------------------------------------


def test_a_task_that_returns_has_succeeded():
    """With the time it took, by the clock that was given."""
    performed = run(claimed("tests.app.tasks.add", args="[1, 2]"))

    assert (Succeeded(), None, 1, "3", None) == (
        performed.outcome,
        performed.error,
        performed.ran_seconds,
        performed.result,
        performed.note,
    )


def test_none_is_no_result(performed):
    """Nothing is stored for it."""
    assert performed(lambda: None).result is None
    assert "false" == performed(lambda: False).result
    assert '""' == performed(lambda: "").result


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseExceptionGroup("many", [ValueError()]),
        RecursionError(),
        MemoryError(),
    ],
    ids=repr,
)
def test_nothing_that_a_task_raises_ends_its_worker(performed, error):
    """Each is a failed attempt."""

    def function():
        raise error

    result = performed(function)

    assert Retried is type(result.outcome)
    assert error is result.error
    assert result.ran_seconds is not None


def test_a_back_off_function_that_raises_does_not_cost_the_job(performed):
    """It is tried again a minute later."""

    def function():
        raise ValueError

    def backoff(attempt, error):
        raise ZeroDivisionError

    result = performed(function, retries=Retry(backoff=backoff))

    assert Retried(timedelta(minutes=1)) == result.outcome
    assert isinstance(result.error, ValueError)


def test_a_bare_timeout_says_what_the_limit_was(performed):
    """It is raised from outside, as a class."""

    def function():
        raise TaskTimeout

    result = performed(function, timeout=2, attempt=5)

    assert GaveUp("timeout") == result.outcome
    assert "of.test ran longer than its timeout of 2 s." == str(result.error)


def test_a_timeout_that_came_late_is_a_failed_attempt():
    """The task was done and its worker was not."""
    job = claimed("tests.app.tasks.with_options", attempt=3, max_attempts=3)

    result = timed_out(job, SETTINGS, TaskTimeout("late"), 1.5)

    assert (GaveUp("timeout"), 1.5) == (result.outcome, result.ran_seconds)


def test_a_result_that_cannot_be_stored_costs_the_result_alone():
    """The job has succeeded; a note says why there is none."""
    performed = run(claimed("tests.app.tasks.returns_unserializable"))

    assert Succeeded() == performed.outcome
    assert performed.result is None
    note = json.loads(performed.note)
    assert "result" == note["kind"]
    assert "not stored: value is a builtins.object" in note["message"]


@pytest.mark.parametrize("limit, is_stored", [(6, True), (5, False)])
def test_the_limit_of_a_result_counts_bytes(performed, limit, is_stored):
    """An emoji has four, and the quotes are two more."""
    result = performed(lambda: "😀", parse({"RESULT_BYTES_MAX": limit}))

    assert is_stored is (result.result is not None)
    assert is_stored is (result.note is None)
    assert Succeeded() == result.outcome


# What is written ---------------------------------------------------------------------


def failed(function, **fields):
    """Return (job, performed) of a task that fails."""
    job = claimed(**fields)
    try:
        function()
    except BaseException as error:
        return job, Performed(Retried(timedelta(seconds=5)), error, 0.5)
    raise AssertionError


def raises_value_error():
    raise ValueError("out of luck")


def test_an_error_entry_tells_what_when_and_where():
    """Dated by the database's clock: the claim plus what passed since."""
    job, performed = failed(raises_value_error, attempt=2, delivery=4)

    entry = json.loads(error_entry(job, performed, worker="w", waited=90.0))

    trace = entry.pop("traceback")
    assert {
        "kind": "error",
        "type": "builtins.ValueError",
        "message": "out of luck",
        "attempt": 2,
        "delivery": 4,
        "worker": "w",
        "at": "2026-11-20T12:01:30+00:00",
        "ran_seconds": 0.5,
    } == entry
    assert 'raise ValueError("out of luck")' in trace


def test_a_traceback_begins_with_the_task():
    """Our own frames say nothing about it."""
    performed = run(claimed("tests.app.tasks.fails"))

    entry = json.loads(error_entry(claimed(), performed, worker="w", waited=0))

    assert "in fails" in entry["traceback"]
    assert "perform.py" not in entry["traceback"]
    assert "task.py" not in entry["traceback"].replace("tasks.py", "")


class Terrible(Exception):
    """An error that cannot even be shown."""

    def __str__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error, message",
    [
        (Terrible(), "(its __str__ raised ZeroDivisionError)"),
        (ValueError("a\x00b"), "a\\x00b"),
        (ValueError("\ud800"), "\\ud800"),
        (ValueError("😀"), "😀"),
    ],
    ids=["terrible", "nul", "surrogate", "emoji"],
)
def test_an_error_that_the_database_would_refuse_is_escaped(error, message):
    """What PostgreSQL cannot store must not keep the job unsettled."""

    def function():
        raise error

    entry = error_entry(*failed(function), worker="w", waited=0)

    assert message == json.loads(entry)["message"]
    assert "\\u0000" not in entry
    entry.encode()


def test_long_errors_keep_their_beginning_and_their_end():
    """And say how much is left out."""

    def function():
        raise ValueError("<" + "x" * 100_000 + ">")

    entry = json.loads(error_entry(*failed(function), worker="w", waited=0))

    message, trace = entry["message"], entry["traceback"]
    assert message.startswith("<x")
    assert message.endswith("x>")
    assert "… 97,954 characters …" in message
    assert 2_048 <= len(message) < 2_100
    assert trace.startswith("Traceback")
    assert 16_384 <= len(trace) < 16_500


def test_an_endless_recursion_leaves_a_short_entry():
    """Its traceback would be a thousand frames."""

    def function():
        function()

    entry = error_entry(*failed(function), worker="w", waited=0)

    assert "RecursionError" in json.loads(entry)["type"]
    assert len(entry) < 20_000 + sys.getrecursionlimit()


@pytest.mark.parametrize(
    "performed, expected",
    [
        (Performed(Succeeded(), None, 1.0, "3"), {"result": "3", "ran_seconds": 1.0}),
        (Performed(Succeeded(), None, 1.0, note="{}"), {"error": "{}"}),
        (Performed(Expired()), {"ran_seconds": None, "reason": None}),
        (Performed(GaveUp("rejected")), {"reason": "rejected", "error": None}),
        (
            Performed(Retried(timedelta(seconds=5))),
            {"delay_seconds": 5.0, "gives_attempt_back": False},
        ),
        (
            Performed(
                Retried(timedelta(0), gives_attempt_back=True, is_failure=False),
                Snooze(seconds=0),
            ),
            {"error": None, "gives_attempt_back": True, "delay_seconds": 0.0},
        ),
        (
            Performed(Retried(timedelta(0), unknown_task=True)),
            {"unknown_task": True},
        ),
    ],
)
def test_a_settle_writes_what_the_outcome_says(performed, expected):
    """A snooze leaves no error behind."""
    row = ended(claimed(), performed, worker="w", waited=0)

    assert (7, 1) == (row.id, row.delivery)
    assert expected == {name: getattr(row, name) for name in expected}


def test_a_failure_leaves_its_error(declared):
    """With every retry and with the dead letter."""
    job, performed = failed(raises_value_error)
    for outcome in (performed.outcome, GaveUp("exhausted")):
        performed.outcome = outcome
        row = ended(job, performed, worker="w", waited=0)
        assert "out of luck" == json.loads(row.error)["message"]


@pytest.mark.django_db
def test_a_task_gets_the_row_that_it_was_given():
    """Fetched when the job is prepared."""
    order = Order.objects.create(name="x")

    prepared = prepare(claimed(args=stored_order(order.pk)), SETTINGS)

    assert [order] == prepared.args


# Policies, middleware, contexts ------------------------------------------------------


@pytest.fixture
def with_control(declared):
    """A function that runs *function* as a task; returns what came of it, and how."""

    def with_control(function, *, fields=None, is_cancelled=False, **options):
        declared.pop("of.test", None)
        task(name="of.test", takes_context=True, **options)(function)
        job = claimed("of.test", **(fields or {}))
        control = Inline()
        control.is_cancelled = is_cancelled
        prepared = prepare(job, SETTINGS)
        return perform(job, prepared, SETTINGS, installation="uuid", control=control)

    return with_control


def fail(context):
    raise ValueError("failed")


def test_first_is_acked_whatever_comes_of_it(with_control):
    """A failure is noted beside the ack."""
    performed = with_control(fail, ack_policy="first")

    assert Succeeded() == performed.outcome
    assert isinstance(performed.error, ValueError)
    row = ended(claimed(), performed, worker="w", waited=0.0)
    assert "failed" == json.loads(row.error)["message"]


@pytest.mark.parametrize(
    "speak, outcome, result",
    [
        (lambda context: context.ack(), Succeeded(), "5"),
        (lambda context: context.reject("no"), GaveUp("rejected"), None),
        (lambda context: context.retry(9), Retried(timedelta(seconds=9)), None),
    ],
)
def test_a_manual_task_says_what_follows(with_control, speak, outcome, result):
    """What it returns is kept where the job has succeeded."""

    def manual(context):
        speak(context)
        return 5

    performed = with_control(manual, ack_policy="manual")

    assert (outcome, result, None) == (
        performed.outcome,
        performed.result,
        performed.settled,
    )


def test_a_manual_task_that_says_nothing_has_failed(with_control):
    """It would be lost, or stay leased for ever, otherwise."""
    performed = with_control(lambda context: 5, ack_policy="manual")

    assert isinstance(performed.outcome, Retried)
    assert "of.test returned without a word" in str(performed.error)


def test_a_failure_after_the_word_does_not_change_it(with_control):
    """It is noted."""

    def manual(context):
        context.ack()
        raise ValueError("late")

    performed = with_control(manual, ack_policy="manual")

    assert Succeeded() == performed.outcome
    assert "late" == str(performed.error)


def test_a_failure_after_a_cancel_is_a_cancel(with_control):
    """The task did not look at its context; that is all the same."""
    performed = with_control(fail, is_cancelled=True)

    assert Cancelled() == performed.outcome
    assert isinstance(performed.error, ValueError)


def test_middleware_is_around_the_task_the_first_one_outermost(with_control):
    """It sees the context, and what it returns is the result."""
    seen = []

    def named(name):
        def middleware(context, call_next):
            seen.append((name, context.attempt))
            value = call_next()
            seen.append((name, value))
            return f"{name}({value})"

        return middleware

    performed = with_control(
        lambda context: "task", middleware=[named("outer"), named("inner")]
    )

    assert '"outer(inner(task))"' == performed.result
    assert [
        ("outer", 1),
        ("inner", 1),
        ("inner", "task"),
        ("outer", "inner(task)"),
    ] == seen


def test_middleware_can_keep_a_task_from_running_or_replace_its_failure(with_control):
    """It is part of the task, as far as anybody else can tell."""

    def refuse_all(context, call_next):
        raise Reject("not today")

    def swallow(context, call_next):
        try:
            return call_next()
        except ValueError:
            return "fixed"

    assert GaveUp("rejected") == with_control(fail, middleware=[refuse_all]).outcome
    assert '"fixed"' == with_control(fail, middleware=[swallow]).result


def test_a_context_has_tags_and_a_key_that_an_edit_changes(with_control):
    """Other arguments are another piece of work to those who are told the key."""
    seen = []

    def look(context):
        seen.append(context)

    headers = {"tags": ["a", "b"], "pgqueue.edits": 2}
    with_control(look, fields={"headers": json.dumps(headers)})

    (context,) = seen
    assert (("a", "b"), "uuid-7.2") == (context.tags, context.idempotency_key)


@pytest.mark.parametrize("tags", ["x", 5, {"a": 1}, None])
def test_tags_that_are_no_list_are_none(with_control, tags):
    """A row written by SQL may hold anything."""
    seen = []

    def look(context):
        seen.append(context)

    with_control(look, fields={"headers": json.dumps({"tags": tags})})

    assert () == seen[0].tags


def test_an_async_task_runs_where_there_is_no_loop(with_control):
    """As in testing.drain()."""

    async def coroutine(context):
        return context.attempt

    assert "1" == with_control(coroutine).result


def test_the_age_of_a_job_counts_against_max_age(with_control):
    """By the database's clock, from its enqueue."""
    enqueued_at = NOW - timedelta(hours=2)
    performed = with_control(
        fail, fields={"enqueued_at": enqueued_at}, retries=Retry(max_age="1h")
    )

    assert GaveUp("exhausted") == performed.outcome


# Atomic, inside of a test's transaction ----------------------------------------------


@pytest.mark.django_db
def test_an_atomic_task_that_fails_leaves_nothing(with_control):
    """As in a worker, although the test's own transaction goes on."""

    def write_and_fail(context):
        Order.objects.create(name="x")
        raise ValueError("failed")

    performed = with_control(write_and_fail, atomic=True)

    assert isinstance(performed.outcome, Retried)
    assert 0 == Order.objects.count()


@pytest.mark.django_db
def test_an_atomic_task_that_returns_is_left_to_be_acked(with_control):
    """Nobody has written its ack."""
    performed = with_control(
        lambda context: Order.objects.create(name="x").name, atomic=True
    )

    assert (Succeeded(), '"x"', None) == (
        performed.outcome,
        performed.result,
        performed.settled,
    )
    assert 1 == Order.objects.count()


@pytest.mark.django_db
def test_an_atomic_task_whose_transaction_is_marked_for_rollback_fails(with_control):
    """It returned, but nothing of it can stay."""

    def mark(context):
        transaction.set_rollback(True)

    performed = with_control(mark, atomic=True)

    assert isinstance(performed.outcome, Retried)
    assert "can only be rolled back" in str(performed.error)

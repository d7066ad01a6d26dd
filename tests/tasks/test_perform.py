"""Perform: run one claimed job; whatever goes wrong is an outcome of this one job."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from django.db import transaction

from django_pgqueue import Retry, UndecodablePayload, task
from django_pgqueue.conf import parse
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks import perform as module
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.outcome import (
    Expired,
    GaveUp,
    Performed,
    Retried,
    Succeeded,
)
from django_pgqueue.tasks.perform import perform
from django_pgqueue.tasks.prepare import prepare
from django_pgqueue.tasks.raised import Snooze
from django_pgqueue.tasks.settlement import ended, error_entry
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
    with patch.object(module, "time", SimpleNamespace(monotonic=clock)):
        return perform(job, prepared, settings, installation="uuid")


@pytest.fixture
def performed(declared):
    """A function that runs *function* as a task and returns what came of it."""

    def performed(function, settings=SETTINGS, *, attempt=1, **options):
        task(name="of.test", **options)(function)
        return run(claimed("of.test", attempt=attempt), settings)

    return performed


# Before the attempt ------------------------------------------------------------------


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
    """Fetched when it runs: a row that was deleted will not come back."""
    performed = prepare(claimed(args=stored_order(5)), SETTINGS)

    assert GaveUp("rejected") == performed.outcome
    assert "testapp.order with primary key 5 is gone" in str(performed.error)


@pytest.mark.parametrize("attempt, outcome", [(1, Retried), (4, Retried), (5, GaveUp)])
def test_a_database_that_cannot_be_asked_is_a_failed_attempt(attempt, outcome):
    """It may be back for the next one; the last one is the last. No django_db here."""
    job = claimed(args=stored_order(5), attempt=attempt)
    performed = prepare(job, SETTINGS)

    assert outcome is type(performed.outcome)
    assert "Database access not allowed" in str(performed.error)


# The attempt -------------------------------------------------------------------------


def test_a_task_that_returns_has_succeeded():
    """With the time it took, by the clock."""
    performed = run(claimed("tests.app.tasks.add", args="[1, 2]"))

    assert (Succeeded(), None, 1, "3", None) == (
        performed.outcome,
        performed.error,
        performed.ran_seconds,
        performed.result,
        performed.note,
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        BaseExceptionGroup("many", [ValueError()]),
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


def test_a_result_that_cannot_be_stored_costs_the_result_alone():
    """The job has succeeded; a note says why there is none."""
    performed = run(claimed("tests.app.tasks.returns_unserializable"))

    assert Succeeded() == performed.outcome
    assert performed.result is None
    note = json.loads(performed.note)
    assert "result" == note["kind"]
    assert "not stored: value is a builtins.object" in note["message"]


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


# Policies, middleware, contexts ------------------------------------------------------


@pytest.fixture
def with_control(declared):
    """A function that runs *function* as a task; returns what came of it, and how."""

    def with_control(function, *, fields=None, is_cancelled=False, **options):
        declared.pop("of.test", None)
        task(name="of.test", takes_context=True, **options)(function)
        job = claimed("of.test", **(fields or {}))
        kind = type("Control", (JobControl,), {"is_cancelled": is_cancelled})
        control = kind()
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

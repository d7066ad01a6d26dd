"""Signals and log lines: every event, at its level, and free when nobody asks."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from django_pgqueue import signals, telemetry
from django_pgqueue.log.retain import Loss
from django_pgqueue.log.retain_backfills import BackfillLoss
from tests.app.tasks import add, noop

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

JOB = SimpleNamespace(
    id=7,
    task="shop.send",
    queue="mail",
    headers="{}",
    attempt=2,
    max_attempts=5,
    delivery=3,
    claimed_at=NOW,
    due_at=NOW - timedelta(milliseconds=150),
)

TICK = SimpleNamespace(
    schedule="nightly",
    due_at=NOW,
    outcome="enqueued",
    job_id=7,
    message_id=None,
    missed=2,
)
LOSS = Loss("orders", "stats", "t", (0, 3), 12, True, 5, 17, NOW, NOW)
FULL = SimpleNamespace(pattern="orders.*", queue="mail", on_full="pause", depth_max=99)
MISSED = BackfillLoss(
    *("orders", "orders.*", "mail", "t", True, 12, False, 5, 17, NOW, NOW)
)

CLAIMED = SimpleNamespace(partition=3, fence=4, failures=0, lapsed_by="w/1")
PARTITION = {"topic": "clicks", "group": "stats", "partition": 3}


class Consumer(SimpleNamespace):
    """What telemetry reads of a @consume."""

    def __str__(self):
        return f"{self.topic}/{self.group}"


def group_of(task):
    return Consumer(task=task or add, queue="mail", topic="clicks", group="stats")


# Each event: how it is told, its signal, the fields of that, its level and its line.
EVENTS = {
    "started": (
        lambda sender: telemetry.started(sender, JOB),
        signals.job_started,
        {"job": JOB},
        logging.DEBUG,
        "started    job=7 task=shop.send attempt=2 waited=150ms",
    ),
    "succeeded": (
        lambda sender: telemetry.succeeded(sender, JOB, ran_seconds=0.25),
        signals.job_succeeded,
        {"job": JOB, "ran_seconds": 0.25, "result": None},
        logging.DEBUG,
        "succeeded  job=7 task=shop.send attempt=2 ran=250ms",
    ),
    "retried": (
        lambda sender: telemetry.retried(sender, JOB, error=None, delay_seconds=5.0),
        signals.job_retried,
        {"job": JOB, "error": None, "delay_seconds": 5.0},
        logging.INFO,
        "retry      job=7 task=shop.send attempt=2/5 next=+5.0s error=NoneType",
    ),
    "dead": (
        lambda sender: telemetry.dead(sender, JOB, reason="exhausted", error=None),
        signals.job_dead,
        {"job": JOB, "reason": "exhausted", "error": None},
        logging.ERROR,
        "dead       job=7 task=shop.send attempt=2/5 reason=exhausted error=-",
    ),
    "cancelled": (
        lambda sender: telemetry.cancelled(sender, JOB),
        signals.job_cancelled,
        {"job": JOB},
        logging.INFO,
        "cancelled  job=7 task=shop.send",
    ),
    "expired": (
        lambda sender: telemetry.expired(sender, JOB),
        signals.job_expired,
        {"job": JOB},
        logging.INFO,
        "expired    job=7 task=shop.send",
    ),
    "stale": (
        lambda sender: telemetry.stale(sender, JOB, kind="ack"),
        signals.settle_stale,
        {"job_id": 7, "delivery": 3, "kind": "ack"},
        logging.WARNING,
        (
            "stale      job=7 task=shop.send delivery=3 kind=ack: its lease was taken "
            "over, nothing was written"
        ),
    ),
    "lost": (
        lambda sender: telemetry.group_lost_messages(sender, LOSS),
        signals.group_lost_messages,
        {
            "topic": "orders",
            "group": "stats",
            "partitions": (0, 3),
            "messages": 12,
            "is_exact": True,
            "first_id": 5,
            "last_id": 17,
            "first_at": NOW,
            "last_at": NOW,
        },
        logging.ERROR,
        (
            "lost       group=orders/stats messages=12 ids=5..17 partitions=0,3: they "
            "are kept no longer; the group is halted"
        ),
    ),
    "missed": (
        lambda sender: telemetry.subscription_lost_messages(sender, MISSED),
        signals.subscription_lost_messages,
        {
            "topic": "orders",
            "pattern": "orders.*",
            "queue": "mail",
            "is_disabled": True,
            "messages": 12,
            "is_exact": False,
            "first_id": 5,
            "last_id": 17,
            "first_at": NOW,
            "last_at": NOW,
        },
        logging.ERROR,
        (
            "lost       subscription=orders.* → mail topic=orders messages=12+ "
            "ids=5..17: they are kept no longer, and its back-fill is "
            "disabled"
        ),
    ),
    "subscription full": (
        lambda sender: telemetry.subscription_full(sender, FULL, 100),
        signals.subscription_full,
        {
            "pattern": "orders.*",
            "queue": "mail",
            "on_full": "pause",
            "depth": 100,
            "depth_max": 99,
        },
        logging.WARNING,
        "full       subscription=orders.* → mail jobs=100 of 99, on_full=pause",
    ),
    "ticked": (
        lambda sender: telemetry.ticked(sender, TICK, late_seconds=1.5),
        signals.schedule_ticked,
        {
            "schedule": "nightly",
            "due_at": NOW,
            "outcome": "enqueued",
            "job_id": 7,
            "message_id": None,
            "missed": 2,
            "late_seconds": 1.5,
        },
        logging.INFO,
        (
            "ticked     schedule=nightly due=2026-11-20T12:00:00+00:00 "
            "outcome=enqueued job=7 late=1.5s missed=2"
        ),
    ),
    "consumed": (
        lambda sender: telemetry.consumed(
            group_of(sender), CLAIMED, count=500, ran_seconds=0.25
        ),
        signals.messages_consumed,
        {**PARTITION, "count": 500, "ran_seconds": 0.25},
        logging.DEBUG,
        "consumed   group=clicks/stats partition=3 messages=500 ran=250ms",
    ),
    "halted": (
        lambda sender: telemetry.halted(group_of(sender), CLAIMED, JOB, error=None),
        signals.group_halted,
        {**PARTITION, "message_id": 7, "error": None},
        logging.ERROR,
        (
            "halted     group=clicks/stats partition=3 message=7 error=-: nothing of "
            "the partition is read until somebody resumes it or seeks"
        ),
    ),
    "message dead": (
        lambda sender: telemetry.message_dead(
            group_of(sender), CLAIMED, JOB, dead=8, reason="exhausted", error=None
        ),
        signals.message_dead_lettered,
        {
            **PARTITION,
            "message_id": 7,
            "dead_letter": 8,
            "reason": "exhausted",
            "error": None,
        },
        logging.ERROR,
        (
            "dead       job=8 group=clicks/stats partition=3 message=7 "
            "reason=exhausted error=-"
        ),
    ),
}
each_event = pytest.mark.parametrize("name", EVENTS)


@contextmanager
def heard(signal, **connect):
    """What a receiver of *signal* hears."""
    calls = []

    def receiver(**fields):
        fields.pop("signal")
        calls.append(fields)

    signal.connect(receiver, **connect)
    try:
        yield calls
    finally:
        signal.disconnect(receiver, **connect)


@each_event
def test_an_event_sends_its_signal_and_writes_one_line(name, caplog):
    """With its fields, from the task that it is about; at the level of the event."""
    tell, signal, fields, level, line = EVENTS[name]
    caplog.set_level(logging.DEBUG, "django_pgqueue.worker")

    with heard(signal) as calls:
        tell(noop)

    assert [{"sender": noop, **fields}] == calls
    assert [("django_pgqueue.worker", level, line)] == caplog.record_tuples


def test_a_receiver_that_raises_is_logged_and_touches_nothing(caplog):
    """The others are called, and so is whoever told the event."""
    tell, signal, *_ = EVENTS["started"]

    def bad(**fields):
        raise ZeroDivisionError

    signal.connect(bad)
    try:
        with heard(signal) as calls:
            tell(noop)
    finally:
        signal.disconnect(bad)

    assert 1 == len(calls)
    (failure,) = [r for r in caplog.records if "receiver failed" in r.getMessage()]
    assert logging.ERROR == failure.levelno
    assert ZeroDivisionError is failure.exc_info[0]

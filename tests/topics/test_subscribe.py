"""subscribe(): what it declares, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue import (
    Accumulate,
    DeclarationError,
    Retry,
    TopicError,
    Unique,
    subscribe,
    task,
)
from django_pgqueue.tasks.task import Task
from django_pgqueue.topics.subscribe import declared
from django_pgqueue.topics.sync import wanted_subscriptions


def on_message(message):
    """Take a message."""


def test_a_function_becomes_a_task_with_a_row(settings):
    """What the task and the settings say of its jobs stands in the row."""
    settings.PGQUEUE = {"QUEUES": {"billing": {"priority": 7}}}
    made = subscribe(
        "orders.*",
        queue="billing",
        where={"country": "FR"},
        retries=5,
        start="earliest",
        tags=["x"],
        name="shop.on_order",
    )(on_message)

    assert isinstance(made, Task)
    assert made("called") is None
    (row,) = wanted_subscriptions()
    assert ("billing", "orders.*", "shop.on_order") == row[:3]
    assert ("orders", '{"country":"FR"}') == (row.topic, row.payload_filter)
    assert (7, 6) == (row.priority, row.max_attempts)
    assert ('{"tags": ["x"]}', "earliest", None) == (row.headers, row.start, row.ago)


def test_it_stands_above_a_task():
    """Which keeps its options; the subscription says those of its own jobs."""
    inner = task(
        name="shop.inner", queue="slow", retries=Retry(max_attempts=3), tags=["a"]
    )(on_message)
    assert inner is subscribe("orders", tags=["b"])(inner)

    (row,) = wanted_subscriptions()
    assert ("slow", 3, '{"tags": ["a", "b"]}') == (
        row.queue,
        row.max_attempts,
        row.headers,
    )


@pytest.mark.parametrize(
    "said, message",
    [
        ({"pattern": "orders.**"}, "is no pattern"),
        ({"pattern": 3}, "is no pattern"),
        ({"where": ["FR"]}, "it must be a dict"),
        ({"where": {"x": object()}}, "where: value.x is a builtins.object"),
        ({"where": {"x": "y" * 9_000}}, "the limit is 8,192"),
        ({"start": "yesterday"}, "'latest', 'earliest', a datetime, or a duration"),
        ({"start": None}, "'latest', 'earliest', a datetime, or a duration"),
        ({"start": datetime(9000, 1, 1, tzinfo=UTC)}, "it lies in the future"),
        ({"start": timedelta(days=-1)}, "it lies in the future"),
        ({"start": "999999999 weeks ago"}, "longer ago than a hundred years"),
    ],
)
def test_what_a_subscription_cannot_say(said, message):
    """It is refused where it is declared."""
    with pytest.raises(TopicError, match=message):
        subscribe(**{"pattern": "orders", **said})(on_message)
    assert [] == declared()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"unique": Unique()}, "every message makes a job"),
        ({"throttle": "1/s"}, "every message makes a job"),
        ({"accumulate": Accumulate(size=5)}, "gathers calls of delay"),
    ],
)
def test_a_task_whose_rule_would_not_hold_is_refused(options, message):
    """Jobs that are made in the database know nothing of it."""

    def handler(message):
        pass

    with pytest.raises(DeclarationError, match=message):
        subscribe("orders")(task(name="shop.ruled", **options)(handler))

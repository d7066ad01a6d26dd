"""Back-fills whose messages retention removes: told before, when it happens, after."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue import signals
from django_pgqueue.log.days import close_days
from django_pgqueue.models import Job, LogState, Subscription
from django_pgqueue.worker.chores.backlogs import Backfills
from django_pgqueue.worker.chores.log_retention import PAUSE_SECONDS, LogRetention
from tests.harness.factories import make_message, make_topic
from tests.log.rows import make_subscription

WEEK = timedelta(days=7)


@pytest.fixture
def link():
    """A connection as a leader's."""
    from django_pgqueue.postgres.connect import Link

    link = Link("default", name="test")
    yield link
    link.drop()


@pytest.fixture
def told():
    """What the signal told, as it is sent."""
    told = []

    def hear(sender, **fields):
        told.append(fields)

    signals.subscription_lost_messages.connect(hear)
    yield told
    signals.subscription_lost_messages.disconnect(hear)


@pytest.fixture
def days(log_days, transactional_db):
    """Days that are older than a week, and yesterday."""
    return [log_days(9), log_days(8), log_days(1)]


def subscribe(pattern="orders.*", **columns):
    """Make a subscription that waits for all that was published before."""
    LogState.objects.update_or_create(id=1, defaults={"epoch": 1})
    columns = {"start": "earliest", "backfill_position": 0, "since_epoch": 1, **columns}
    return make_subscription(pattern, **columns)


def disabled(**columns):
    return subscribe(**{"disabled_at": timedelta(0), "disabled_by": "ada", **columns})


def run_round(link):
    chore = LogRetention(WEEK)
    for _ in range(100):
        if chore(link) == PAUSE_SECONDS:
            return
    raise AssertionError("a round has no end")


def test_what_a_disabled_back_fill_has_not_had_is_told_once(
    cursor, link, days, told, caplog
):
    """With how many messages, which ids and of when; later ones have their jobs."""
    topic = make_topic()
    first, second = (make_message(topic, n, name="orders.paid") for n in (9, 8))
    make_message(topic, 8, name="orders.paid", epoch=1)
    kept = make_message(topic, 1, name="orders.paid")
    row = disabled()
    close_days(cursor)

    run_round(link)
    run_round(link)

    (fields,) = told
    assert (
        *("orders", "orders.*", "default", True, 2, True),
        *(first.pk, second.pk, first.published_at, second.published_at),
    ) == tuple(
        fields[name]
        for name in (
            *("topic", "pattern", "queue", "is_disabled", "messages", "is_exact"),
            *("first_id", "last_id", "first_at", "last_at"),
        )
    )
    (line,) = [each for each in caplog.messages if each.startswith("lost")]
    assert "subscription=orders.* → default topic=orders messages=2" in line
    row.refresh_from_db()
    assert row.lost["message"].startswith("2 messages of orders were removed before")

    Subscription.objects.update(disabled_at=None)
    backfills = Backfills()
    while backfills(link) == 0:
        pass
    assert [kept.pk] == list(Job.objects.values_list("message_id", flat=True))

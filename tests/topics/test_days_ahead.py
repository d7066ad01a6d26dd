"""Days that are missing are made apart: nobody waits for who needs them first."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import transaction

from django_pgqueue.log.days import drop_day
from django_pgqueue.log.publish import publish as store
from django_pgqueue.models import ArchivedJob, Message
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.day_tables import ARCHIVE, LOG
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.tasks import operate
from django_pgqueue.topics import write_after
from django_pgqueue.topics.publish import publish
from tests.harness.factories import make_job, make_leased_job

DAY = timedelta(days=1)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def today(log_days, archive_days, monkeypatch):
    """The day that it is; no publisher has looked for it yet."""
    monkeypatch.setattr(write_after, "_due_at", {})
    return log_days(0)


def put(cursor):
    return store(cursor, "clicks", [Items(json.dumps(["clicks", None, 1, {}]), 1)])


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_others_publish_beside_a_long_transaction_that_came_first(
    cursor, today, isolation
):
    """The day that it needed is there for everybody."""
    cursor.execute("SET lock_timeout = '1s'")
    drop_day(cursor, today)
    with transaction.atomic():
        transaction.get_connection().connection.execute(
            f"SET TRANSACTION ISOLATION LEVEL {isolation}"
        )
        publish("orders", 1)
        assert put(cursor).ids
    assert 2 == Message.objects.count()


def test_the_day_to_come_is_seen_to(cursor, today):
    """A publisher that runs on over midnight finds it."""
    drop_day(cursor, today + DAY)
    with transaction.atomic():
        publish("orders", 1)
        assert today + DAY in LOG.attached(cursor)


def test_others_settle_beside_a_transaction_that_has_cancelled(cursor, today):
    """Whose job needed a day of the archive that was missing."""
    waiting, running = make_job(), make_leased_job("a")
    cursor.execute("SET lock_timeout = '1s'")
    ARCHIVE.remove(cursor, today)
    with transaction.atomic():
        operate.cancel([waiting.pk])
        assert {running.pk} == ack(cursor, worker="a", ended=[Ended(running.pk, 1)])
    assert 2 == ArchivedJob.objects.count()

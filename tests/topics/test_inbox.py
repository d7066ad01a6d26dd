"""inbox(): a message from outside is processed once, with its effects."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Queue
from typing import Any

import pytest
from django.db import (
    IntegrityError,
    connection,
    connections,
    transaction,
)
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_pgqueue import inbox
from django_pgqueue.conf import parse
from django_pgqueue.models import InboxEntry, Topic
from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.chores import purger
from tests.harness.waiting import wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

OLD = "2026-01-01T00:00Z"


def take(external_id: object, *, fails: bool = False) -> bool:
    """Process a message as a webhook does: its effect is a row."""
    with transaction.atomic():
        is_new = inbox("stripe", external_id)
        if is_new:
            Topic.objects.create(name=f"effect-{external_id}")
        if fails:
            raise RuntimeError("after the effects")
    return is_new


def test_a_message_is_new_once():
    """One query; of another source it is another message; an int is its text."""
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        assert inbox("stripe", "evt_1")
        assert 1 == len(queries)
    with transaction.atomic():
        answers = [
            inbox("stripe", "evt_1"),
            inbox("paypal", "evt_1"),
            inbox("stripe", 7),
            inbox("stripe", "7"),
            inbox("stripe", uuid.UUID(int=7)),
            inbox("stripe", str(uuid.UUID(int=7))),
        ]
    assert [False, True, True, False, True, False] == answers


def test_what_rolls_back_is_new_again():
    """A message whose effects failed is processed when it comes again, and once."""
    with pytest.raises(RuntimeError, match="after the effects"):
        take(1, fails=True)
    assert [] == [*Topic.objects.all(), *InboxEntry.objects.all()]

    assert [True, False] == [take(1), take(1)]
    assert 1 == Topic.objects.count()


@pytest.mark.parametrize("commits", [True, False])
def test_a_second_one_waits_for_the_first(commits: bool):
    """It is told what has become of it: known after a commit, new after a rollback."""
    opened: Queue[Any] = Queue()

    def second() -> bool:
        try:
            connection.ensure_connection()
            opened.put(connection.connection)
            return take(1)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert inbox("stripe", 1)
            answer = pool.submit(second)
            with connection.cursor() as cursor:
                wait_until_blocked(cursor, opened.get(timeout=20))
            assert not answer.done()
            transaction.set_rollback(not commits)
        assert commits is not answer.result(20)


def test_of_many_at_once_one_is_new():
    """Eight deliver the same twenty, some fail on the way: each has effects once."""
    barrier = threading.Barrier(8)

    def deliver(number: int) -> list[bool]:
        answers = []
        try:
            barrier.wait(20)
            for external_id in range(20):
                fails = (external_id + number) % 3 == 0
                with suppress(RuntimeError):
                    answers.append(take(external_id, fails=fails))
            return answers
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = [one for some in pool.map(deliver, range(8)) for one in some]

    assert 20 == answers.count(True) == Topic.objects.count()
    assert 20 == InboxEntry.objects.count()


def test_without_a_transaction_it_is_refused(django_assert_num_queries: Any):
    """Else a crash after it would lose the message; so is one on another database."""
    refused = pytest.raises(
        TransactionManagementError, match=r"atomic\(using='default'"
    )
    with django_assert_num_queries(0), refused:
        inbox("stripe", 1)


def test_other_languages_have_the_same():
    """A function: true, and false when it comes again; and what rows cannot be."""
    with connection.cursor() as cursor:
        answers = []
        for _ in range(2):
            cursor.execute("SELECT pgqueue_inbox('stripe', 'evt_1')")
            answers += cursor.fetchone()
        assert [True, False] == answers
        for bad in ("'', 'x'", "'x', ''"):
            with pytest.raises(IntegrityError, match="pgqueue_inbox_named"):
                cursor.execute(f"SELECT pgqueue_inbox({bad})")


def test_retention_lets_old_ones_go():
    """A batch each time, the oldest first; then it would be taken for new."""
    for external_id in range(3):
        take(external_id)
    InboxEntry.objects.filter(external_id__in=["0", "1"]).update(received_at=OLD)
    settings = parse({"RETENTION": {"inbox": "30d"}})
    link = Link("default", name="tests: purge")
    try:
        for chore in purger.chores(settings):
            if getattr(chore, "what", "") == "entries of the inbox":
                chore(link)
    finally:
        link.drop()

    assert ["2"] == list(InboxEntry.objects.values_list("external_id", flat=True))
    kept = purger.chores(parse({"RETENTION": {"inbox": None}}))
    assert "entries of the inbox" not in {getattr(each, "what", "") for each in kept}

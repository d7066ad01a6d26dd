"""drain_group(): a consumer group in a test's own transaction."""

import pytest
from django.db import connection

from django_pgqueue import Reject, Retry, consume, publish, topic
from django_pgqueue.models import DeadLetter, Position
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.tasks import registry
from django_pgqueue.testing import drain, drain_group
from django_pgqueue.topics import consume as consuming
from tests.app.models import Effect

pytestmark = pytest.mark.django_db

SEEN = []


@pytest.fixture(autouse=True)
def _declarations(monkeypatch):
    """Nothing is declared but what the test declares."""
    monkeypatch.setattr(consuming, "_declared", {})
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))
    SEEN.clear()


def count(messages):
    """Note the batch; payloads say what to do."""
    SEEN.append([message.payload for message in messages])
    for message in messages:
        Effect.objects.create(job=message.id)
        if message.payload == "bad":
            raise ValueError("bad")
        if message.payload == "reject":
            raise Reject


@pytest.mark.parametrize("atomic", [True, False])
def test_a_group_gets_what_its_test_has_published(atomic):
    """In batches, once; nothing has to be committed for that."""
    handler = consume("clicks", group="g", batch=2, atomic=atomic)(count)
    topic("clicks").publish_many([1, 2, 3], key=lambda _: "k")

    assert (3, [[1, 2], [3]]) == (drain_group(handler), SEEN)
    assert 0 == drain_group(handler)
    publish("clicks", 4)
    assert (1, 4) == (drain_group(handler), Effect.objects.count())


def test_what_a_handler_raises_is_raised():
    """Its position has not moved, so the next call gets the same."""
    handler = consume("clicks", group="g", atomic=True)(count)
    topic("clicks").publish_many([1, "bad"], key=lambda _: "k")

    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            drain_group(handler)
    assert ([[1, "bad"]] * 2, 0) == (SEEN, Effect.objects.count())


def test_policies_can_be_tried():
    """Without waiting: the bad ones become dead letters, and the others are taken."""
    handler = consume("clicks", group="g", atomic=True, retries=Retry(max_attempts=2))(
        count
    )
    topic("clicks").publish_many([1, "bad", 2, "reject", 3], key=lambda _: "k")

    assert 3 == drain_group(handler, raise_errors=False)
    assert ["exhausted", "rejected"] == list(
        DeadLetter.objects.order_by("message_id").values_list("reason", flat=True)
    )
    assert 3 == Effect.objects.count()


@pytest.mark.parametrize("on_error, halted", [("halt", "error"), ("retry", None)])
def test_a_group_that_does_not_skip_stops(on_error, halted):
    """Where a worker would halt the partition, or try for ever."""
    handler = consume("clicks", group="g", on_error=on_error, retries=0)(count)
    topic("clicks").publish_many(["bad"], key=lambda _: "k")

    assert 0 == drain_group(handler, raise_errors=False)
    assert {halted} == set(
        Position.objects.exclude(errors__isnull=True).values_list(
            "halted_for", flat=True
        )
    )


def test_what_is_acked_by_hand_is_done_and_the_rest_comes_again():
    """A failure that was skipped is a dead letter, which a job takes if it acks."""
    fails = [True]

    def note(messages):
        for message in messages:
            SEEN.append(message.payload)
            if message.payload == "bad" and fails:
                raise ValueError("bad")
            messages.ack(message)

    said = {"ack_policy": "manual", "retries": 0, "name": "tests.note"}
    handler = consume("clicks", group="g", **said)(note)
    topic("clicks").publish_many([1, "bad", 2], key=lambda _: "k")

    assert 2 == drain_group(handler, raise_errors=False)
    assert [1, 2] == [each for each in SEEN if each != "bad"]
    fails.clear()
    with connection.cursor() as cursor:
        redrive(cursor, [DeadLetter.objects.get().pk])
    drain()
    assert "bad" == SEEN[-1]

"""A message as the argument of a job: fetched, brought along, passed on, gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Message, UndecodablePayload, publish, subscribe, testing
from django_pgqueue.models import ArchivedJob, DeadLetter
from django_pgqueue.models import Message as Row
from django_pgqueue.queues.claim import claim
from django_pgqueue.tasks import operate, payload
from django_pgqueue.tasks.payload import WholeMessage
from django_pgqueue.worker.claim.message_prefetch import bring_messages
from tests.harness.factories import LEASE, make_job
from tests.topics.conftest import deploy

pytestmark = pytest.mark.django_db(transaction=True)

SEEN: list[Message] = []


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()


def listen(pattern="orders", **said):
    """Subscribe a handler that keeps what it gets, and deploy."""

    def handler(message):
        SEEN.append(message)

    made = subscribe(pattern, **{"name": "shop.handler", **said})(handler)
    deploy()
    return made


def stored(message):
    """Return what delay() writes for a message."""
    return json.loads(payload.encode_value(message))["value"]


def claimed(cursor, limit=10):
    return claim(cursor, queues=["default"], worker="worker", limit=limit, lease=LEASE)


def test_a_job_gets_its_message():
    """With all that was published, and values as they were given."""
    listen("orders.*")
    paid = {"sum": Decimal("1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC)}
    message_id = publish("orders.paid", paid, key="c7", headers={"a": 1})
    assert 1 == testing.drain()

    row = Row.objects.get()
    assert [
        Message(
            id=message_id,
            topic="orders",
            name="orders.paid",
            payload=paid,
            key="c7",
            headers={"a": 1},
            published_at=row.published_at,
            partition=row.partition,
        )
    ] == SEEN
    assert UTC == SEEN[0].published_at.tzinfo


def test_a_message_of_no_log_is_written_as_a_whole():
    """And what retention has written into a job stays so through an edit."""
    made = Message(id=1, topic="t", name="t.x", payload={"at": Decimal(2)})
    again = payload.decode_value(payload.encode_value(made))
    assert isinstance(again, WholeMessage)
    assert (1, "t.x", {"at": Decimal(2)}) == (again.id, again.name, again.payload)

    handler = listen("t")
    whole = {
        "id": 5,
        "topic": "t",
        "name": "t",
        "key": None,
        "payload": {"n": 1},
        "headers": {},
        "published_at": "2026-01-01T00:00:00+00:00",
        "partition": 3,
    }
    argument = {"__pgqueue__": "message", "value": whole}
    job = make_job(task=handler.name, args=[argument])
    edited = {**argument, "value": {**whole, "payload": {"n": 2}}}
    operate.edit(job.id, args=[edited])
    job.refresh_from_db()
    assert [edited] == job.args
    testing.drain()
    assert {"n": 2} == SEEN[0].payload


def test_a_message_that_is_gone_rejects_its_job():
    """The dead letter says that retention has removed it."""
    listen()
    publish("orders", 1)
    Row.objects.all().delete()
    testing.drain(raise_errors=False)

    letter = DeadLetter.objects.get()
    assert "rejected" == letter.reason
    assert "the retention of its topic has removed it" in letter.errors[0]["message"]


@pytest.mark.parametrize(
    "value",
    [None, 3, [], [1], [1, "yesterday"], ["x", "2026-01-01"], {}, {"id": 1}, "text"],
)
def test_what_is_no_message_is_undecodable(value):
    """It ends as one dead letter, and no SQL is sent for it."""
    text = json.dumps({"__pgqueue__": "message", "value": value})
    with (
        CaptureQueriesContext(connections["default"]) as queries,
        pytest.raises(UndecodablePayload, match="stored message cannot be read"),
    ):
        payload.decode_value(text)
    assert len(queries) == 0


def test_a_claim_brings_the_messages_along(cursor, link):
    """In one query for all; what else the arguments hold is left as it is."""
    handler = listen()
    ids = [publish("orders", {"n": n}) for n in range(3)]
    make_job(task=handler.name, args=[{"value": '[1, "x"], "__pgqueue__": "message"}'}])
    jobs = claimed(cursor)
    assert 4 == len(jobs)

    references = [json.loads(job.args)[0] for job in jobs[:3]]
    brought = bring_messages(link, jobs)
    told = [json.loads(job.args)[0] for job in brought]
    assert ids == [each["value"]["id"] for each in told[:3]]
    assert [{"n": n} for n in range(3)] == [
        each["value"]["payload"] for each in told[:3]
    ]
    assert jobs[3] == brought[3]
    with CaptureQueriesContext(connections["default"]) as queries:
        values = [payload.decode(job.args, job.kwargs)[0][0] for job in brought[:3]]
    assert len(queries) == 0
    assert [each["value"] for each in references] == [stored(each) for each in values]


def test_a_name_that_nobody_wants_is_acked():
    """Of a row made by hand, or of an older pattern; the archive says why."""
    handler = listen("orders.paid")
    publish("orders.paid", 1)
    publish("orders.failed", 2)
    for row in Row.objects.order_by("id"):
        handler.delay(
            Message(row.id, "orders", row.name, None, published_at=row.published_at)
        )
    assert 3 == testing.drain()
    assert [1, 1] == [message.payload for message in SEEN]
    (unread,) = [job for job in ArchivedJob.objects.all() if job.errors]
    assert "succeeded" == unread.state
    assert [
        {
            "kind": "unwanted",
            "message": "Acked unread: it is called 'orders.failed', and shop.handler "
            "wants 'orders.paid'.",
        }
    ] == unread.errors

"""`pgqueue send`, `receive`, `ack`, `publish`: messages by the command line."""

from __future__ import annotations

import io
import json
import sys

import pytest
from django.db import connection

from django_pgqueue.models import (
    ArchivedJob,
    DeadLetter,
    Job,
    Message,
    Queue,
)
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told


@pytest.fixture(autouse=True)
def thumbs(db):
    """A pull queue that code does not declare."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_declare_queue('thumbs', 60, 2)")


def lines(*arguments):
    """Return (status, what each line of standard output says)."""
    status, out, _ = run(*arguments)
    return status, [json.loads(line) for line in out.splitlines()]


def test_what_is_sent_is_received_and_acked_by_its_receipt():
    """Once: a second ack says that it has ended, and is no success."""
    path = '{"path": "a.jpg"}'
    status, out, _ = run(
        *("send", "thumbs", path, "--headers", '{"by": "Ann"}', "--group", "a"),
    )
    sent = Job.objects.get().pk
    assert (DONE, f"1 message is in queue thumbs: {sent}\n") == (status, out)

    status, [message] = lines("receive", "thumbs", "-n", "10", "--visibility", "2h")
    assert (DONE, f"{sent}:1", 1, "a", {"path": "a.jpg"}, {"by": "Ann"}) == (
        *(status, message["receipt"], message["deliveries"], message["group"]),
        *(message["payload"], message["headers"]),
    )
    assert (NOTHING, []) == lines("receive", "thumbs")
    receipt = message["receipt"]
    assert (DONE, "1 message extended.\n", "") == run(
        "extend", "thumbs", receipt, "--visibility", "3h"
    )
    assert (DONE, "1 message acked.\n", "") == run("ack", "thumbs", receipt)
    assert "succeeded" == ArchivedJob.objects.get(pk=sent).state
    status, out, err = run("ack", "thumbs", receipt)
    assert (NOTHING, "0 messages acked.\n") == (status, out)
    assert f"Not {receipt}: it has ended, or was received again.\n" == err


def test_given_back_often_enough_or_rejected_it_is_dead():
    """With what the operator said of it."""
    run("send", "thumbs", "1")
    for _ in range(2):
        _, [first] = lines("receive", "thumbs")
        status, answer = told("nack", "thumbs", first["receipt"], "--error", "no disk")
    assert (DONE, {"done": 1, "stale": [], "dead": 1}) == (status, answer)
    run("send", "thumbs", "2")
    _, [second] = lines("receive", "thumbs")
    run("reject", "thumbs", second["receipt"], "--reason", "no picture")
    assert {("exhausted", "no disk"), ("rejected", "no picture")} == {
        (letter.reason, letter.errors[-1]["message"])
        for letter in DeadLetter.objects.all()
    }


def test_lines_of_standard_input_are_all_sent_or_none_is(monkeypatch):
    """More of them than a statement takes; a wrong one is named by its number."""
    monkeypatch.setattr("django_pgqueue.management.cli.pull.BATCH_MESSAGES", 2)
    monkeypatch.setattr(sys, "stdin", io.StringIO('1\n\n{"a": 2}\nno\n'))
    status, _, err = run("send", "thumbs")
    assert USAGE == status
    assert err.startswith("Line 4 of standard input: 'no' is no JSON")
    assert not Job.objects.exists()

    monkeypatch.setattr(sys, "stdin", io.StringIO('1\n\n{"a": 2}\n"three"\n'))
    status, answer = told("send", "thumbs")
    assert (DONE, 3) == (status, len(answer["ids"]))
    status, answer = told("receive", "thumbs", "-n", "10", "--ack")
    received = {each["id"]: each["payload"] for each in answer["messages"]}
    assert [1, {"a": 2}, "three"] == [received[each] for each in sorted(received)]
    assert 3 == ArchivedJob.objects.filter(state="succeeded").count()


def test_receive_waits_for_a_message_that_becomes_due():
    """It returns as soon as the message is there."""
    run("send", "thumbs", "7", "--delay", "300ms")
    status, [message] = lines("receive", "thumbs", "--wait", "60s", "--ack")
    assert (DONE, 7) == (status, message["payload"])
    assert not Job.objects.exists()


def test_a_limit_of_a_pull_queue_is_refused():
    """Limits are for workers, so it would have no effect."""
    status, _, err = run("limit", "thumbs", "--concurrency", "5")
    assert (NOTHING, None) == (status, Queue.objects.get().concurrency)
    assert "thumbs is a pull queue" in err


def test_a_message_is_published():
    """With its key and headers; a name that cannot be is refused."""
    status, answer = told(
        *("publish", "orders.created", '{"id": 42}', "--key", "c7"),
        *("--headers", '{"by": "Ann"}'),
    )
    message = Message.objects.get(pk=answer["id"])
    assert (DONE, "orders.created", {"id": 42}, "c7") == (
        *(status, message.name, message.payload, message.key),
    )
    assert "Ann" == message.headers["by"]
    status, _, err = run("publish", "orders..x", "1")
    assert USAGE == status
    assert "orders..x" in err

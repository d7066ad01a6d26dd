"""`pgqueue send`, `receive`, `ack`, `publish`: messages by the command line."""

from __future__ import annotations

import io
import json
import sys

import pytest
from django.db import connection

from django_pgqueue import topic
from django_pgqueue.models import (
    ArchivedJob,
    DeadLetter,
    Job,
    Message,
    Queue,
    ScheduledMessage,
)
from django_pgqueue.topics import registry
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told


@pytest.fixture(autouse=True)
def thumbs(transactional_db):
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


def test_a_key_has_one_message():
    """Until that one is acked, its id is what send() answers."""
    _, first = told("send", "thumbs", "1", "--key", "a")
    _, again = told("send", "thumbs", "2", "--key", "a")
    assert first == again
    assert 1 == Job.objects.count()


def test_a_message_that_python_cannot_read_is_shown_as_it_is_stored():
    """Whoever sent it may be no Python."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_send('thumbs', %s)", ['{"__pgqueue__": "odd"}'])
        cursor.execute("SELECT pgqueue_send('thumbs', %s)", ["9" * 5000])
    _, messages = lines("receive", "thumbs", "-n", "2")
    assert [{"__pgqueue__": "odd"}, "9" * 5000] == [
        each["payload"] for each in messages
    ]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("send", "thumbs", "{"), "is no JSON"),
        (("send", "thumbs", "1", "--delay", "soon"), "the delay is 'soon'"),
        (("send", "thumbs", "1", "--priority", "101"), "from -100 to 100"),
        (("send", "thumbs", "1", "2", "--key", "a"), "--key is of one PAYLOAD"),
        (("receive", "thumbs", "-n", "1001"), "from 1 to 1,000"),
        (("ack", "thumbs", "4711"), "is no receipt"),
        (("publish", "orders.created", "{"), "is no JSON"),
    ],
)
def test_wrong_words_are_refused_before_the_database_is_asked(
    arguments, words, django_assert_num_queries
):
    """Each names the value and the limit; status 2."""
    with django_assert_num_queries(0):
        status, _, err = run(*arguments)
    assert USAGE == status
    assert words in err


def test_a_queue_that_is_none_is_not_made():
    """Nor is one of tasks taken for one; the nearest name is told."""
    status, _, err = run("send", "thumb", "1")
    assert NOTHING == status
    assert "No pull queue is called 'thumb'. Did you mean 'thumbs'?" in err
    assert NOTHING == run("receive", "default")[0]
    assert ["thumbs"] == list(Queue.objects.values_list("name", flat=True))


def test_a_message_is_published_later():
    """Its id leads to `scheduled`; a moment that cannot be is told."""
    status, out, err = run("publish", "orders.created", "1", "--run-after", "2h")

    assert (DONE, "Topic orders is new: no code declares it.\n") == (status, err)
    waiting = ScheduledMessage.objects.get()
    assert f"Message {waiting.pk} of orders.created is published later.\n" == out
    assert waiting.pk < 0
    status, _, err = run("publish", "orders.created", "1", "--run-after", "soon")
    assert USAGE == status
    assert "'soon'" in err


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


def test_a_topic_that_is_new_is_told(monkeypatch):
    """A typo makes one: once, on standard error, with the name that was meant."""
    monkeypatch.setattr(registry, "_declared", {})
    topic("invoices", partitions=2)

    status, out, err = run("publish", "invoice.sent", "1")
    assert (DONE, 1) == (status, out.count("is published"))
    assert err == (
        "Topic invoice is new: no code declares it. Did you mean 'invoices'?\n"
    )
    assert "" == run("publish", "invoice.sent", "1")[2]
    assert "" == run("publish", "invoices.sent", "1")[2]


def test_what_is_done_to_jobs_is_done_to_messages():
    """They are counted, cancelled and redriven by their queue, in groups too."""
    run("send", "thumbs", "1", "2", "3", "--group", "a")
    _, [first] = lines("receive", "thumbs")
    run("reject", "thumbs", first["receipt"])
    _, out, _ = run("stats", "--queue", "thumbs")
    assert out.rstrip().endswith("pull queue")

    assert (DONE, "2 jobs cancelled.\n", "") == run(
        "cancel", "--queue", "thumbs", "--yes"
    )
    assert (NOTHING, []) == lines("receive", "thumbs")
    assert DONE == run("redrive", "--queue", "thumbs", "--yes")[0]
    _, [again] = lines("receive", "thumbs", "--ack")
    assert (first["id"], 1, "a") == (again["id"], again["payload"], again["group"])
    assert not Job.objects.exists()


def test_a_limit_of_a_pull_queue_is_refused():
    """It is for workers, so nothing would come of it."""
    status, _, err = run("limit", "thumbs", "--concurrency", "5")
    assert (NOTHING, None) == (status, Queue.objects.get().concurrency)
    assert "thumbs is a pull queue" in err


def test_receive_waits_for_what_becomes_due():
    """And returns with it at once."""
    run("send", "thumbs", "7", "--delay", "300ms")
    status, [message] = lines("receive", "thumbs", "--wait", "60s", "--ack")
    assert (DONE, 7) == (status, message["payload"])
    assert not Job.objects.exists()

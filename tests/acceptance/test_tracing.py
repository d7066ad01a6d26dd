"""One trace from a request, over its jobs and messages, to what these do."""

from __future__ import annotations

import json
import sys

import pytest
from django.db import connection, transaction

from django_pgqueue import publish_many, topic
from django_pgqueue.conf import parse
from django_pgqueue.exceptions import QueueFull, SettingsError
from django_pgqueue.models import ArchivedJob
from django_pgqueue.tasks.tracing import LINKS_MAX, carry, reading
from django_pgqueue.testing import drain
from tests.app import span_tasks, tasks
from tests.app.models import Order
from tests.harness.factories import make_job
from tests.harness.spans import request
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

pytestmark = [pytest.mark.smoke, pytest.mark.django_db(transaction=True)]


def headers(table="pgqueue_job"):
    """Return the headers of the only row."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT headers FROM {table}")
        ((found,),) = cursor.fetchall()
    return json.loads(found)


def test_an_enqueue_is_a_span_whose_context_its_job_has(spans):
    """As the conventions for messaging name it, below the span of the request."""
    with request():
        job = tasks.add.using(queue="mail", headers={"ours": 1}).delay(1, 2)

    sent, asked = spans.one("enqueue mail"), spans.one("GET /")
    assert "PRODUCER" == sent.kind
    assert (asked.trace, asked.id) == (sent.trace, sent.parent)
    assert {
        "messaging.system": "pgqueue",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "pgqueue.task": tasks.add.name,
    } == sent.attributes
    carried = headers()
    flags = carried["trace"]["traceparent"][-2:]
    context = f"00-{sent.trace:032x}-{sent.id:016x}-{flags}"
    assert {"ours": 1, "trace": {"traceparent": context}} == carried


def test_many_jobs_have_one_span(spans):
    """Whatever stores them; it tells how many they are."""
    tasks.noop.bulk([[1], [2], [3]])
    tasks.noop.using(queue="rows").from_queryset(
        Order.objects.bulk_create([Order(name="a"), Order(name="b")])
        and Order.objects.all(),
        name="name",
    )

    assert 3 == spans.one("enqueue default").attributes["messaging.batch.message_count"]
    assert 2 == spans.one("enqueue rows").attributes["messaging.batch.message_count"]


def test_a_call_after_the_commit_is_a_span_of_the_request(spans):
    """It is stored then, and not before."""
    with request(), transaction.atomic():
        tasks.noop.on_commit().delay()
        assert [] == spans.all("enqueue")

    assert spans.one("GET /").id == spans.one("enqueue default").parent


def test_an_enqueue_that_fails_ends_its_span_as_failed(spans, settings):
    """With what was raised."""
    settings.PGQUEUE = {"TRACE": True, "QUEUES": {"full": {"depth_max": 1}}}
    tasks.noop.using(queue="full").delay()
    with pytest.raises(QueueFull):
        tasks.noop.using(queue="full").delay()

    failed = spans.all("enqueue full")[-1]
    assert ("ERROR", ["exception"]) == (failed.status, failed.events)


def test_one_trace_has_all_that_comes_of_a_request(spans, start_traced):
    """Jobs, what these enqueue and publish, and the jobs of those messages."""
    with request():
        for sends in (
            span_tasks.sends_on,
            span_tasks.sends_on_async,
            span_tasks.sends_on_atomic,
        ):
            sends.delay("x")
    worker = start_traced("--drain")
    assert 0 == worker.wait()

    asked = spans.one("GET /")
    attempts = spans.all("process default")
    by_task = {}
    for span in attempts:
        by_task.setdefault(span.attributes["pgqueue.task"], []).append(span)
    assert {"CONSUMER"} == {span.kind for span in attempts}
    for name in ("sends_on", "sends_on_async", "sends_on_atomic"):
        (attempt,) = by_task[f"tests.app.span_tasks.{name}"]
        assert asked.trace == attempt.trace
        below = {span.name for span in spans.all() if span.parent == attempt.id}
        assert {"enqueue default", "publish traced"} == below
    assert 3 == len(by_task["tests.app.span_subscriber_tasks.takes"])
    assert 3 == len(by_task[tasks.noop.name])
    assert {asked.trace} == {span.trace for span in attempts}
    published = {span.id for span in spans.all("publish")}
    taken = {span.parent for span in by_task["tests.app.span_subscriber_tasks.takes"]}
    assert published == taken


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_each_attempt_is_a_span_of_the_same_trace(spans, start_traced, pool):
    """Below what has sent the job; spans of a process that ends have left it."""
    with request():
        job = span_tasks.fails_always.delay()
    worker = start_traced(f"--pool={pool}")
    wait_until_final([job.id])
    assert 0 == worker.stop()

    sent, attempts = spans.one("enqueue default"), spans.all("process default")
    assert [1, 2, 3] == [span.attributes["pgqueue.attempt"] for span in attempts]
    assert {(sent.trace, sent.id)} == {(span.trace, span.parent) for span in attempts}
    assert {"ERROR"} == {span.status for span in attempts}
    assert {"tests.app.tasks.Unlucky"} == {
        span.attributes["error.type"] for span in attempts
    }
    assert worker.pid not in {span.pid for span in attempts}


def test_an_attempt_is_described_as_the_conventions_say(spans):
    """With the id of the job, which task it is and how often it was tried."""
    job = tasks.add.using(queue="mail").delay(1, 2)
    drain()

    attempt = spans.one("process mail")
    assert ("CONSUMER", ["claimed"]) == (attempt.kind, attempt.events)
    assert {
        "messaging.system": "pgqueue",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "pgqueue.task": tasks.add.name,
        "pgqueue.attempt": 1,
    } == attempt.attributes


def test_a_run_of_many_calls_has_links_to_those_that_it_is_not_below(spans):
    """It is below the one that leads, since a span has one parent."""
    for _ in range(3):
        with request():
            span_tasks.many.delay()
    drain()

    run = spans.one("process default")
    sent = [span.id for span in spans.all("enqueue")]
    assert sorted(sent) == sorted([run.parent, *run.links])
    assert 3 == run.attributes["messaging.batch.message_count"]


def test_a_batch_of_a_group_has_links_to_what_has_published_it(spans, start_traced):
    """One for each publish, and what the batch sends is below it."""
    with request():
        topic("batched").publish({"name": "a"})
        topic("batched").publish_many([{"name": "b"}, {"name": "c"}], key="name")
        publish_many([topic("batched").message({"name": "d"}, headers={"x": 1})])
    worker = start_traced()
    wait_for(lambda: 4 == ArchivedJob.objects.count(), what="all have been read")
    assert 0 == worker.stop()

    batches = spans.all("process batched")
    published = [span.id for span in spans.all("publish batched")]
    assert 3 == len(published)
    assert set(published) == {link for span in batches for link in span.links}
    assert 4 == sum(s.attributes["messaging.batch.message_count"] for s in batches)
    assert {"g"} == {s.attributes["messaging.consumer.group.name"] for s in batches}
    sent = {span.parent for span in spans.all("enqueue default")}
    assert {span.id for span in batches} == sent


def test_a_message_for_later_belongs_to_the_request_that_has_scheduled_it(spans):
    """One span for each topic; the message has its context when it is published."""
    with request():
        publish_many(
            topic(name).message({}, run_after=0) for name in ("later", "other")
        )
    sent = spans.one("publish later")
    assert {spans.one("GET /").id} == {each.parent for each in spans.all("publish")}
    drain()

    with connection.cursor() as cursor:
        cursor.execute("SELECT headers FROM pgqueue_message WHERE name = 'later'")
        (held,) = cursor.fetchone()
    context = json.loads(held)["trace"]["traceparent"]
    assert f"00-{sent.trace:032x}-{sent.id:016x}" == context[:-3]


def test_a_snooze_is_no_error(spans):
    """Nor is a task that says that there is nothing to do."""
    tasks.snoozes.delay()
    drain()

    attempt = spans.one("process default")
    assert ("UNSET", ["claimed"]) == (attempt.status, attempt.events)


@pytest.mark.parametrize(
    "held",
    [None, "text", [], {"traceparent": 1}, {"traceparent": "00-x-y-01"}, {"else": "x"}],
)
def test_a_header_that_holds_something_else_begins_a_trace(spans, held):
    """Whoever may insert rows may write anything there."""
    make_job(task=tasks.noop.name, headers={"trace": held})
    drain()
    with reading("orders", {}, [{"trace": held}] * (LINKS_MAX + 1)):
        pass

    assert spans.one("process default").parent is None
    batch = spans.one("process orders")
    assert (None, []) == (batch.parent, batch.links)


def test_nobody_records_and_no_header_is_written(spans, monkeypatch):
    """As where the SDK is not set up: headers are as they were."""
    assert '{"a": 1}' == carry('{"a": 1}')
    assert "{}" == carry("{}")


def test_without_the_setting_nothing_is_traced(spans, settings):
    """No span, and no header."""
    settings.PGQUEUE = {}
    with request():
        tasks.noop.delay()
    drain()

    assert ["GET /"] == [span.name for span in spans.all()]
    assert {} == headers("pgqueue_archived_job")


def test_without_the_package_the_extra_is_named(monkeypatch):
    """By the setting that needs it, before anything runs."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(SettingsError, match=r"TRACE.*the extra \[opentelemetry\]"):
        parse({"TRACE": True})

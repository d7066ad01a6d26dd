"""One trace from a request, over its jobs and messages, to what these do."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from django_pgqueue.testing import drain
from tests.app import span_tasks, tasks
from tests.harness.spans import request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True),
]


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

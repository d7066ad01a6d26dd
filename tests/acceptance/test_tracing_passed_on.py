"""What no span would be recorded of: its context goes on, and that is all."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from django.db import connection

from tests.app import span_tasks
from tests.harness import spans as harness
from tests.harness.spans import request

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

SENDERS = [
    span_tasks.sends_on,
    span_tasks.sends_on_async,
    span_tasks.sends_on_atomic,
]
OTHERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def contexts(table="pgqueue_archived_job"):
    """Return how many rows have each context."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT headers::text FROM {table}")
        found = [json.loads(text) for (text,) in cursor.fetchall()]
    assert {("trace",)} == {tuple(headers) for headers in found}
    return Counter(headers["trace"]["traceparent"] for headers in found)


def test_a_worker_without_an_sdk_passes_on_what_a_job_carries(
    spans, start_traced, monkeypatch
):
    """To jobs and messages, in threads, event loops and transactions."""
    with request():
        for sends in SENDERS:
            sends.delay("x")
    sent = contexts("pgqueue_job")
    monkeypatch.delenv(harness.PATH)
    assert 0 == start_traced("--drain").wait()

    assert [1, 1, 1] == list(sent.values())
    # Each, the job that it has enqueued, and the one of its message.
    assert Counter(dict.fromkeys(sent, 3)) == contexts()
    assert sent == contexts("pgqueue_message")
    assert [] == spans.all("process")

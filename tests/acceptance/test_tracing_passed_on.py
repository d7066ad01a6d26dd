"""What no span would be recorded of: its context goes on, and that is all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from django.db import connection
from opentelemetry.sdk.trace import TracerProvider, sampling

from django_pgqueue.management.bench import bare_settings
from django_pgqueue.models import ArchivedJob
from django_pgqueue.tasks.tracing import drops_unsampled
from django_pgqueue.testing import drain
from tests.app import span_tasks, tasks
from tests.harness import spans as harness
from tests.harness.factories import make_job
from tests.harness.spans import request
from tests.harness.waiting import patience

pytestmark = pytest.mark.django_db(transaction=True)

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


def test_what_is_not_sampled_stays_so(spans, start_traced):
    """The request's trace is known to the last job, and nothing is recorded."""
    with request(is_sampled=False) as parent:
        for sends in SENDERS:
            sends.delay("x")
    assert 0 == start_traced("--drain").wait()

    found = parent.get_span_context()
    context = f"00-{found.trace_id:032x}-{found.span_id:016x}-00"
    assert {context: 9} == contexts()
    assert {context: 3} == contexts("pgqueue_message")
    assert [] == spans.all()


def test_a_sampler_that_records_it_nevertheless_is_asked(spans, start_traced):
    """What only the default ones are known to drop is not dropped by us."""
    make_job(task=tasks.noop.name, headers={"trace": {"traceparent": OTHERS}})
    told = {"OTEL_TRACES_SAMPLER": "always_on"}
    assert 0 == start_traced("--drain", environment=told).wait()

    attempt = spans.one("process default")
    assert OTHERS == f"00-{attempt.trace:032x}-{attempt.parent:016x}-00"


def test_an_attempt_is_not_of_the_request_in_which_a_test_runs_it(spans):
    """Neither one without a context, nor one of another trace."""
    make_job(
        task=span_tasks.sends_on.name,
        args=["x"],
        headers={"trace": {"traceparent": OTHERS}},
    )
    with request():
        drain()

    assert {OTHERS: 2} == contexts()
    assert ["GET /"] == [span.name for span in spans.all()]


@pytest.mark.parametrize("note", ["", "x" * 300])
def test_it_does_not_matter_what_else_is_in_the_headers(spans, note):
    """Short headers are read by us alone, and long ones for the task."""
    make_job(
        task=span_tasks.sends_on.name,
        args=["x"],
        headers={"note": note, "trace": {"traceparent": OTHERS}},
    )
    drain()

    sent = ArchivedJob.objects.get(task=tasks.noop.name)
    assert {"trace": {"traceparent": OTHERS}} == sent.headers


SET_UP_LATE = """
from django_pgqueue.tasks.tracing import RECORDER
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
assert RECORDER.look() is None
trace.set_tracer_provider(TracerProvider())
while RECORDER.look() is None:
    pass
assert RECORDER.drops_unsampled
"""


def test_an_sdk_that_is_set_up_late_is_found():
    """By a hook of a web server or a worker, after something was sent without it."""
    subprocess.run(
        [sys.executable, "-c", SET_UP_LATE],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": bare_settings.__name__},
        check=True,
        timeout=30 * patience(),
    )


class Stubborn(sampling.ParentBased):
    """Describes itself as what it is not."""

    def should_sample(self, *args, **kwargs):
        return sampling.ALWAYS_ON.should_sample(*args, **kwargs)


@pytest.mark.parametrize(
    "sampler, drops",
    [
        (sampling.DEFAULT_ON, True),
        (sampling.DEFAULT_OFF, True),
        (sampling.ParentBasedTraceIdRatio(0.01), True),
        (sampling.ParentBased(sampling.ParentBased(sampling.ALWAYS_ON)), True),
        (sampling.ALWAYS_ON, False),
        (sampling.TraceIdRatioBased(0.01), False),
        (
            sampling.ParentBased(
                sampling.ALWAYS_ON, remote_parent_not_sampled=sampling.ALWAYS_ON
            ),
            False,
        ),
        (
            sampling.ParentBased(
                sampling.ALWAYS_ON, local_parent_not_sampled=sampling.DEFAULT_OFF
            ),
            False,
        ),
        (sampling.AlwaysRecordSampler(sampling.DEFAULT_ON), False),
        (Stubborn(sampling.ALWAYS_ON), False),
    ],
    ids=lambda each: each.get_description() if hasattr(each, "_root") else None,
)
def test_samplers_that_heed_parents_are_known_by_their_words(sampler, drops):
    """Any other is asked about each attempt."""
    assert drops == drops_unsampled(TracerProvider(sampler=sampler))

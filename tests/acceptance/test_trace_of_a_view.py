"""One trace from a view of Django, instrumented as a project instruments it."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from opentelemetry.instrumentation.django import DjangoInstrumentor

from tests.app import span_tasks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def order(request: HttpRequest) -> HttpResponse:
    """Enqueue a job with what else it stores."""
    with transaction.atomic():
        span_tasks.sends_on.delay("x")
    return HttpResponse("ordered")


urlpatterns = [path("order/", order)]


@pytest.fixture
def instrumented(spans):
    """Let each request be a span."""
    DjangoInstrumentor().instrument()
    yield
    DjangoInstrumentor().uninstrument()


def test_one_trace_leads_from_a_view_to_the_last_consumer(
    spans, instrumented, client, start_traced
):
    """Each hop is below the one before it, across three processes and a commit."""
    assert b"ordered" == client.get("/order/").content
    assert 0 == start_traced("--drain").wait()

    (view,) = [span for span in spans.all() if span.kind == "SERVER"]
    attempts = {
        span.attributes["pgqueue.task"].rpartition(".")[2]: span
        for span in spans.all("process default")
    }
    attempt = attempts["sends_on"]
    published = spans.one("publish traced")
    enqueued, enqueued_by_job = sorted(
        spans.all("enqueue default"), key=lambda span: span.parent == attempt.id
    )
    assert {view.trace} == {span.trace for span in spans.all()}
    assert {
        view.id: None,
        enqueued.id: view.id,
        attempt.id: enqueued.id,
        published.id: attempt.id,
        attempts["takes"].id: published.id,
        enqueued_by_job.id: attempt.id,
        attempts["noop"].id: enqueued_by_job.id,
    } == {span.id: span.parent for span in spans.all()}

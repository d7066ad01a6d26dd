"""Traced: jobs as requests of which some are sampled enqueue them, and an SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.conf import settings

from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.task import Task

# Where it is missing, nothing here can be measured.
SDK = "opentelemetry.sdk.trace"

# What a worker does about spans: nothing at all; nothing since no SDK is set up; or it
# makes them and gives them to an exporter that sends them nowhere.
OFF, NO_SDK, RECORDS = "", "no_sdk", "records"

# Of one request.
JOBS_TOGETHER = 100


def in_requests(
    task: Task[Any, None], sampled_in_hundred: int | None
) -> Callable[[Sequence[dict[str, Any]]], list[JobResult[Any]]]:
    """Return what stores jobs, some for each request; None: which is no trace."""

    def stored(items: Sequence[dict[str, Any]]) -> list[JobResult[Any]]:
        results: list[JobResult[Any]] = []
        for number, at in enumerate(range(0, len(items), JOBS_TOGETHER)):
            request: AbstractContextManager[None] = nullcontext()
            if sampled_in_hundred is not None:
                request = _request(is_sampled=number % 100 >= 100 - sampled_in_hundred)
            with request:
                results += task.bulk(items[at : at + JOBS_TOGETHER])
        return results

    return stored


@contextmanager
def _request(*, is_sampled: bool) -> Iterator[None]:
    """Be in a request whose span is made elsewhere, with TRACE on."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    ids = RandomIdGenerator()
    context = trace.SpanContext(
        ids.generate_trace_id(),
        ids.generate_span_id(),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(is_sampled)),
    )
    before = getattr(settings, "PGQUEUE", {})
    settings.PGQUEUE = {**before, "TRACE": True}
    try:
        with trace.use_span(trace.NonRecordingSpan(context)):
            yield
    finally:
        settings.PGQUEUE = before


def set_up_sdk() -> None:
    """Record spans in this process, as the SDK does it where nothing is said."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)

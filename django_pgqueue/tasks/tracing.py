"""
Tracing: spans of OpenTelemetry, and the context that jobs and messages carry.

An enqueue or a publish is a span, whose W3C context is written to the header "trace" of
what it stores. Each attempt is a span below it, so that all that comes of a request is
one trace. Loaded where PGQUEUE["TRACE"] is on, and only there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import (
    TraceContextTextMapPropagator,
)

from django_pgqueue.conf import get_settings
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks.errors import message_of, traceback_of, type_of
from django_pgqueue.tasks.raised import Cancel, Snooze

TRACER = trace.get_tracer("django_pgqueue")

# Not the propagator of the project: what it writes may be of any size, and any secret.
W3C = TraceContextTextMapPropagator()
HEADER = "trace"

# Of a span: the SDK drops what is above this anyway.
LINKS_MAX = 128

# What a task says on purpose, and is no failure.
NO_FAILURES = (Cancel, Snooze)


@contextmanager
def sending(operation: str, destination: str, **attributes: Any) -> Iterator[Span]:
    """
    Be the span of an enqueue or a publish, as the current one.

    Args:
        operation: "enqueue" or "publish".
        destination: The queue, or the topic.
        attributes: More of them; "__" stands for ".".
    """
    said = _attributes(operation, "send", destination, attributes)
    with _span(f"{operation} {destination}", SpanKind.PRODUCER, said) as span:
        yield span


@contextmanager
def processing(
    destination: str,
    *,
    parent: object = None,
    links: Iterable[object] = (),
    claimed: Claimed | None = None,
    **attributes: Any,
) -> Iterator[Span]:
    """
    Be the span of an attempt, as the current one.

    Args:
        destination: The queue, or the topic.
        parent: The header of what is processed, whatever is in it. What is no context
            begins a trace.
        links: Those of what is processed together with it; the first 128.
        claimed: The job, whose claim is an event of the span.
        attributes: As of sending().
    """
    found = (_context_of(each) for each in links)
    linked = [Link(context) for context in found if context.is_valid][:LINKS_MAX]
    said = _attributes("process", "process", destination, attributes)
    with _span(
        f"process {destination}",
        SpanKind.CONSUMER,
        said,
        context=trace.set_span_in_context(
            trace.NonRecordingSpan(_context_of(parent)), Context()
        ),
        links=linked,
    ) as span:
        if claimed is not None and span.is_recording():
            at = int(claimed.claimed_at.timestamp() * 1e9)
            span.add_event("claimed", timestamp=at)
        yield span


def stored(span: Span, ids: Sequence[int], count: int | None = None) -> None:
    """Say in the span of an enqueue or a publish what it has stored."""
    if not span.is_recording():
        return
    if len(ids) == 1:
        span.set_attribute("messaging.message.id", str(ids[0]))
    else:
        number = len(ids) if count is None else count
        span.set_attribute("messaging.batch.message_count", number)


def carry(headers: str) -> str:
    """Return the JSON text of headers with the context of the current span, if any."""
    carrier: dict[str, str] = {}
    W3C.inject(carrier)
    if not carrier:
        return headers
    text = f'"{HEADER}":{json.dumps(carrier)}}}'
    return f"{{{text}" if headers == "{}" else f"{headers[:-1]},{text}"


def carry_all(batch: Sequence[Items]) -> Sequence[Items]:
    """Return messages, as log/publish.py takes them, with that context in each."""
    if not trace.get_current_span().get_span_context().is_valid:
        return batch
    mark = json.loads(carry("{}"))
    return [
        items._replace(
            text=",".join(
                json.dumps([name, key, payload, {**headers, **mark}])
                for name, key, payload, headers in json.loads(f"[{items.text}]")
            )
        )
        for items in batch
    ]


def flush() -> None:
    """Let what waits in this process be exported, before it ends without any hooks."""
    force = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force is not None:
        # What a project's exporter raises is no reason to be a process that died.
        with suppress(Exception):
            force(FLUSH_MILLISECONDS)


# How long an end waits for a collector that does not answer.
FLUSH_MILLISECONDS = 5_000


@contextmanager
def _span(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, Any],
    context: Context | None = None,
    links: Sequence[Link] = (),
) -> Iterator[Span]:
    with TRACER.start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except NO_FAILURES:
            raise
        except BaseException as error:
            if span.is_recording():
                _note(span, error)
            raise


def _note(span: Span, error: BaseException) -> None:
    """Say how a span has failed, without what PGQUEUE["REDACT"] hides."""
    kind = ".".join(type_of(error)).removeprefix("builtins.")
    patterns = get_settings().redact
    message = redact_text(message_of(error), patterns)
    span.set_attribute("error.type", kind)
    span.add_event(
        "exception",
        {
            "exception.type": kind,
            "exception.message": message,
            "exception.stacktrace": redact_text(traceback_of(error), patterns),
        },
    )
    span.set_status(Status(StatusCode.ERROR, message))


def _attributes(
    operation: str, kind: str, destination: str, others: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "messaging.system": "pgqueue",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
        **{name.replace("__", "."): value for name, value in others.items()},
    }


def _context_of(header: object) -> trace.SpanContext:
    """Return the context in a header; an invalid one where there is none."""
    if not isinstance(header, Mapping):
        return trace.INVALID_SPAN_CONTEXT
    carrier = {
        name: header[name]
        for name in ("traceparent", "tracestate")
        if isinstance(header.get(name), str)
    }
    found = W3C.extract(carrier, Context())
    return trace.get_current_span(found).get_span_context()

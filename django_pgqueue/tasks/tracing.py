"""
Tracing: spans of OpenTelemetry, and the context that jobs and messages carry.

An enqueue or a publish is a span, whose W3C context is written to the header "trace" of
what it stores. Each attempt is a span below it, so that all that comes of a request is
one trace. Loaded where PGQUEUE["TRACE"] is on, and only there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
)
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
NOTHING = Context()

# Of a span: the SDK drops what is above this anyway.
LINKS_MAX = 128

# What a task says on purpose, and is no failure.
NO_FAILURES = (Cancel, Snooze)


def sending(
    operation: str, destination: str, attributes: Mapping[str, Any] | None = None
) -> InSpan:
    """
    Return what is the span of an enqueue or a publish, as the current one.

    Args:
        operation: "enqueue" or "publish".
        destination: The queue, or the topic.
        attributes: More of them.
    """
    said = _attributes(operation, "send", destination, attributes or {})
    name = f"{operation} {destination}"
    return InSpan(TRACER.start_span(name, kind=SpanKind.PRODUCER, attributes=said))


def processing(
    destination: str,
    attributes: Mapping[str, Any],
    *,
    parent: object = None,
    links: Iterable[object] = (),
    claimed: Claimed | None = None,
) -> InSpan:
    """
    Return what is the span of an attempt, as the current one.

    Args:
        destination: The queue, or the topic.
        attributes: More of them.
        parent: The header of what is processed, whatever is in it. What is no context
            begins a trace.
        links: Those of what is processed together with it; the first 128.
        claimed: The job, whose claim is an event of the span.
    """
    if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        # Nobody has set up what records. The context goes on to what is sent here.
        return InSpan(NonRecordingSpan(_context_of(parent)))
    found = (_context_of(each) for each in links)
    linked = [Link(context) for context in found if context.is_valid][:LINKS_MAX]
    said = _attributes("process", "process", destination, attributes)
    span = TRACER.start_span(
        f"process {destination}",
        # Not what is current here, as a request is where a test runs its jobs.
        trace.set_span_in_context(NonRecordingSpan(_context_of(parent)), NOTHING),
        SpanKind.CONSUMER,
        said,
        linked,
    )
    if claimed is not None and span.is_recording():
        span.add_event("claimed", timestamp=int(claimed.claimed_at.timestamp() * 1e9))
    return InSpan(span)


class InSpan:
    """
    Makes a span the current one, ends it, and says of it how it has failed.

    A class, as generators take several times as long, and each attempt needs one.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Span:
        """Begin, in this thread or asyncio task."""
        self._token = attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; what was raised goes on."""
        detach(self._token)
        span = self._span
        if (
            error is not None
            and not isinstance(error, NO_FAILURES)
            and span.is_recording()
        ):
            _note(span, error)
        span.end()


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
        **others,
    }


def _context_of(header: object) -> SpanContext:
    """Return the context in a header; an invalid one where there is none."""
    if not isinstance(header, Mapping):
        return INVALID_SPAN_CONTEXT
    parent, state = header.get("traceparent"), header.get("tracestate")
    if not isinstance(parent, str):
        return INVALID_SPAN_CONTEXT
    return _extracted(parent, state if isinstance(state, str) else "")


# Jobs of one bulk() have one context.
@lru_cache(maxsize=256)
def _extracted(parent: str, state: str) -> SpanContext:
    carrier = {"traceparent": parent, "tracestate": state}
    found = W3C.extract(carrier, NOTHING)
    return trace.get_current_span(found).get_span_context()

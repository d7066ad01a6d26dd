"""
Tracing: spans of OpenTelemetry, and the context that jobs and messages carry.

An enqueue or a publish is a span, whose W3C context is written to the header "trace" of
what it stores. Each attempt is a span below it, so that all that comes of a request is
one trace. Where no span would be recorded, none is made: the context that a job carries
is the current one while it runs, and goes on. Loaded where PGQUEUE["TRACE"] is on, and
only there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NoOpTracer,
    ProxyTracer,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
)
from opentelemetry.trace.propagation.tracecontext import (
    TraceContextTextMapPropagator,
)

from django_pgqueue.conf import get_settings
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks.errors import message_of, traceback_of, type_of
from django_pgqueue.tasks.prepare import PLAIN_CHARACTERS_MAX, Prepared
from django_pgqueue.tasks.raised import Cancel, Snooze

# Not the propagator of the project: what it writes may be of any size, and any secret.
W3C = TraceContextTextMapPropagator()
HEADER = "trace"
NOTHING = Context()

# Of a span: the SDK drops what is above this anyway.
LINKS_MAX = 128

# What a task says on purpose, and is no failure.
NO_FAILURES = (Cancel, Snooze)

# How often it is looked whether somebody has set up what records, while nobody has: a
# look takes longer than all else that an attempt does here then.
LOOK_SECONDS = 0.02

# How a sampler of the SDK that heeds parents begins and ends its description where it
# drops all that is below a span that is not sampled. Any other one is asked each time.
SAMPLERS = "opentelemetry.sdk.trace.sampling"
HEEDS_PARENTS = "ParentBased{root:"
DROPS_UNSAMPLED = (
    ",remoteParentSampled:AlwaysOnSampler,remoteParentNotSampled:AlwaysOffSampler"
    ",localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler}"
)


class Recorder:
    """
    What records spans, once somebody has set it up; nobody can set up another one.

    Attributes:
        tracer: Makes spans; None: it is not known of any.
        drops_unsampled: Whether nothing is recorded below a span that is not sampled.
    """

    __slots__ = ("_looked_at", "drops_unsampled", "tracer")

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.drops_unsampled = False
        self._looked_at = float("-inf")

    def look(self) -> Tracer | None:
        """Look for a tracer; not again before LOOK_SECONDS are over."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return None
        tracer = trace.get_tracer("django_pgqueue")
        if isinstance(tracer, ProxyTracer | NoOpTracer):
            # Said after the look: a thread beside this one must look for itself.
            self._looked_at = now
            return None
        self.drops_unsampled = drops_unsampled(trace.get_tracer_provider())
        self.tracer = tracer
        return tracer


RECORDER = Recorder()


def drops_unsampled(provider: object) -> bool:
    """Whether it is sure that nothing is recorded below a span that is not sampled."""
    sampler = getattr(provider, "sampler", None)
    if type(sampler).__module__ != SAMPLERS:
        return False
    told: str = sampler.get_description()  # type: ignore[union-attr]
    return told.startswith(HEEDS_PARENTS) and told.endswith(DROPS_UNSAMPLED)


class Parent(NamedTuple):
    """The span that a header names: one of elsewhere, or an invalid one."""

    span: Span
    context: Context  # It has that span, and nothing else.
    is_unsampled: bool


def _parent_of(span: Span) -> Parent:
    found = span.get_span_context()
    is_unsampled = found.is_valid and not found.trace_flags.sampled
    return Parent(span, trace.set_span_in_context(span, NOTHING), is_unsampled)


NO_PARENT = _parent_of(INVALID_SPAN)

# Where there is no span.
NO_SPAN: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)


def sending(
    operation: str, destination: str, attributes: Mapping[str, Any] | None = None
) -> AbstractContextManager[Span]:
    """
    Return what is the span of an enqueue or a publish, as the current one.

    Args:
        operation: "enqueue" or "publish".
        destination: The queue, or the topic.
        attributes: More of them.
    """
    tracer = RECORDER.tracer or RECORDER.look()
    if tracer is None:
        return NO_SPAN
    if RECORDER.drops_unsampled:
        current = trace.get_current_span().get_span_context()
        if current.is_valid and not current.trace_flags.sampled:
            return NO_SPAN
    said = _attributes(operation, "send", destination, attributes or {})
    name = f"{operation} {destination}"
    return InSpan(tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=said))


def attempting(job: Claimed, prepared: Prepared) -> AbstractContextManager[Any] | None:
    """
    Return what is the span of an attempt, as the current one; None: nothing is.

    What is in the header of the job and is no context begins a trace.
    """
    text = job.headers
    if text == "{}":
        parent = NO_PARENT
    elif len(text) <= PLAIN_CHARACTERS_MAX:
        parent = _parent_in_headers(text)
    else:
        parent = _parent_in(prepared.headers.get(HEADER))
    tracer = RECORDER.tracer or RECORDER.look()
    if tracer is None or (parent.is_unsampled and RECORDER.drops_unsampled):
        return _passed_on(parent)
    attributes = {
        "messaging.message.id": str(job.id),
        "pgqueue.task": job.task,
        "pgqueue.attempt": job.attempt,
    }
    others = prepared.other_headers
    if others:
        attributes["messaging.batch.message_count"] = 1 + len(others)
    links = [_span_context_in(each.get(HEADER)) for each in others]
    span = _started(tracer, job.queue, attributes, parent, links)
    if span.is_recording():
        span.add_event("claimed", timestamp=int(job.claimed_at.timestamp() * 1e9))
    return InSpan(span)


def reading(
    topic: str, attributes: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]
) -> AbstractContextManager[Any]:
    """
    Return what is the span of a batch of a group, as the current one.

    It has a link to each publish; the first 128 count.

    Args:
        topic: Its name.
        attributes: More of them.
        messages: The headers of each. What is no context in there has no link.
    """
    tracer = RECORDER.tracer or RECORDER.look()
    if tracer is None:
        return _passed_on(NO_PARENT) or NO_SPAN
    found = [_span_context_in(headers.get(HEADER)) for headers in messages]
    # Each once: publish_many() has given one to all of its messages.
    links = {(context.trace_id, context.span_id): context for context in found}
    return InSpan(_started(tracer, topic, attributes, NO_PARENT, links.values()))


def _started(
    tracer: Tracer,
    destination: str,
    attributes: Mapping[str, Any],
    parent: Parent,
    links: Iterable[SpanContext],
) -> Span:
    linked = [Link(context) for context in links if context.is_valid][:LINKS_MAX]
    said = _attributes("process", "process", destination, attributes)
    # Not what is current here, as a request is where a test runs its jobs.
    return tracer.start_span(
        f"process {destination}", parent.context, SpanKind.CONSUMER, said, linked
    )


def _passed_on(parent: Parent) -> InContext | None:
    """Return what makes *parent* current, without a span; None: nothing is, anyway."""
    current = get_current()
    if not current:
        return None if parent is NO_PARENT else InContext(parent.context)
    return InContext(trace.set_span_in_context(parent.span, current))


class InContext:
    """Makes a context the current one."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        """Begin, in this thread or asyncio task."""
        self._token = attach(self._context)

    def __exit__(self, *_: object) -> None:
        """End."""
        detach(self._token)


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
                json.dumps([name, key, payload, {**headers, **mark}, *when])
                for name, key, payload, headers, *when in json.loads(f"[{items.text}]")
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


# Jobs of one request have one context, and mostly nothing else.
@lru_cache(maxsize=256)
def _parent_in_headers(text: str) -> Parent:
    headers = json.loads(text)
    # A row written by SQL may hold anything.
    return _parent_in(headers.get(HEADER) if isinstance(headers, dict) else None)


def _span_context_in(header: object) -> SpanContext:
    return _parent_in(header).span.get_span_context()


def _parent_in(header: object) -> Parent:
    """Return the parent that a header names, whatever is in it."""
    if not isinstance(header, dict):
        return NO_PARENT
    parent, state = header.get("traceparent"), header.get("tracestate")
    if not isinstance(parent, str):
        return NO_PARENT
    return _extracted(parent, state if isinstance(state, str) else "")


# Links to one publish are many.
@lru_cache(maxsize=256)
def _extracted(parent: str, state: str) -> Parent:
    carrier = {"traceparent": parent, "tracestate": state}
    span = trace.get_current_span(W3C.extract(carrier, NOTHING))
    return _parent_of(span) if span.get_span_context().is_valid else NO_PARENT

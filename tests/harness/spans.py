"""Spans: what a process records goes to a file, and is read back from there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

# The variable that names the file, for workers that a test starts, too.
PATH = "PGQUEUE_TEST_SPANS"

# Milliseconds: longer than any test. What is exported, is so at the end of a process.
NEVER = 600_000


@dataclass(frozen=True)
class Seen:
    """One span."""

    name: str
    kind: str
    trace: int
    id: int
    parent: int | None
    links: list[int]
    status: str
    events: list[str]
    attributes: dict[str, Any]
    said: str
    pid: int


class Exporter(SpanExporter):
    """Appends to the file, if one is named."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write a line for each."""
        path = os.environ.get(PATH)
        if path is not None:
            with Path(path).open("a") as file:
                file.write("".join(f"{json.dumps(_as_data(each))}\n" for each in spans))
        return SpanExportResult.SUCCESS


def record(*, at_once: bool) -> None:
    """Export what this process records: at once, or when it ends."""
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(Exporter())
        if at_once
        else BatchSpanProcessor(Exporter(), schedule_delay_millis=NEVER)
    )
    trace.set_tracer_provider(provider)


class Spans:
    """Those of one test."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self, begins: str = "") -> list[Seen]:
        """Return those whose name begins so, in the order of their ends."""
        text = self._path.read_text() if self._path.exists() else ""
        found = [Seen(**json.loads(line)) for line in text.splitlines()]
        return [span for span in found if span.name.startswith(begins)]

    def one(self, name: str) -> Seen:
        """Return the only one of this name."""
        (span,) = [span for span in self.all(name) if span.name == name]
        return span


def recorded_in(path: Path, monkeypatch: Any) -> Spans:
    """Record what this process does, and those that it starts."""
    monkeypatch.setenv(PATH, str(path))
    record(at_once=True)
    return Spans(path)


def request(*, is_sampled: bool = True) -> AbstractContextManager[Any]:
    """Be the span of a request, or what comes of one that is not sampled."""
    if is_sampled:
        return trace.get_tracer("tests").start_as_current_span("GET /")
    ids = RandomIdGenerator()
    context = trace.SpanContext(
        ids.generate_trace_id(), ids.generate_span_id(), is_remote=False
    )
    return trace.use_span(trace.NonRecordingSpan(context))


def _as_data(span: ReadableSpan) -> dict[str, Any]:
    assert span.context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": span.context.trace_id,
        "id": span.context.span_id,
        "parent": span.parent.span_id if span.parent else None,
        "links": [link.context.span_id for link in span.links],
        "status": span.status.status_code.name,
        "events": [event.name for event in span.events],
        "attributes": dict(span.attributes or {}),
        "said": repr([dict(event.attributes or {}) for event in span.events]),
        "pid": os.getpid(),
    }

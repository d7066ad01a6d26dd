"""Fixtures of the acceptance tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.spans import Spans, recorded_in
from tests.harness.worker_process import (
    StartWorker,
    WorkerProcess,
    start_worker,
    the_ledger,
)

__all__ = ["start_worker", "the_ledger"]

TRACED = {
    "TRACE": True,
    "TASK_MODULES": ["tasks", "span_tasks", "span_subscriber_tasks"],
}


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that gated tasks wait for; ``gate.touch()`` opens it."""
    return tmp_path / "gate"


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Spans:
    """Record spans in this process, with tracing on."""
    settings.PGQUEUE = {"TRACE": True}
    return recorded_in(tmp_path / "spans", monkeypatch)


@pytest.fixture
def start_traced(start_worker: StartWorker) -> Callable[..., WorkerProcess]:
    """Start a worker that traces what it runs."""

    def start(*arguments: str, **options: Any) -> WorkerProcess:
        return start_worker(*arguments, pgqueue=TRACED, **options)

    return start

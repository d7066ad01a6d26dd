"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crashes.failpoints import Failpoint
from tests.harness.worker_process import start_worker, the_ledger

__all__ = ["start_worker", "the_ledger"]


@pytest.fixture
def failpoint(tmp_path: Path) -> Callable[..., Failpoint]:
    """A factory of failpoints that keep their files in the test's folder."""

    def failpoint(point: str, **options: Any) -> Failpoint:
        return Failpoint(point, folder=tmp_path, **options)

    return failpoint


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that gated tasks wait for; ``gate.touch()`` opens it."""
    return tmp_path / "gate"

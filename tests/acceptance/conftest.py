"""Fixtures of the acceptance tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.worker_process import start_worker, the_ledger

__all__ = ["start_worker", "the_ledger"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that gated tasks wait for; ``gate.touch()`` opens it."""
    return tmp_path / "gate"

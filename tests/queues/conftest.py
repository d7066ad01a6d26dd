"""The job table as a planner finds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Cursor


@pytest.fixture
def unanalysed(cursor: Cursor) -> Iterator[None]:
    """The job table as the planner sees it before anybody has looked at it."""
    cursor.execute("ALTER TABLE pgqueue_job SET (autovacuum_enabled = off)")
    cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'pgqueue_job'::regclass")
    cursor.execute("TRUNCATE pgqueue_job")
    yield
    cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'pgqueue_job'::regclass")
    cursor.execute("ALTER TABLE pgqueue_job RESET (autovacuum_enabled)")

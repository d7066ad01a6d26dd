"""The job table as a planner finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Cursor

FORGET = "DELETE FROM pg_statistic WHERE starelid = 'pgqueue_job'::regclass"
SIZES = """
SELECT relpages, reltuples, oid FROM pg_class
 WHERE oid = 'pgqueue_job'::regclass
    OR oid IN (SELECT indexrelid FROM pg_index
                WHERE indrelid = 'pgqueue_job'::regclass)
"""
SET_SIZES = "UPDATE pg_class SET relpages = %s, reltuples = %s WHERE oid = %s"


@pytest.fixture
def unanalysed(cursor: Cursor) -> Iterator[Callable[[], None]]:
    """
    The job table as the planner sees it before anybody has looked at it.

    A function that makes the planner forget again what it was told since.
    """
    cursor.execute("ALTER TABLE pgqueue_job SET (autovacuum_enabled = off)")
    cursor.execute(FORGET)
    cursor.execute("TRUNCATE pgqueue_job")
    sizes = cursor.execute(SIZES).fetchall()

    def forget() -> None:
        cursor.execute(FORGET)
        cursor.executemany(SET_SIZES, sizes)

    yield forget
    cursor.execute(FORGET)
    cursor.execute("ALTER TABLE pgqueue_job RESET (autovacuum_enabled)")

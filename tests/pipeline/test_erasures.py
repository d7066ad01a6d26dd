"""Pages of an erasure: what they cost, and what they find."""

from __future__ import annotations

import pytest

from django_pgqueue.pipeline import erasures
from django_pgqueue.pipeline.erasures import LETTERS, Sought

pytestmark = pytest.mark.django_db

FILL = """
INSERT INTO pgqueue_dead_letter (id, task, kwargs, reason, finished_at)
SELECT n, 't', jsonb_build_object('customer', n % 1000), 'exhausted', now()
  FROM generate_series(1, 20000) AS n
"""


class Explained:
    """A cursor that tells the plan of what it runs."""

    def __init__(self, cursor):
        self._cursor = cursor
        self.plan = ""

    def execute(self, statement, values):
        self._cursor.execute(b"EXPLAIN " + statement.as_bytes(self._cursor), values)
        self.plan = "\n".join(row[0] for row in self._cursor.fetchall())

    def fetchone(self):
        return 0, 0


@pytest.mark.parametrize("act", ["count_page", "delete_page"])
def test_a_page_is_found_by_the_primary_key(cursor, act):
    """However few of its rows are sought: nothing reads or sorts the whole table."""
    sought = Sought("kwargs", ("customer",), 42, "")
    cursor.execute(FILL)
    cursor.execute("ANALYZE pgqueue_dead_letter")
    explained = Explained(cursor)

    getattr(erasures, act)(explained, LETTERS, sought, after=0)

    assert "pgqueue_dead_letter_pkey" in explained.plan
    assert "Seq Scan" not in explained.plan
    assert "Sort" not in explained.plan
    last, found = getattr(erasures, act)(cursor, LETTERS, sought, after=0)
    assert (5_000, 5) == (last, found)

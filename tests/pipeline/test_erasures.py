"""Pages of an erasure: what they cost, and what they find."""

from __future__ import annotations

import pytest

from django_pgqueue.pipeline import erasures
from django_pgqueue.pipeline.erasures import LETTERS, LOG, PAYLOAD, Sought

pytestmark = pytest.mark.django_db

FILL = """
INSERT INTO pgqueue_dead_letter (id, task, kwargs, reason, finished_at)
SELECT n, 't', jsonb_build_object('customer', n % 1000), 'exhausted', now()
  FROM generate_series(1, 20000) AS n
"""


FILL_LOG = """
INSERT INTO pgqueue_topic (id, name) VALUES (7, 'orders');
INSERT INTO pgqueue_message (id, topic_id, partition, name, payload)
SELECT n, 7, 0, 'orders', jsonb_build_object('customer', n % 1000)
  FROM generate_series(1, 20000) AS n;
INSERT INTO pgqueue_consumer_group (id, topic_id, topic, name, task)
VALUES (1, 7, 'orders', 'totals', 't'), (2, 7, 'orders', 'others', 't');
UPDATE pgqueue_consumer_group SET payload_filter = '{"customer": 1}' WHERE id = 2;
INSERT INTO pgqueue_position (group_id, partition, position)
VALUES (1, 0, 3000), (2, 0, 0)
"""


class Explained:
    """A cursor that tells the plan of what it runs."""

    def __init__(self, cursor):
        self._cursor = cursor
        self.plan = ""

    def execute(self, statement, values):
        text = statement.as_bytes(self._cursor)
        self._cursor.execute(b"EXPLAIN " + text, values)
        self.plan = "\n".join(row[0] for row in self._cursor.fetchall())

    def fetchall(self):
        return []

    def fetchone(self):
        return 0, 0, None


@pytest.mark.parametrize("act", ["page", "delete_page"])
def test_a_page_is_found_by_the_primary_key(cursor, act):
    """However few of its rows are sought: nothing reads or sorts the whole table."""
    sought = Sought("kwargs", ("customer",), 42, "")
    cursor.execute(FILL)
    cursor.execute("ANALYZE pgqueue_dead_letter")
    explained = Explained(cursor)

    getattr(erasures, act)(explained, LETTERS, sought, after=0, messages=[7])

    assert "pgqueue_dead_letter_pkey" in explained.plan
    assert "Seq Scan on pgqueue_dead_letter" not in explained.plan
    assert "Sort" not in explained.plan
    page = getattr(erasures, act)(cursor, LETTERS, sought, after=0)
    assert (5_000, 5) == (page.last, page.rows)


def test_messages_are_found_and_deleted_by_the_primary_key(cursor):
    """Of a day of the log, a page at a time, whatever topics it has; those that a group
    has still to read are told apart."""
    cursor.execute(FILL_LOG)
    (table,) = {
        name
        for name in erasures.day_tables(cursor, LOG)
        if cursor.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()
    }
    cursor.execute(f"ANALYZE {table}")
    sought = Sought(PAYLOAD, ("customer",), 42, "")
    plans = []
    for act in (
        lambda on: erasures.find_messages(on, table, sought, after=0),
        lambda on: erasures.delete_messages(on, table, [42, 1042]),
    ):
        explained = Explained(cursor)
        act(explained)
        plans.append(explained.plan)

    for plan in plans:
        assert f"{table}_pkey" in plan
        assert f"Seq Scan on {table}" not in plan
    assert "Sort" not in plans[0]
    last, theirs, unread = erasures.find_messages(cursor, table, sought, after=0)
    assert (5_000, [42, 1_042, 2_042, 3_042, 4_042]) == (last, theirs)
    assert [3_042, 4_042] == unread
    gone = erasures.delete_messages(cursor, table, theirs)
    assert {"orders": (5, 42, 4_042)} == gone

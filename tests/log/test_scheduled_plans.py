"""What messages for later and the inbox cost does not grow with what waits in them."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.log import scheduled
from django_pgqueue.queues import inbox
from tests.queues.test_plans import PLACEHOLDER, explain, nodes, parameters

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 50_000
FILL = """
INSERT INTO pgqueue_scheduled_message (topic, name, payload, run_after, due_at)
SELECT 't', 't.' || n, '1', at, at
  FROM generate_series(1, %(rows)s) n,
       LATERAL (SELECT now() + (n - 100) * interval '1 s' AS at) moment;
INSERT INTO pgqueue_inbox (source, external_id, received_at)
SELECT 's' || n %% 7, 'evt_' || n, now() - interval '8 days' + n * interval '10 s'
  FROM generate_series(1, %(rows)s) n;
"""
BUFFERS_MAX = {
    **{(scheduled, name): 40 for name in ("NEXT", "NEXT_FREE", "OVERDUE")},
    # A hundred rows, which are locked.
    (scheduled, "DUE"): 500,
    **{(scheduled, name): 500 for name in ("PUT_OFF", "CANCEL", "STORE")},
    # Besides, it makes a topic, and functions plan at their first call in a session.
    (scheduled, "PUBLISH"): 2_500,
    (inbox, "NOTE"): 200,
    # A thousand rows, and their entries in three indexes.
    (inbox, "PURGE"): 8_000,
}


@pytest.mark.parametrize("analysed", [False, True])
def test_statements_touch_few_pages(cursor, analysed):
    """Whatever waits, with statistics and without; none reads a table as a whole."""
    with connection.cursor() as filling:
        filling.execute(FILL, {"rows": ROWS})
        if analysed:
            filling.execute("ANALYZE pgqueue_scheduled_message, pgqueue_inbox")
        filling.execute("SELECT max(id) FROM pgqueue_scheduled_message")
        (first,) = filling.fetchone()
    for (module, name), most in BUFFERS_MAX.items():
        prefix = "log." if module is scheduled else ""
        called = f"{prefix}{module.__name__.rpartition('.')[2]}.{name}"
        values = parameters(called) | {"limit": 1_000, "ids": [first], "floor": None}
        statement = getattr(module, name)
        with cursor.connection.transaction():
            if name in ("DUE", "PUT_OFF"):
                scheduled.prepare(cursor)
            plan = explain(
                cursor,
                statement,
                {key: values[key] for key in PLACEHOLDER.findall(statement)},
                how="ANALYZE, BUFFERS, FORMAT JSON",
            )
        used = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert used <= most, (name, used, plan)
        scans = {
            n.get("Relation Name") for n in nodes(plan) if n["Node Type"] == "Seq Scan"
        }
        assert not scans & {"pgqueue_scheduled_message", "pgqueue_inbox"}, name

"""Plans: what a settle reads of the steps, however many there are."""

from __future__ import annotations

import pytest

from django_pgqueue import chain, group
from django_pgqueue.postgres.connect import STEADY
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.settle import Ended, ack, dead_letter
from tests.app.saga_tasks import order
from tests.app.workflow_tasks import give
from tests.harness.factories import LEASE

pytestmark = pytest.mark.django_db(transaction=True)

# In this transaction. Of an index only what was fetched from the table.
READ = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_xact_user_tables
 WHERE relname IN ('pgqueue_step', 'pgqueue_workflow', 'pgqueue_dead_letter')
"""

OTHERS = 5_000
READ_MAX = 200


def settle(cursor, verb):
    """Settle one job as a worker does; return how many rows that read."""
    (job,) = claim(cursor, queues=["default"], worker="w", limit=1, lease=LEASE)
    with cursor.connection.transaction():
        before = cursor.execute(READ).fetchone()[0] or 0
        ended = Ended(job.id, job.delivery, result="1", reason="exhausted")
        assert {job.id} == verb(cursor, worker="w", ended=[ended])
        return cursor.execute(READ).fetchone()[0] - before


@pytest.mark.parametrize("verb", [ack, dead_letter])
def test_a_settle_reads_the_steps_of_its_own_workflows(verb, new_cursor):
    """The sessions of workers turn nested loops off, which would read all of them."""
    later = give.using(run_after="1h")
    chain(later.si(0), group(later.si(n) for n in range(OTHERS))).delay()
    cursor = new_cursor()
    cursor.execute("ANALYZE pgqueue_step, pgqueue_workflow, pgqueue_dead_letter")
    cursor.execute(STEADY)
    order.start(order_id=1, amount=1)

    assert settle(cursor, verb) < READ_MAX

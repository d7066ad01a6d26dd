"""pgqueue_client, of roles.sql: the verbs of pull queues, and nothing else."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])


DAYS = """
SELECT inhrelid::regclass::text FROM pg_inherits
 WHERE inhparent = 'pgqueue_archived_job'::regclass
"""


@pytest.fixture
def client(place):
    """A session that may execute the functions, and read no table."""
    with place.connect("client") as client:
        yield client


def test_it_needs_execute_alone(client, place):
    """From the queue's declaration to the ack, with a day that nobody has made."""
    with place.connect() as owner:
        for (day,) in owner.execute(DAYS).fetchall():
            owner.execute(f"DROP TABLE {day}")
    client.execute("SELECT pgqueue_declare_queue('parcels', 60, 2)")
    client.execute(
        "SELECT pgqueue_send('parcels', '1', lane => 'a', dedup_key => NULL)"
    )
    client.execute("SELECT pgqueue_send('parcels', '2', dedup_key => 'k')")
    client.execute("SELECT pgqueue_send_many('parcels', '[3, 4]')")
    receive = "SELECT receipt FROM pgqueue_receive('parcels', 10)"
    receipts = [receipt for (receipt,) in client.execute(receive).fetchall()]
    assert 4 == len(receipts)
    assert client.execute("SELECT pgqueue_due_in('parcels')").fetchone()[0] > 50

    def answer(verb, receipt, *more):
        places = ", %s" * len(more)
        call = f"SELECT {verb}(%s{places})"
        return client.execute(call, [receipt, *more]).fetchone()[0]

    assert {"done": 1, "stale": []} == answer("pgqueue_extend", receipts[0], 60)
    assert {"done": 1, "stale": []} == answer("pgqueue_ack", receipts[0])
    assert {"done": 1, "stale": []} == answer("pgqueue_reject", receipts[1], "no")
    given = answer("pgqueue_nack", receipts[2])
    assert {"done": 1, "dead": 0, "stale": []} == given
    assert {"done": 0, "stale": [receipts[0]]} == answer("pgqueue_ack", receipts[0])

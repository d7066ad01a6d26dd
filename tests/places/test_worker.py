"""pgqueue_worker, of roles.sql, beside producers and the owner."""

from __future__ import annotations

import pytest

from django_pgqueue.conf import parse
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.rights import rights
from django_pgqueue.worker.chores import backlogs, purger
from django_pgqueue.worker.chores.backlogs import Backfills
from django_pgqueue.worker.chores.overdue import repeat
from django_pgqueue.worker.chores.watch import Watch
from tests.places import core

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])


@pytest.mark.parametrize("kind", [None, "worker"])
def test_the_core_runs_in_its_own_place(kind, place, log_in, start_worker, the_ledger):
    """
    In another database than the project's, in a schema that is not first in the path.

    Enqueued by who may only enqueue; run by the owner, or by who owns nothing.
    """
    log_in("producer")
    core.enqueue()

    worker = start_worker(
        databases={"queue": place.database(kind)},
        pgqueue={"DATABASE": "queue", "TASK_MODULES": core.MODULES},
    )
    sent = core.publish_more()

    with place.connect() as owner:
        core.ends(owner, the_ledger, sent)
    assert [] == worker.lines("permission denied|ERROR")
    assert 0 == worker.stop()


LACKING = """
SELECT c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace = 'queue'::regnamespace AND c.relkind IN ('r', 'p')
   AND c.relname ~ '^pgqueue_' AND NOT c.relispartition
   AND EXISTS (SELECT FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) act
                WHERE NOT has_table_privilege(c.oid, act))
UNION ALL
SELECT c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace = 'queue'::regnamespace AND c.relkind = 'S'
   AND c.relname ~ '^pgqueue_' AND NOT CASE
       WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'SELECT') END
UNION ALL
SELECT p.oid::regprocedure::text FROM pg_proc p
 WHERE p.pronamespace = 'queue'::regnamespace
   AND NOT has_function_privilege(p.oid, 'EXECUTE')
   AND p.proname <> 'pgqueue_make_day'  -- Its callers run as their owner.
"""


def test_the_file_names_all_that_there_is(place):
    """Tables, sequences, functions: what a migration adds has to be added there."""
    with place.connect("worker") as login:
        lacking = login.execute(LACKING).fetchall()
        assert not lacking, " ".join(name for (name,) in lacking)


def test_its_leader_does_every_chore_and_keeps_days_that_are_over(log_in, caplog):
    """What stands in the way of that is told beforehand, with what to do."""
    caplog.set_level("WARNING", "django_pgqueue.worker")
    log_in("worker")
    settings = parse(
        {
            "DATABASE": "queue",
            "RETENTION": {"log": "7d", "archive": "7d", "dead_letters": "7d"},
            "QUEUES": {"mail": {"depth_max": 5}},
        }
    )
    link = Link("queue", name="tests")
    try:
        found = rights(link.cursor())
        for chore in [
            repeat,
            *backlogs.chores(settings),
            *purger.chores(settings),
            Backfills(),
            Watch(),
        ]:
            chore(link)
    finally:
        link.drop()

    assert (True, False) == (found.makes, found.owns)
    assert "GRANT" in found.way_out
    assert [] == [line for line in caplog.messages if not line.startswith("kept")]

"""PgBouncer in transaction mode between the queue and everybody who uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_pgqueue.postgres.connect import connect
from tests.app import crash_tasks
from tests.harness.pgbouncer import POOL_SIZE, PgBouncer
from tests.places import core
from tests.places.place import PASSWORD, PATH, as_queue

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])

# Of a client that keeps its connections, and looks whether they live.
KEPT = {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
POLLS = {"LISTEN": False, "POLL_INTERVAL_SECONDS": 0.5}

SERVERS = """
SELECT count(*)::int FROM pg_stat_activity
 WHERE datname = current_database() AND usename = %s
"""


@pytest.fixture(scope="module")
def bouncer(one_place: Any, django_db_blocker: Any) -> Iterator[PgBouncer]:
    """PgBouncer, which has four connections for each of the logins."""
    with django_db_blocker.unblock():
        connection.ensure_connection()
        info = connection.connection.info
        host, port = info.host, info.port
    users = dict.fromkeys(one_place.logins.values(), PASSWORD)
    with PgBouncer(host, port, users) as bouncer:
        yield bouncer


@pytest.fixture
def pooled(place, bouncer):
    """``pooled("worker")``: an entry of DATABASES that leads through it."""
    # It does not pass on what OPTIONS would say.
    with place.connect() as owner:
        owner.execute(f'ALTER DATABASE "{place.name}" SET search_path = {PATH}')

    def pooled(kind, *, pool=None, **changes):
        ours = place.database(kind)
        leads = {"host", "port", "options"}
        kept = {name: it for name, it in ours["OPTIONS"].items() if name not in leads}
        options = kept if pool is None else {**kept, "pool": pool}
        return {
            **ours,
            **bouncer.address,
            "DISABLE_SERVER_SIDE_CURSORS": True,
            "OPTIONS": options,
            **changes,
        }

    yield pooled
    with place.connect() as owner:
        owner.execute(f'ALTER DATABASE "{place.name}" RESET search_path')
    bouncer.ask("RECONNECT")


CLIENTS = {
    "polls, and keeps connections": KEPT,
    "listens directly, and has a pool": {"pool": {"min_size": 1, "max_size": 4}},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_core_runs_through_it(
    client, pooled, place, settings, start_worker, the_ledger
):
    """Enqueued and run on four connections each, whatever Django does with its own."""
    settings.PGQUEUE = {"DATABASE": "queue"}
    databases, told = {"queue": pooled("worker", **CLIENTS[client])}, POLLS
    listens = client.startswith("listens directly")
    if listens:
        databases["direct"] = place.database("worker")
        told = {"LISTEN_DATABASE": "direct"}
    with as_queue(pooled("producer", **CLIENTS[client])):
        core.enqueue()
        worker = start_worker(
            databases=databases,
            pgqueue={"DATABASE": "queue", "TASK_MODULES": core.MODULES, **told},
        )
        sent = core.publish_more()
        with place.connect() as owner:
            core.ends(owner, the_ledger, sent)
            (shared,) = owner.execute(SERVERS, [place.logins["worker"]]).fetchone()

    assert 1 <= shared <= POOL_SIZE + listens
    assert [] == worker.lines("denied|ERROR|prepared|deaf|pooler")
    assert 0 == worker.stop()


def test_a_worker_outlives_what_operators_do_to_it(
    pooled, place, bouncer, settings, start_worker, the_ledger
):
    """Its connections are replaced, and its clients are cut off, while jobs run."""
    settings.PGQUEUE = {"DATABASE": "queue"}
    with as_queue(pooled("producer")):
        crash_tasks.record.bulk([{}] * 300)
        start_worker(
            databases={"queue": pooled("worker")},
            pgqueue={"DATABASE": "queue", **POLLS},
        )
        bouncer.ask("RECONNECT")
        bouncer.ask(f'KILL "{place.name}"')
        bouncer.ask(f'RESUME "{place.name}"')

    with place.connect() as owner:
        core.wait_until_none_waits(owner)
        (ended,) = owner.execute(core.ENDED, [crash_tasks.record.name]).fetchall()
    assert ("succeeded", 300) == ended


def test_a_worker_refuses_a_role_whose_isolation_it_cannot_set(
    pooled, place, start_worker
):
    """What it sets for its session would be others', and not its own for long."""
    login = place.logins["worker"]
    strict = f"ALTER ROLE {login} SET default_transaction_isolation"
    with place.connect() as owner:
        owner.execute(f"{strict} = 'serializable'")
        try:
            worker = start_worker(
                databases={"queue": pooled("worker")},
                pgqueue={"DATABASE": "queue", **POLLS},
                wait=False,
            )
            assert 1 == worker.wait()
            with as_queue(pooled("worker")), connect("queue", name="tests") as session:
                row = session.execute("SHOW default_transaction_isolation").fetchone()
        finally:
            owner.execute(f"ALTER ROLE {login} RESET default_transaction_isolation")

    (line,) = worker.lines("CommandError|read committed")
    assert f"ALTER ROLE {login} SET default_transaction_isolation" in line
    assert ("serializable",) == row

"""Clean-up: nothing of one job's connections leaks into the next."""

from __future__ import annotations

from threading import Lock
from types import SimpleNamespace

import pytest
from django.db import connection, connections, transaction
from django.db.backends.postgresql import base as postgresql
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_pgqueue.topics.captured import Captured
from django_pgqueue.worker.run import isolation as module
from django_pgqueue.worker.run.isolation import (
    clean_after_job,
    clean_connections,
    watch_connections,
)
from tests.app.models import Order

pytestmark = pytest.mark.django_db(transaction=True)


def backend():
    """Return the server's process of this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def is_usable():
    """Write a row and see that it is committed: no transaction is left open."""
    Order.objects.create(name="next job")
    status = connection.connection.info.transaction_status
    return status == TransactionStatus.IDLE and not connection.in_atomic_block


def test_a_good_connection_is_kept():
    """Jobs of one thread share it, as requests do."""
    before = backend()
    connection.close_at = None

    clean_connections()

    assert before == backend()


def test_a_connection_that_the_server_has_ended_is_replaced(cursor):
    """The next job does not pay for it."""
    pid = backend()
    connection.close_at = None
    cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    connection.errors_occurred = True

    clean_connections()

    assert is_usable()


def leave_autocommit_off():
    connection.set_autocommit(False)
    Order.objects.create(name="never committed")


def leave_a_raw_transaction():
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Order.objects.create(name="never committed")


def leave_an_atomic_block():
    transaction.atomic().__enter__()
    Order.objects.create(name="never committed")
    transaction.on_commit(lambda: pytest.fail("a hook of another job ran"))


def leave_a_broken_transaction():
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        with pytest.raises(Exception, match="division by zero"):
            cursor.execute("SELECT 1 / 0")


@pytest.mark.parametrize(
    "leave",
    [
        leave_autocommit_off,
        leave_a_raw_transaction,
        leave_an_atomic_block,
        leave_a_broken_transaction,
    ],
)
def test_a_transaction_that_was_left_open_is_rolled_back(leave):
    """The next job writes, and commits, as if nothing had been."""
    connection.ensure_connection()
    # As with CONN_MAX_AGE = None: its age is no reason to close it.
    connection.close_at = None
    leave()

    clean_connections()

    assert is_usable()
    with transaction.atomic():
        Order.objects.create(name="in a transaction")
    assert ["in a transaction", "next job"] == sorted(
        Order.objects.values_list("name", flat=True)
    )


def test_it_never_raises(monkeypatch, caplog):
    """The outcome of the job before is still to be settled; the rest is cleaned."""

    def fail(connection):
        raise ZeroDivisionError

    connection.ensure_connection()
    raw = connection.connection
    monkeypatch.setattr(module, "_clean", fail)

    clean_connections()

    assert connection.connection is None
    assert "closing    alias=default error=ZeroDivisionError()" in caplog.messages
    raw.close()


# Sessions ----------------------------------------------------------------------------


@pytest.fixture
def watched():
    """This thread's connection, watched as in a worker."""
    connection.close()
    watch_connections()
    connection.ensure_connection()
    connection.close_at = None
    yield connection
    connection_created.disconnect(dispatch_uid="django_pgqueue.cleanup")
    connection.close()


def test_a_session_that_a_job_has_changed_is_replaced(watched):
    """The next job gets a new one."""
    before = backend()
    with connection.cursor() as cursor:
        cursor.execute("SET test.custom = 'left'")

    clean_connections()

    assert before != backend()
    assert is_usable()


def test_a_session_that_a_job_has_used_is_kept(watched):
    """Transactions, savepoints and queries are what it is for."""
    before = backend()
    with transaction.atomic(), transaction.atomic():
        Order.objects.create(name="x")
    list(Order.objects.filter(name="x").select_for_update(of=("self",)).none())

    clean_connections()

    assert before == backend()


class TenantWrapper(postgresql.DatabaseWrapper):
    """An engine that keeps a schema, as that of django-tenants does."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.set_schema("public")

    def set_schema(self, name):
        self.schema, self.tenant = name, SimpleNamespace(name=name)


@pytest.fixture
def tenant(watched, monkeypatch):
    """This thread's connection, of that engine."""
    plain = connections["default"]

    def create(alias):
        wrapper = TenantWrapper(plain.settings_dict, alias)
        wrapper.inc_thread_sharing()
        return wrapper

    monkeypatch.setattr(connections, "create_connection", create)
    connections["default"] = create("default")
    connection.ensure_connection()
    connection.close_at = None
    yield connection
    connection.close()
    connections["default"] = plain


def test_the_tenant_of_a_job_ends_with_it(tenant):
    """Whether it has sent a query or not; who changes nothing keeps the connection."""
    before = backend()
    clean_connections()
    assert before == backend()
    tenant.set_schema("acme")

    clean_connections()

    assert ("public", "public") == (tenant.schema, tenant.tenant.name)
    assert is_usable()


def test_a_tenant_ends_with_its_job_also_before_the_first_query(tenant):
    """Of a thread that has not connected yet, and again of the new connection."""
    connection.close()
    del connections["default"]
    module.opened.connections.clear()
    module.opened.pristine.clear()
    module.prepare_thread()

    for name in ("acme", "other"):
        connection.set_schema(name)
        clean_after_job()
        assert "public" == connection.schema


def test_what_no_two_connections_have_alike_keeps_none_from_being_kept(
    tenant, monkeypatch
):
    """Such as a lock, by which each job would connect anew."""
    monkeypatch.setattr(
        TenantWrapper,
        "set_schema",
        lambda wrapper, name: setattr(wrapper, "own", Lock()),
    )
    connection.close()
    del connections["default"]
    before = backend()
    connection.close_at = None

    clean_connections()

    assert before == backend()


def test_cursors_that_a_job_left_open_are_closed(watched):
    """The connection is kept: iterator() is an ordinary thing to use."""
    before = backend()
    # As iterator() does it, without a cursor object that warns when it is dropped.
    connection._named_cursor_idx += 1
    connection.connection.pgconn.exec_(b"DECLARE c CURSOR WITH HOLD FOR SELECT 1")

    clean_connections()

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_cursors WHERE is_holdable")
        assert (0,) == cursor.fetchone()
    assert before == backend()


def test_wrappers_that_a_job_left_around_statements_are_removed(watched):
    """They would see the next job's. The one of captures stays."""
    connection.execute_wrappers.append(lambda execute, *args: execute(*args))

    clean_connections()

    assert [Captured] == [*map(type, connection.execute_wrappers)]

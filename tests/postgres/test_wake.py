"""Wake: one NOTIFY per queue right after the commit, and never inside it."""

from __future__ import annotations

import logging

import pytest
from django.db import connection, transaction

from django_pgqueue.postgres import wake as module
from django_pgqueue.postgres.wake import (
    WAKE_INTERVAL_SECONDS,
    Pace,
    channel,
    listen,
    prove,
    wake_after_commit,
)
from tests.harness.notices import heard_until_now

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_sent_yet(monkeypatch):
    """What earlier tests have sent must not swallow a wake of this one."""
    monkeypatch.setattr(module, "_pace", Pace())


@pytest.fixture
def a_quick_server(monkeypatch):
    """A NOTIFY takes no time, however busy this machine is."""
    monkeypatch.setattr(module._send, "__defaults__", (lambda: 100.0,))


@pytest.fixture
def a_stream(monkeypatch):
    """Every second commit of this process is one of a stream."""
    monkeypatch.setattr(module, "STREAM_SECONDS", 0.0)


@pytest.fixture
def heard(cursor):
    """A function that returns the queues woken since it was last called."""
    listen(cursor, [name := channel(cursor)])
    return lambda: heard_until_now(cursor.connection, name)


# After the commit --------------------------------------------------------------------


def test_a_wake_comes_after_the_commit_and_not_before(heard):
    """A listener that hears it finds the job."""
    with transaction.atomic():
        wake_after_commit(connection, "mail")
        before = heard()

    assert ([], ["mail"]) == (before, heard())


def test_a_wake_is_never_part_of_the_callers_transaction(heard):
    """The transaction has not notified, so its commit takes no cluster-wide lock."""
    statements = []

    def record(execute, sql, params, many, context):
        statements.append((sql, connection.in_atomic_block))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(record):
        with transaction.atomic():
            wake_after_commit(connection, "mail")
        assert [(module.NOTIFY, False)] == [
            entry for entry in statements if "pg_notify" in entry[0]
        ]
    assert ["mail"] == heard()


def test_outside_of_a_transaction_a_wake_is_sent_at_once(heard):
    """In autocommit the job is committed already."""
    wake_after_commit(connection, "mail")

    assert ["mail"] == heard()


def test_a_transaction_wakes_each_queue_once(heard):
    """However many jobs it has stored."""
    with transaction.atomic():
        for _ in range(50):
            wake_after_commit(connection, "mail")
            wake_after_commit(connection, "reports")

    assert ["mail", "reports"] == sorted(heard())


def test_a_rolled_back_transaction_wakes_nobody(heard):
    """There is nothing to find."""
    with transaction.atomic():
        wake_after_commit(connection, "mail")
        transaction.set_rollback(True)

    assert [] == heard()


# Savepoints and other hooks ----------------------------------------------------------


def test_a_savepoint_that_rolls_back_takes_only_its_own_wake(heard):
    """A job stored after it, in the same queue, still wakes its workers."""
    with transaction.atomic():
        with transaction.atomic():
            wake_after_commit(connection, "mail")
            transaction.set_rollback(True)
        wake_after_commit(connection, "mail")

    assert ["mail"] == heard()


def test_a_wake_that_fails_does_not_fail_the_caller(heard, monkeypatch, caplog):
    """The job is committed; a hint is not worth a request. It is logged."""
    monkeypatch.setattr(module, "NOTIFY", "SELECT pg_notify(no_such_channel())")

    with caplog.at_level(logging.WARNING), transaction.atomic():
        wake_after_commit(connection, "mail")

    assert ["wake failed queue=mail"] == [
        record.getMessage()[:22] for record in caplog.records
    ]
    assert [] == heard()
    monkeypatch.undo()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


# Transactions that Django does not know of -------------------------------------------


def test_inside_a_raw_begin_nothing_is_sent(heard):
    """Django's hook runs inside the transaction there; the poll finds the job."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        wake_after_commit(connection, "mail")
        cursor.execute("COMMIT")

    assert [] == heard()


# Coalescing --------------------------------------------------------------------------


MAIL = "default", "mail"


@pytest.mark.usefixtures("a_quick_server")
def test_commits_that_come_one_by_one_are_each_announced(heard):
    """A worker that is idle hears of each at once."""
    for _ in range(5):
        with transaction.atomic():
            wake_after_commit(connection, "mail")
        wake_after_commit(connection, "reports")

    assert ["mail", "reports"] * 5 == heard()


@pytest.mark.usefixtures("a_stream")
def test_a_stream_sends_one_notify_per_queue(heard, monkeypatch):
    """Within ten milliseconds of one process; a later one is sent."""
    now = [100.0]
    monkeypatch.setattr(module._send, "__defaults__", (lambda: now[0],))

    for queue in ("mail", "reports", "mail", "mail"):
        wake_after_commit(connection, queue)
    assert ["mail", "reports"] == heard()
    now[0] += WAKE_INTERVAL_SECONDS * 0.9
    wake_after_commit(connection, "mail")
    assert [] == heard()
    now[0] += WAKE_INTERVAL_SECONDS * 0.2
    wake_after_commit(connection, "mail")
    assert ["mail"] == heard()


def sent(pace, times, took=0.0):
    """Return at which of *times* a commit is announced."""
    found = []
    for at in times:
        if pace.is_due(MAIL, at):
            found.append(at)
            pace.was_sent(MAIL, at, at + took)
    return found


@pytest.mark.parametrize(
    "per_second, seconds, least, most",
    [
        (20, 10.0, 200, 200),
        (500, 2.0, 1_000, 1_000),
        (4_000, 1.0, 90, 140),  # One in ten milliseconds, after the first thirty.
        (100_000, 1.0, 90, 140),
    ],
)
def test_a_stream_is_more_than_a_thousand_commits_a_second(
    per_second, seconds, least, most
):
    """What is slower is announced commit by commit."""
    times = [100 + n / per_second for n in range(int(per_second * seconds))]

    assert least <= len(sent(Pace(), times)) <= most


@pytest.mark.parametrize(
    "took, quiet",
    [
        (0.5, 0),  # The usual time, however long.
        (0.5005, 0),  # As it is on a machine with something to do.
        (0.501, 20),
        (0.502, 40),
        (0.7, 60),  # So that a worker still looks again after it.
    ],
)
def test_a_busy_server_is_woken_less_often(took, quiet):
    """Once many take longer than the quickest, twenty times the difference."""
    pace = Pace()
    times = [100 + n / 500 for n in range(10_000)]
    sent(pace, times[:10], 0.5)

    *_, first, second = sent(pace, times[10:], took)

    assert pytest.approx(max(quiet, 2), abs=2.1) == (second - first) * 1_000


def test_what_is_remembered_of_queues_is_bounded(heard, monkeypatch):
    """A million queue names do not fill the memory of a web process."""
    monkeypatch.setattr(module, "QUEUES_REMEMBERED_MAX", 3)

    for n in range(10):
        wake_after_commit(connection, f"q{n}")

    assert [f"q{n}" for n in range(10)] == heard()
    assert len(module._pace._streams) <= 3
    assert len(module._decided[connection.connection]) <= 3


# The statements ----------------------------------------------------------------------


def test_a_listener_hears_its_own_token(cursor):
    """The proof that LISTEN works goes through the server and back."""
    name = channel(cursor)
    listen(cursor, [name])

    prove(cursor, channel=name, token="token-1")

    heard = list(cursor.connection.notifies(timeout=10, stop_after=1))
    assert [(name, "token-1")] == [(notify.channel, notify.payload) for notify in heard]


def test_a_channel_has_the_name_of_its_schema(cursor):
    """So that two installations in one database do not wake each other."""
    assert "pgqueue_public" == channel(cursor)

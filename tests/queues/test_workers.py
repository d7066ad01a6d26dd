"""Workers: their rows, and which one of them leads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_pgqueue.models import Worker
from django_pgqueue.queues.workers import forget, heartbeat, lead, register

TERM = timedelta(seconds=30)


def add_worker(cursor, name):
    register(
        cursor,
        name=name,
        hostname="web-1",
        pid=42,
        queues=["mail"],
        threads=8,
        async_slots=100,
        version="0.1",
    )


def try_to_lead(cursor, name, term=TERM):
    with cursor.connection.transaction():
        return lead(cursor, name=name, term=term)


def test_a_worker_writes_who_it_is(cursor):
    """Name, host, process, queues, slots and version, for people to read."""
    add_worker(cursor, "a")

    worker = Worker.objects.get()
    assert ("a", "web-1", 42, ["mail"], 8, 100, "0.1", None) == (
        worker.name,
        worker.hostname,
        worker.pid,
        worker.queues,
        worker.threads,
        worker.async_slots,
        worker.version,
        worker.leader_until,
    )
    assert worker.started_at <= worker.heartbeat_at


def test_a_heartbeat_says_whether_the_row_is_still_there(cursor):
    """A worker whose row was purged registers again."""
    add_worker(cursor, "a")
    before = Worker.objects.get().heartbeat_at

    assert heartbeat(cursor, name="a")
    assert before < Worker.objects.get().heartbeat_at
    assert not heartbeat(cursor, name="purged")


def test_workers_that_have_stopped_are_forgotten(cursor):
    """Those that are named; a name that is unknown is no error."""
    for name in ("a", "b", "c"):
        add_worker(cursor, name)

    forget(cursor, ["a", "c", "unknown"])

    assert ["b"] == list(Worker.objects.values_list("name", flat=True))


def test_one_worker_leads(cursor):
    """Until its term is over, nobody else can; it may renew."""
    add_worker(cursor, "a")
    add_worker(cursor, "b")

    assert try_to_lead(cursor, "a")
    assert not try_to_lead(cursor, "b")
    assert try_to_lead(cursor, "a")


def test_a_leader_that_stopped_is_succeeded_at_once(cursor):
    """Its row goes when it stops, and its term with it."""
    add_worker(cursor, "a")
    add_worker(cursor, "b")
    try_to_lead(cursor, "a")

    forget(cursor, ["a"])

    assert try_to_lead(cursor, "b")


@pytest.mark.parametrize("_round", range(5))
def test_of_eight_that_ask_at_once_one_leads(cursor, new_cursor, _round):
    """The others are told no without waiting."""
    names = [f"worker-{n}" for n in range(8)]
    cursors = {name: new_cursor() for name in names}
    for name in names:
        add_worker(cursor, name)
    start = threading.Barrier(len(names))

    def ask(name):
        start.wait()
        return try_to_lead(cursors[name], name)

    with ThreadPoolExecutor(len(names)) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))

    leaders = [name for name, leads in answers.items() if leads]
    assert 1 == len(leaders)
    assert leaders == list(
        Worker.objects.exclude(leader_until=None).values_list("name", flat=True)
    )

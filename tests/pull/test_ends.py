"""What ends in a pull queue is counted as jobs are: in spans of tasks, and metrics."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest

from django_pgqueue.models import Job, TaskSpan
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.prometheus.families import of_worker
from django_pgqueue.pull.queue import queue
from django_pgqueue.queues import pull_ends, task_spans
from django_pgqueue.queues.task_spans import COUNTS
from django_pgqueue.worker.chores import counting as chore_module
from django_pgqueue.worker.chores.counting import Counting, PullEnds
from django_pgqueue.worker.tally import Tally
from tests.queues.test_plans import buffers, explain, nodes

MEASURED = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def parcels(declared_anew):
    return queue("parcels", visibility="60s", max_receives=3)


@pytest.fixture
def link(transactional_db):
    link = Link("default", name="tests: ends")
    yield link
    link.drop()


def spans(seconds=3_600, name="parcels"):
    """Return what spans of a length have counted, summed up: counts, waits and runs."""
    rows = TaskSpan.objects.filter(seconds=seconds, queue=name, task="pgqueue.pull")
    told = {each: sum(getattr(row, each) for row in rows) for each in COUNTS}
    told["waits"] = sum(sum(row.waits) for row in rows)
    told["runs"] = sum(sum(row.runs) for row in rows)
    return told


def counts(**given):
    return dict.fromkeys((*COUNTS, "waits", "runs"), 0) | given


def test_each_end_counts_as_that_of_a_job(parcels, link, cursor):
    """In spans of each length: what is given back has failed, and what gave up is dead
    as well; what expired has waited and never run. A stale receipt is no end."""
    parcels.send_many(range(6))
    done, done_too, back, back_too, bad, stale = parcels.receive(6)
    parcels.ack([done, done_too])
    back.nack(error="no paper")
    back_too.nack("1h")
    bad.reject("torn")
    Job.objects.filter(pk=stale.id).update(deliveries=7)
    assert not stale.ack()
    for _ in range(2):
        parcels.nack(parcels.receive(2))
    parcels.send(9, expires=0)
    assert [] == parcels.receive(1)
    PullEnds(Tally())(link)

    # Of `back`, the third receive was the last.
    told = counts(succeeded=2, failed=5, dead=2, expired=1, waits=8, runs=7)
    for seconds in task_spans.KEPT:
        assert told == spans(seconds)


def test_what_is_rolled_back_is_not_counted(parcels, link, new_cursor):
    """Neither an ack of a client, nor a move of a leader that died in its midst."""
    parcels.send_many([1, 2])
    first, second = parcels.receive(2)
    client = new_cursor()
    with client.connection.transaction(force_rollback=True):
        client.execute("SELECT pgqueue_ack(%s)", [first.receipt])
    second.ack()
    with link.connection.transaction(force_rollback=True), link.cursor() as cursor:
        assert 1 == pull_ends.move(cursor, since=None).rows
    assert counts() == spans()
    PullEnds(Tally())(link)

    assert counts(succeeded=1, waits=1, runs=1) == spans()


def test_clients_wait_neither_for_each_other_nor_for_the_leader(
    parcels, link, new_cursor, monkeypatch
):
    """Each has a transaction open with an ack; the leader counts what is committed, and
    the others when they are, though their rows come before those that it has had."""
    parcels.send_many([1, 2, 3])
    receipts = [message.receipt for message in parcels.receive(3)]
    clients = [new_cursor() for _ in receipts]
    for client, receipt in zip(clients, receipts, strict=True):
        client.execute("BEGIN; SET LOCAL lock_timeout = '1ms'")
        client.execute("SELECT pgqueue_ack(%s)", [receipt])
    clients[2].execute("COMMIT")
    count = PullEnds(Tally())
    assert chore_module.SOON_SECONDS == count(link)
    assert counts(succeeded=1, waits=1, runs=1) == spans()
    for client in clients[:2]:
        client.execute("COMMIT")
    count(link)
    assert 1 == spans()["succeeded"]

    monkeypatch.setattr(chore_module, "FROM_START_SECONDS", 0.0)
    count._from_start_at = 0.0
    count(link)
    assert counts(succeeded=3, waits=3, runs=3) == spans()


def test_the_leader_tells_them_in_its_metrics_and_adds_them_once(parcels, link):
    """As attempts of the queue; its own counting adds none of them to spans again."""
    tally = Tally()
    counting = Counting(tally)
    parcels.send_many([1, 2])
    one, other = parcels.receive(2)
    one.ack()
    other.nack()
    PullEnds(tally)(link)
    assert 0 == counting.add(link)
    assert counts(succeeded=1, failed=1, waits=2, runs=2) == spans()

    registry = CollectorRegistry()
    registry.register(type("C", (), {"collect": lambda _: of_worker(tally, {})})())
    text = generate_latest(registry).decode()
    labels = 'queue="parcels",task="pgqueue.pull"'
    for outcome in ("succeeded", "retried"):
        told = f'pgqueue_worker_attempts_total{{outcome="{outcome}",{labels}}} 1.0'
        assert told in text
    assert f"pgqueue_worker_wait_seconds_count{{{labels}}} 2.0" in text


@pytest.mark.parametrize("is_analysed", [False, True])
def test_a_move_reads_what_it_moves_however_much_there_is(
    parcels, link, cursor, is_analysed
):
    """A table that nobody has counted for a day; with no statistics of it, too."""
    parcels.send(1)
    cursor.execute(
        "INSERT INTO pgqueue_pull_end (ended_at, outcome, queues, waits, runs)"
        " SELECT now() + n * interval '1 ms', 'succeeded', '{parcels}', '{1}', '{1}'"
        "   FROM generate_series(1, 50000) n"
    )
    if is_analysed:
        cursor.execute("ANALYZE pgqueue_pull_end")
    with link.connection.transaction(), link.cursor() as own:
        limit(own, seconds=9, plans=Plans.IN_ORDER)
        given = {"since": datetime.now(UTC), "limit": pull_ends.ROWS_MAX}
        plan = explain(own, pull_ends.MOVE, given, how=MEASURED)

    scans = {node["Node Type"] for node in nodes(plan) if "Relation Name" in node}
    assert "Seq Scan" not in scans
    assert 2_500 > buffers(plan)

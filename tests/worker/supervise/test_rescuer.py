"""Rescuer: what a dead child held is taken back at once, and once more."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pytest

from django_pgqueue.conf import parse
from django_pgqueue.models import Job
from django_pgqueue.postgres.wake import channel, listen
from django_pgqueue.queues import lease
from django_pgqueue.worker.supervise import rescuer as module
from django_pgqueue.worker.supervise.rescuer import (
    AGAIN_SECONDS,
    RETRY_SECONDS,
    Lost,
    Rescuer,
)
from tests.harness.factories import make_leased_job
from tests.log.log import make_group, make_topic, put, take


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def rescuer(link, clock):
    return Rescuer(link, parse({}), lambda: None)


def lost(worker="dead", running=(), *, died_at=1_000.0):
    return Lost(worker, list(running), "killed by SIGKILL", died_at=died_at)


def test_what_ran_crashed_and_what_was_only_claimed_goes_back(rescuer, link, caplog):
    """As if never claimed; jobs of other workers are theirs."""
    ran, claimed = make_leased_job("dead"), make_leased_job("dead")
    other = make_leased_job("alive")
    rescuer.add(lost(running=[(ran.pk, 1)]))
    assert 0 == rescuer.seconds_until_due()

    rescuer.run()

    rows = {job.pk: job for job in Job.objects.all()}
    assert (None, 0, 1, True) == (
        rows[ran.pk].leased_by,
        rows[ran.pk].attempt,
        rows[ran.pk].crashes,
        rows[ran.pk].runs_alone,
    )
    (entry,) = rows[ran.pk].errors
    assert ("worker_lost", "dead", "killed by SIGKILL") == (
        entry["kind"],
        entry["worker"],
        entry["message"],
    )
    assert (None, 0, 0, False, []) == (
        rows[claimed.pk].leased_by,
        rows[claimed.pk].attempt,
        rows[claimed.pk].crashes,
        rows[claimed.pk].runs_alone,
        rows[claimed.pk].errors,
    )
    assert "alive" == rows[other.pk].leased_by
    assert "rescued    worker=dead crashed=1 handed_back=1" in caplog.messages
    # The supervisor may fork next.
    assert not link.is_open


def test_workers_are_woken_although_the_connection_dies_before(
    rescuer, other_cursor, clock, monkeypatch
):
    """What the first try has rescued is not found by the second."""
    listen(other_cursor, [channel(other_cursor)])
    make_leased_job("dead", queue="mail")
    rescuer.add(lost())
    with monkeypatch.context() as broken:
        broken.setattr(module.wake, "wake", cut)
        rescuer.run()
    assert Job.objects.get().leased_by is None

    clock.now += RETRY_SECONDS
    rescuer.run()

    (heard,) = other_cursor.connection.notifies(timeout=10, stop_after=1)
    assert "mail" == heard.payload


def cut(cursor, queues):
    cursor.connection.close()
    raise psycopg.OperationalError("server closed the connection unexpectedly")


def test_a_second_look_a_second_later_finds_what_committed_late(rescuer, clock):
    """A claim that the dead client had sent."""
    rescuer.add(lost())
    rescuer.run()
    assert pytest.approx(AGAIN_SECONDS) == rescuer.seconds_until_due()
    late = make_leased_job("dead")
    rescuer.run()
    assert "dead" == Job.objects.get(pk=late.pk).leased_by

    clock.now += AGAIN_SECONDS
    rescuer.run()

    assert Job.objects.get(pk=late.pk).leased_by is None
    assert rescuer.is_done


def test_a_database_that_is_away_is_asked_again(rescuer, clock, monkeypatch, caplog):
    """Until the leases end; then the jobs are claimed as any due ones."""
    real = lease.rescue
    away = [True]

    def rescue(*args, **options):
        if away:
            raise psycopg.OperationalError("connection refused")
        return real(*args, **options)

    monkeypatch.setattr(lease, "rescue", rescue)
    job = make_leased_job("dead")
    rescuer.add(lost())

    rescuer.run()
    assert "failed     loop=rescuer error=connection refused" in caplog.messages
    assert not rescuer.is_done
    assert pytest.approx(RETRY_SECONDS) == rescuer.seconds_until_due()

    away.clear()
    clock.now += RETRY_SECONDS
    rescuer.run()
    assert Job.objects.get(pk=job.pk).leased_by is None


def test_a_row_that_somebody_locks_is_asked_for_again(rescuer, clock, other_cursor):
    """The supervisor does not hang behind a stranger's transaction."""
    job = make_leased_job("dead", visible_at=timedelta(seconds=30))
    rescuer.add(lost())
    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT id FROM pgqueue_job FOR UPDATE")
        for _ in range(3):
            rescuer.run()
            clock.now += AGAIN_SECONDS
        assert not rescuer.is_done

    rescuer.run()

    assert rescuer.is_done
    assert Job.objects.get(pk=job.pk).leased_by is None


def test_what_its_readers_had_can_be_claimed_at_once(rescuer, cursor, caplog):
    """It counts as a lapse; those of other processes are theirs."""
    make_topic(partitions=2)
    group = make_group(cursor)
    for n in range(10):
        put(cursor, n, key=f"k{n}")
    dead, alive = (
        take(cursor, group, worker="dead/1"),
        take(cursor, group, worker="d/1"),
    )
    assert take(cursor, group) is None
    rescuer.add(lost())

    rescuer.run()
    again = take(cursor, group)
    assert (dead.partition, "dead/1", 1) == (
        again.partition,
        again.lapsed_by,
        again.failures,
    )
    assert take(cursor, group) is None
    assert alive.partition != again.partition

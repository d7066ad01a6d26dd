"""Sync: what code declares becomes rows, and what people changed stays."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction

from django_pgqueue import cron, every
from django_pgqueue.apps import _declare
from django_pgqueue.models import Schedule
from django_pgqueue.postgres.connect import connect
from django_pgqueue.schedules import declare, store
from django_pgqueue.schedules.issue import issue
from django_pgqueue.schedules.sync import Synced, sync
from tests.app.tasks import noop
from tests.schedules.conftest import read

pytestmark = [
    pytest.mark.usefixtures("declarations"),
    pytest.mark.django_db(transaction=True),
]


def deploy(*, migrates: bool = True) -> Synced:
    """Write what is declared, as a migration does."""
    with transaction.atomic(), connections["default"].cursor() as cursor:
        return sync(cursor, migrates=migrates)


def say(expression: str = "0 3 * * *", **said: Any) -> None:
    """Declare the schedule "nightly", in new code."""
    declare._declared.clear()
    cron(expression, name="nightly", **{"tz": "UTC", **said})(noop)


def override(**changed: Any) -> None:
    """Change the schedule as the admin does."""
    with transaction.atomic(), connections["default"].cursor() as cursor:
        (row,) = store.take(cursor, ["nightly"])
        values = {name: getattr(row, name) for name in store.COLUMNS}
        values |= changed
        store.change(cursor, row, values, overridden=True, by="ann")


def test_what_is_declared_becomes_a_row() -> None:
    """A second sync of the same code changes nothing but when it was declared."""
    say(queue="slow", jitter=60, catch_up="skip")
    assert deploy() == Synced(["nightly"], [], [], [])
    first = read("nightly")
    assert (first.source, first.task, first.expression, first.tz) == (
        "code",
        "tests.app.tasks.noop",
        "0 3 * * *",
        "UTC",
    )
    assert (first.queue, first.jitter_seconds, first.catch_up) == ("slow", 60, "skip")
    assert first.drift == {}
    assert deploy() == Synced([], [], [], [])
    second = read("nightly")
    assert (second.revision, second.ticks_from) == (first.revision, first.ticks_from)
    assert second.last_declared_at is not None
    assert first.last_declared_at is not None
    assert second.last_declared_at > first.last_declared_at


def test_a_new_timetable_begins_now() -> None:
    """What the new expression would have had in the past is not made up for."""
    say()
    deploy()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    Schedule.objects.update(
        ticks_from=yesterday, last_tick=yesterday, next_tick=yesterday
    )
    say(queue="slow")
    deploy()
    assert (read("nightly").queue, read("nightly").ticks_from) == ("slow", yesterday)
    say("0 4 * * *")
    assert deploy().changed == ["nightly"]
    row = read("nightly")
    assert (row.expression, row.last_tick, row.next_tick) == (
        "0 4 * * *",
        yesterday,
        None,
    )
    assert datetime.now(UTC) - row.ticks_from < timedelta(minutes=1)


def test_a_change_by_hand_stays() -> None:
    """Code that changes beside an override is shown as drift; a reset follows it."""
    say()
    deploy()
    override(expression="30 5 * * *")
    assert read("nightly").overridden_by == "ann"
    say("0 4 * * *")
    assert deploy() == Synced([], [], [], [])
    row = read("nightly")
    assert row.drift == {"expression": ("0 4 * * *", "30 5 * * *")}
    assert row.declared is not None
    with transaction.atomic(), connections["default"].cursor() as cursor:
        store.take(cursor, ["nightly"])
        store.change(cursor, row, row.declared, overridden=False)
    row = read("nightly")
    assert (row.expression, row.overridden_at, row.drift) == ("0 4 * * *", None, {})


def test_code_that_declares_it_no_more() -> None:
    """A migration withdraws it, with its pause; code that comes back finds it so."""
    say()
    deploy()
    with connections["default"].cursor() as cursor:
        store.pause(cursor, "nightly", by="ann")
        assert not store.delete(cursor, "nightly")
    declare._declared.clear()
    assert deploy(migrates=False) == Synced([], [], [], [])
    assert deploy() == Synced([], ["nightly"], [], [])
    assert read("nightly").withdrawn_at is not None
    assert not read("nightly").has_ticks
    say()
    # A worker of the last deploy that starts anew does not bring it back.
    assert deploy(migrates=False) == Synced([], [], ["nightly"], [])
    assert read("nightly").withdrawn_at is not None
    assert deploy() == Synced(["nightly"], [], [], [])
    row = read("nightly")
    assert (row.withdrawn_at, row.paused_by) == (None, "ann")
    declare._declared.clear()
    deploy()
    with connections["default"].cursor() as cursor:
        assert store.delete(cursor, "nightly")
    assert not Schedule.objects.exists()


def test_a_migration_declares() -> None:
    """After migrate, on the database of the jobs alone, the rows are there."""
    every(seconds=5, name="often")(noop)
    out = io.StringIO()
    _declare(using="other", verbosity=1, stdout=out)
    assert not Schedule.objects.exists()
    call_command("migrate", verbosity=1, stdout=out)
    assert Schedule.objects.get().name == "often"
    assert "Schedule often declared" in out.getvalue()
    declare._declared.clear()
    call_command("migrate", verbosity=1, stdout=out)
    assert "Schedule often withdrawn" in out.getvalue()


def test_what_comes_back_makes_up_for_nothing() -> None:
    """Withdrawn yesterday and declared anew, or under a new name: it begins now."""
    long_ago = datetime.now(UTC) - timedelta(days=1)
    said: dict[str, Any] = {"catch_up": "all(9)", "overlap": "queue"}
    every(minutes=1, name="nightly", **said)(noop)
    deploy()
    Schedule.objects.update(ticks_from=long_ago, last_tick=long_ago, error="Cursed.")
    declare._declared.clear()
    every(minutes=1, name="each minute", **said)(noop)
    assert deploy() == Synced(["each minute"], ["nightly"], [], [])
    every(minutes=1, name="nightly", **said)(noop)
    assert deploy() == Synced(["nightly"], [], [], [])
    for name in ("nightly", "each minute"):
        # Without an error, so that schedulers reckon it at once.
        assert (None, None) == (read(name).next_tick, read(name).error)
        with transaction.atomic(), connections["default"].cursor() as cursor:
            issued = issue(cursor, read(name), datetime.now(UTC))
        # Of a minute that began between the two, at most.
        assert len(issued) <= 1


def test_a_flush_leaves_what_is_declared() -> None:
    """manage.py flush empties the tables, and declares as a migration does."""
    every(seconds=5, name="often")(noop)
    deploy()
    Schedule.objects.create(name="mine", task="tests.app.tasks.noop", every_seconds=60)
    call_command("flush", interactive=False, verbosity=0)
    assert [row.name for row in Schedule.objects.all()] == ["often"]


def test_eight_syncs_at_once() -> None:
    """Workers that start together declare one row, and none of them fails."""
    for n in range(20):
        every(seconds=5 + n, name=f"number {n}")(noop)
    barrier = Barrier(8)

    def start() -> Synced:
        with connect("default", name="test") as raw:
            barrier.wait(10)
            with raw.transaction(), raw.cursor() as cursor:
                return sync(cursor, migrates=False)

    with ThreadPoolExecutor(8) as pool:
        found = [each.result() for each in [pool.submit(start) for _ in range(8)]]
    assert sorted(len(synced.changed) for synced in found) == [0] * 7 + [20]
    assert Schedule.objects.count() == 20
    assert {row.revision for row in Schedule.objects.all()} == {0}

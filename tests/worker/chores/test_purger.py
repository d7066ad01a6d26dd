"""Purger: what its retention has outlived goes, a batch at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.conf import parse
from django_pgqueue.models import (
    ArchivedJob,
    DeadLetter,
    Export,
    MailFile,
    Worker,
)
from django_pgqueue.pipeline import exports
from django_pgqueue.postgres.day_tables import ARCHIVE, DAYS_AHEAD_OF_LEADER
from django_pgqueue.queues import purge
from django_pgqueue.worker.chores.log_retention import STEP_PAUSE_SECONDS_MIN
from django_pgqueue.worker.chores.purger import PAUSE_SECONDS, Batches, chores
from tests.harness.factories import make_archived_job, make_dead_letter

DAY = timedelta(days=1)


def run_all(link, settings):
    """Run every chore once; return the pauses that they ask for."""
    return [chore(link) for chore in chores(parse(settings))]


@pytest.fixture
def days(cursor):
    """A function that returns the days of the archive; as before after the test."""

    def days():
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'pgqueue_archived_job'::regclass"
        )
        return {ARCHIVE.day_of(name) for (name,) in cursor.fetchall()}

    before = days()
    yield days
    for day in days() - before:
        cursor.execute(f"DROP TABLE {ARCHIVE.name_of(day)}")


def test_days_are_made_two_weeks_ahead(link, days, cursor, caplog):
    """So that no ack has to make one."""
    caplog.set_level("INFO", "django_pgqueue.worker")
    last = datetime.now(UTC).date() + DAYS_AHEAD_OF_LEADER * DAY
    run_all(link, {})
    cursor.execute(f"DROP TABLE {ARCHIVE.name_of(last)}")

    run_all(link, {})

    assert last in days()
    assert f"made       archive partition day={last}" in caplog.messages


def test_days_past_the_retention_are_dropped_whole(link, days, cursor, caplog):
    """The youngest of them is a day older than the retention."""
    caplog.set_level("INFO", "django_pgqueue.worker")
    today = datetime.now(UTC).date()
    for age in (8, 7, 5):
        day = today - age * DAY
        cursor.execute(f"DROP TABLE IF EXISTS {ARCHIVE.name_of(day)}")
        cursor.execute(
            f"CREATE TABLE {ARCHIVE.name_of(day)} PARTITION OF pgqueue_archived_job"
            f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + DAY} 00:00+00')"
        )

    run_all(link, {"RETENTION": {"archive": "7d"}})

    assert {today - 7 * DAY, today - 5 * DAY} <= days()
    assert today - 8 * DAY not in days()
    assert f"dropped    archive partition day={today - 8 * DAY}" in caplog.messages


def test_files_that_no_mail_has_go(link, days, caplog):
    """The log hears of them."""
    caplog.set_level("INFO", "django_pgqueue.worker")
    MailFile.objects.create(digest="a", data=b"%PDF", look_at=datetime.now(UTC) - DAY)

    run_all(link, {})

    assert 0 == MailFile.objects.count()
    assert "purged     files of mails=1" in caplog.messages


def batches(settings, what):
    """Return the chore that purges *what*."""
    (chore,) = [
        chore
        for chore in chores(parse(settings))
        if isinstance(chore, Batches) and chore.what == what
    ]
    return chore


def test_dead_letters_go_in_batches_with_pauses(link, days, monkeypatch, caplog):
    """A full batch asks for the next one soon; the log hears of all of them at once."""
    caplog.set_level("INFO", "django_pgqueue.worker")
    monkeypatch.setattr(purge, "PURGE_ROWS_MAX", 2)
    for _ in range(3):
        make_dead_letter(finished_at=-91 * DAY)
    young = make_dead_letter(finished_at=-DAY)
    chore = batches({}, "dead letters")

    assert STEP_PAUSE_SECONDS_MIN <= chore(link) < PAUSE_SECONDS
    assert 2 == DeadLetter.objects.count()
    assert PAUSE_SECONDS == chore(link)

    assert [young] == list(DeadLetter.objects.all())
    assert ["purged     dead letters=3"] == caplog.messages


def test_old_results_are_dropped_and_their_jobs_stay(link, days):
    """RESULT_TTL_SECONDS, a day."""
    today = make_archived_job(result=1)
    make_archived_job(result=2, started_at=-DAY, finished_at=timedelta(0))

    run_all(link, {"RESULT_TTL_SECONDS": 0})

    assert [None, None] == list(ArchivedJob.objects.values_list("result", flat=True))
    assert today.pk in ArchivedJob.objects.values_list("pk", flat=True)


def test_workers_not_heard_of_for_an_hour_are_forgotten(link, days):
    """They were killed without a good-bye."""
    now = datetime.now(UTC)
    for name, age in [("old", 61), ("young", 59)]:
        Worker.objects.create(
            name=name,
            hostname="h",
            pid=1,
            queues=[],
            threads=1,
            version="0",
            heartbeat_at=now - timedelta(minutes=age),
        )

    run_all(link, {})

    assert ["young"] == list(Worker.objects.values_list("name", flat=True))


# Days that are exported --------------------------------------------------------------

TARGET = "/srv/export"
EXPORTING = {"RETENTION": {"archive": "7d"}, "EXPORT": {"path": TARGET}}


def add_day(cursor, day):
    """Make the partition of *day*, with one row of it."""
    cursor.execute(f"DROP TABLE IF EXISTS {ARCHIVE.name_of(day)}")
    cursor.execute(
        f"CREATE TABLE {ARCHIVE.name_of(day)} PARTITION OF pgqueue_archived_job"
        f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + DAY} 00:00+00')"
    )
    make_archived_job(finished_at=datetime.combine(day, datetime.min.time(), UTC))


def note_export(cursor, day, target=TARGET):
    """Note that what *day* has now is exported."""
    found = exports.content(cursor, ARCHIVE.name_of(day))
    exports.begin(cursor, target, day, run=1)
    exports.record(cursor, target, day, run=1, found=found)


def test_retention_waits_for_the_export_of_a_day(link, days, cursor, caplog):
    """Of each day, to the place that the settings name, with just its rows."""
    today = datetime.now(UTC).date()
    old = {age: today - age * DAY for age in (9, 10, 11, 12)}
    for day in old.values():
        add_day(cursor, day)
    note_export(cursor, old[9])
    note_export(cursor, old[10], "/srv/elsewhere")
    note_export(cursor, old[11])
    exports.begin(cursor, TARGET, old[11], run=2)

    run_all(link, EXPORTING)

    assert old[9] not in days()
    assert {old[10], old[11], old[12]} <= days()
    assert (
        f"kept       archive partitions=3: they wait for their export to {TARGET}"
        in caplog.messages
    )
    run_all(link, {"RETENTION": {"archive": "7d"}})
    assert not set(old.values()) & days()


@pytest.mark.parametrize("detached", [False, True])
def test_a_late_row_keeps_its_day(link, days, cursor, caplog, detached):
    """Also where the purge died between detaching it and dropping it. The day is in the
    archive again, and waits for its next export."""
    day = datetime.now(UTC).date() - 9 * DAY
    add_day(cursor, day)
    note_export(cursor, day)
    late = make_archived_job(
        finished_at=datetime.combine(day, datetime.max.time(), UTC)
    )
    if detached:
        cursor.execute(
            f"ALTER TABLE pgqueue_archived_job DETACH PARTITION {ARCHIVE.name_of(day)}"
        )

    run_all(link, EXPORTING)

    assert day in days()
    assert late.pk in ArchivedJob.objects.values_list("pk", flat=True)
    kept = f"kept       archive partition day={day} rows=2: others were exported to "
    assert kept + TARGET in caplog.messages
    exported = Export.objects.get()
    assert ("stale", "The archive has other rows of it: 2 now.") == (
        exported.state,
        exported.error,
    )
    run_all(link, EXPORTING)
    assert day in days()
    note_export(cursor, day)
    run_all(link, EXPORTING)
    assert day not in days()


def test_a_day_is_dropped_once_a_run_of_export_has_seen_its_files(
    link, days, cursor, caplog
):
    """Lately: the worker does not look there by itself."""
    day = datetime.now(UTC).date() - 9 * DAY
    target = "s3a://bucket/jobs"
    exporting = {**EXPORTING, "EXPORT": {"path": target}}
    add_day(cursor, day)
    note_export(cursor, day, target)
    for seen in ("NULL", "now() - interval '49 hours'"):
        cursor.execute(f"UPDATE pgqueue_export SET checked_at = {seen}")

        run_all(link, exporting)

        assert day in days()
        assert "exported" == Export.objects.get().state
    assert "no run of export has seen its files" in caplog.text
    exports.seen(cursor, target, [day])
    run_all(link, exporting)
    assert day not in days()

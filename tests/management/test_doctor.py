"""`manage.py pgqueue doctor`: each trouble is found, with its value and a way out."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_pgqueue.findings import server
from django_pgqueue.findings.registry import REGISTRY, Check
from django_pgqueue.models import EnqueuedHour, Queue, Worker
from django_pgqueue.pipeline import exports
from django_pgqueue.postgres import day_tables
from django_pgqueue.postgres.connect import connect
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.schedules import declare
from django_pgqueue.schedules.declare import cron
from tests.app import control_tasks, tasks
from tests.harness.captures import capture, captures, migrations
from tests.harness.factories import (
    make_dead_letter,
    make_declared,
    make_job,
    make_jobs,
    make_leased_job,
    make_schedule,
)
from tests.harness.minutes import in_minutes

__all__ = ["captures", "migrations"]

LONG_AGO = timedelta(minutes=-10)

# Those that say nothing where nobody has asked for what they look at.
SILENT = {"modules", "reprocessed", "queue_depth", "conservation"}


@pytest.fixture(autouse=True)
def database(transactional_db):
    """The tables, with the days ahead that a worker would have made."""
    with connection.cursor() as cursor:
        ARCHIVE.make(cursor)


def run(*arguments):
    """Return (status, standard output)."""
    out = io.StringIO()
    try:
        call_command("pgqueue", "doctor", *arguments, stdout=out, stderr=io.StringIO())
    except SystemExit as end:
        return end.code, out.getvalue()
    return 0, out.getvalue()


def examined():
    """Return (status, the findings by their check, the worst of each)."""
    status, out = run("--json")
    found = json.loads(out)["findings"]
    return status, {finding["check"]: finding for finding in found}


def trouble(check, found=None):
    """Return the finding of *check*, which is none to be content with."""
    status, findings = found or examined()
    finding = findings[check]
    assert finding["severity"] != "ok"
    assert finding["way_out"]
    assert status == any(each["severity"] == "error" for each in findings.values())
    return finding


def make_worker(name="web-1", silent=timedelta(0), queues=()):
    Worker.objects.create(
        name=name, hostname="h", pid=1, threads=8, version="1", queues=list(queues)
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_worker SET heartbeat_at = now() - %s WHERE name = %s",
            [silent, name],
        )


def test_where_all_is_well_every_check_says_so():
    """Status 0. In words too, and --quiet leaves them out."""
    make_worker()
    make_job(task="tests.app.tasks.noop")
    make_schedule(next_tick=timedelta(hours=1))

    status, found = examined()
    bad = {name: f for name, f in found.items() if f["severity"] != "ok"}
    assert {} == bad
    assert 0 == status
    checks = set(REGISTRY) - SILENT
    assert checks == set(found)

    status, out = run()
    assert out.endswith(f"0 errors, 0 warnings, {len(checks)} as they should be.\n")
    assert max(map(len, out.splitlines())) <= 80
    assert 1 == len(run("--quiet")[1].splitlines())


# The server --------------------------------------------------------------------------


def test_missing_migrations_end_the_examination():
    """The rest would fail for the same reason."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_migrations SET app = 'hidden' WHERE app = 'pgqueue'"
        )
        try:
            status, found = examined()
        finally:
            cursor.execute(
                "UPDATE django_migrations SET app = 'pgqueue' WHERE app = 'hidden'"
            )

    assert 1 == status
    assert {"server", "migrations"} == set(found)
    assert "migrate pgqueue --database default" in found["migrations"]["way_out"]


def test_what_is_wrong_with_the_server(monkeypatch, settings, cursor):
    """Indexes, days ahead, a NOTIFY that is not heard, and limits that are passed."""
    settings.PGQUEUE = {"LISTEN_DATABASE": "queue"}
    for limit in (
        *("NOTIFICATIONS_SHARE_MAX", "CLOCK_SKEW_SECONDS_MAX"),
        *("CONNECTIONS_SHARE_MAX", "PREPARED_SECONDS_MAX"),
    ):
        monkeypatch.setattr(server, limit, -1.0)
    monkeypatch.setattr(server, "HEARD_SECONDS_MAX", 0.2)
    make_dead_letter(), make_dead_letter()
    rename = "ALTER INDEX {} RENAME TO {}"
    cursor.execute("BEGIN")
    cursor.execute("PREPARE TRANSACTION 'pgqueue_doctor'")
    cursor.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'pgqueue_archived_job'::regclass"
    )
    for (name,) in cursor.fetchall():
        cursor.execute(f"DROP TABLE {name}")
    with pytest.raises(psycopg.errors.UniqueViolation):
        cursor.execute(
            "CREATE UNIQUE INDEX CONCURRENTLY pgqueue_half_made"
            " ON pgqueue_dead_letter (task)"
        )
    cursor.execute(rename.format("pgqueue_job_claim", "hidden"))
    try:
        status, out = run("--json")
    finally:
        cursor.execute("ROLLBACK PREPARED 'pgqueue_doctor'")
        cursor.execute(rename.format("hidden", "pgqueue_job_claim"))
        cursor.execute("DROP INDEX pgqueue_half_made")
        ARCHIVE.make(cursor)

    listed = json.loads(out)["findings"]
    found = {finding["check"]: finding for finding in listed}
    assert 1 == status
    assert {("error", "pgqueue_job_claim"), ("warning", "pgqueue_half_made")} == {
        (each["severity"], each["value"])
        for each in listed
        if each["check"] == "indexes"
    }
    assert 0 == found["partitions"]["value"]
    assert "every 5 s" in found["listen"]["what"]
    assert "1 prepared" in found["prepared"]["what"]
    assert found["connections"]["value"] >= 2
    assert [-1.0, -1.0] == [found[name]["limit"] for name in ("notifications", "clock")]
    for name in ("partitions", "listen", "prepared", "connections", "clock"):
        assert ("warning", True) == (
            found[name]["severity"],
            bool(found[name]["way_out"]),
        )


def test_where_workers_listen(settings, monkeypatch):
    """A database that is away is an error; that nobody listens is none."""
    nobody = {**connection.settings_dict, "HOST": "127.0.0.1", "PORT": 1}
    monkeypatch.setitem(connections.settings, "gone", nobody)
    settings.PGQUEUE = {"LISTEN_DATABASE": "gone"}
    assert "gone" == trouble("listen")["value"]

    settings.PGQUEUE = {"LISTEN": False}
    assert "only poll" in examined()[1]["listen"]["what"]


def test_a_long_transaction(monkeypatch):
    """Named with its process, so that it can be ended."""
    monkeypatch.setattr(server, "TRANSACTION_SECONDS_MAX", -1.0)
    with connect("default", name="nightly report") as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        finding = trouble("horizon")

        assert "nightly report" in finding["what"]
        assert str(other.info.backend_pid) in finding["what"]


# Jobs and workers --------------------------------------------------------------------


def test_what_is_wrong_with_jobs_and_workers(settings):
    """Each with its value, and what to do."""
    settings.PGQUEUE = {
        "REPROCESS": [{"reason": "exhausted"}],
        "QUEUES": {"sms": {"depth_max": 10, "on_full": "refuse"}},
    }
    make_worker(queues=["*:2", "-mail"])
    make_worker("web-9", silent=timedelta(minutes=5))
    make_job(queue="mail", visible_at=LONG_AGO)
    Queue.objects.create(name="mail", concurrency=5, rate_spacing=0.6, rate_burst=1)
    Queue.objects.create(name="night", paused_at="2026-01-01T00:00Z")
    make_job(queue="night", visible_at=2 * LONG_AGO)
    make_job(runs_alone=True, crashes=1)
    make_jobs(12, queue="sms")
    make_leased_job()
    for priority, queue in ((5, "a"), (0, "a"), (-5, "b")):
        make_leased_job(queue=queue, priority=priority, visible_at=LONG_AGO)
    make_job(task="gone\x1b[31m")
    make_job(task="tests.app.tasks.noop")
    headers = {"pgqueue.reprocessed_at": "2026-01-01T00:00:00+00:00"}
    make_dead_letter(headers=headers)
    make_dead_letter(headers=headers, finished_at=timedelta(days=-2))
    make_dead_letter(reason="timeout")

    found = examined()

    unserved = trouble("unserved", found)
    assert "error" == unserved["severity"]
    assert "pgqueue_worker --queues mail" in unserved["way_out"]
    assert ["web-9"] == trouble("heartbeats", found)["value"]
    oldest = trouble("oldest_ready", found)
    assert 600 <= oldest["value"] < 700
    assert "queue mail, which has a limit: 0 of 5 run, 100/min." in oldest["what"]
    assert "manage.py pgqueue limit mail" in oldest["way_out"]
    suspects = trouble("suspects", found)
    assert (
        "1 job of a process that died waits to run alone, in default."
        == (suspects["what"])
    )
    assert "worker_lost" in suspects["way_out"]
    assert ["night"] == trouble("paused", found)["value"]
    leases = trouble("leases", found)
    assert 3 == leases["value"]
    assert "10 min ago" in in_minutes(leases["what"])
    assert "gone\x1b[31m" in trouble("tasks", found)["value"]
    assert "tests.app.tasks.noop" not in found[1]["tasks"]["value"]
    letters = trouble("dead_letters", found)
    assert 2 == letters["value"]
    assert "1 timeout" in letters["what"]
    assert 1 == trouble("reprocessed", found)["value"]
    depth = trouble("queue_depth", found)
    assert ({"sms": 11}, {"sms": 10}) == (depth["value"], depth["limit"])
    assert depth["what"].endswith("sms 10+ of 10. sms, when full, refuses jobs.")
    assert "PGQUEUE['QUEUES']['sms']['depth_max']" in depth["way_out"]
    assert "\x1b" not in run()[1]


def test_what_a_role_may_not_see_is_a_warning(monkeypatch):
    """And the other examinations go on."""

    def forbidden(look):
        """Ask for what is not there."""
        yield look.rows("SELECT * FROM nowhere")

    monkeypatch.setitem(REGISTRY, "nowhere", Check(name="nowhere", read=forbidden))

    status, found = examined()
    assert "could not be examined" in found["nowhere"]["what"]
    assert set(REGISTRY) - SILENT == set(found)
    assert 0 == status


# The export of the archive -----------------------------------------------------------

TARGET = "/srv/export"


@pytest.fixture
def yesterdays(archive_days, cursor):
    """The archive has the last nine days too; returns them, the latest first."""
    today = day_tables.today(cursor)
    days = [today - timedelta(days=age) for age in range(1, 10)]
    with cursor.connection.transaction():
        for day in days:
            ARCHIVE.make_day(cursor, day)
    return days


def note_export(cursor, day):
    found = exports.content(cursor, ARCHIVE.name_of(day))
    exports.begin(cursor, TARGET, day, run=1)
    exports.record(cursor, TARGET, day, run=1, found=found)


def test_days_that_retention_keeps_for_their_export_are_found(
    settings, cursor, yesterdays
):
    """With why, where a run has said so; then days that nobody exports in time."""
    settings.PGQUEUE = {"EXPORT": {"path": TARGET}}
    found = trouble("export")
    assert [str(yesterdays[-1]), str(yesterdays[-2])] == found["value"]
    assert found["what"].startswith(
        f"2 days of the archive, {yesterdays[-1]} the first, past retention"
    )
    assert "pgqueue_pipeline run export" in found["way_out"]

    exports.begin(cursor, TARGET, yesterdays[-2], run=1)
    exports.mark(cursor, TARGET, yesterdays[-2], run=1, error="No space left.")
    note_export(cursor, yesterdays[-1])
    assert "exported to /srv/export. No space left." in trouble("export")["what"]

    note_export(cursor, yesterdays[-2])
    assert "7 days of the archive" in trouble("export")["what"]
    for day in yesterdays[2:-2]:
        note_export(cursor, day)
    assert "ok" == examined()[1]["export"]["severity"]
    exports.mark(cursor, TARGET, yesterdays[-1], error="The files have 2 rows.")
    found = trouble("export")
    assert [str(yesterdays[-1])] == found["value"]
    assert "wrong with 1 exported days" in found["what"]
    assert "The files have 2 rows." in found["what"]
    assert "run verify" in found["way_out"]


def count_hour(**columns):
    """Make a row of conservation: of ten jobs that were enqueued, three are left."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    defaults = {
        "hour": hour - timedelta(hours=2),
        "queue": "default",
        "task": "shop.send",
        "enqueued": 10,
        "waiting": 1,
        "archived": 1,
        "dead": 1,
    }
    EnqueuedHour.objects.create(**{**defaults, **columns})


def test_jobs_that_are_nowhere_are_found(settings):
    """By hour, queue and task; but for what leaves no row, and for dead letters that
    retention has taken. Nothing is told where nobody has counted."""
    assert "conservation" not in examined()[1]
    count_hour(task="shop.whole", archived=8)
    count_hour(task=control_tasks.leaves_no_trace.name)
    assert "ok" == examined()[1]["conservation"]["severity"]
    count_hour()

    found = trouble("conservation")

    assert found["what"].startswith("7 jobs neither wait nor are dead")
    assert found["value"][0].startswith("7 of 10 of shop.send in default, enqueued")
    settings.PGQUEUE = {"RETENTION": {"dead_letters": timedelta(hours=1)}}
    assert "ok" == examined()[1]["conservation"]["severity"]


# Schedules ---------------------------------------------------------------------------


def test_what_is_wrong_with_schedules(monkeypatch):
    """By name; those that rest are not overdue, nor asked for their task."""
    monkeypatch.setattr(declare, "_declared", {})
    cron("@daily", name="evening")(tasks.noop)
    make_schedule(next_tick=LONG_AGO)
    make_schedule(
        name="paused", next_tick=2 * LONG_AGO, paused_at=LONG_AGO, task="no.such"
    )
    make_schedule(name="a", error="There is no time zone 'Mars'.")
    make_declared(name="old", withdrawn_at=LONG_AGO)
    make_schedule(name="evening")
    make_schedule(name="b", task="no.such.task")

    found = examined()

    ticks = trouble("ticks", found)
    assert 540 < ticks["value"] < 660
    assert "Ticks are overdue, the first for 10 min: nightly." == in_minutes(
        ticks["what"]
    )
    assert "pgqueue_worker" in ticks["way_out"]
    assert ["a"] == trouble("schedules", found)["value"]
    assert "There is no time zone 'Mars'." in found[1]["schedules"]["what"]
    assert {"withdrawn": ["old"], "hidden": ["evening"], "schedule_tasks": ["b"]} == {
        name: found[1][name]["value"]
        for name in ("withdrawn", "hidden", "schedule_tasks")
    }


@pytest.mark.usefixtures("captures", "migrations")
def test_changes_that_are_not_captured_any_more():
    """Triggers that are gone, or disabled, and columns that were renamed."""
    capture("testapp.Order", topic="orders.one", fields=["name"])
    with connection.cursor() as cursor:
        cursor.execute(
            """DROP TRIGGER "pgqueue_capture_orders.one_insert" ON testapp_order;
               ALTER TABLE testapp_order
                   DISABLE TRIGGER "pgqueue_capture_orders.one_update";
               ALTER TABLE testapp_order RENAME COLUMN name TO title"""
        )
    try:
        assert [
            "testapp_order to orders.one (no trigger of insert)",
            "testapp_order to orders.one (its trigger of update is disabled)",
            "testapp_order to orders.all (no trigger at all)",
        ] == trouble("captures")["value"]
        found = examined()[1]["captured_columns"]
        assert ["testapp_order to orders.one: name"] == found["value"]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE testapp_order RENAME COLUMN title TO name")

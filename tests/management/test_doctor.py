"""`manage.py pgqueue doctor`: each trouble is found, with its value and a way out."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_pgqueue.management.cli import examine_jobs, examine_server
from django_pgqueue.models import DeadLetter, EnqueuedHour, Queue, Worker
from django_pgqueue.pipeline import exports
from django_pgqueue.postgres.connect import connect, is_pooled
from django_pgqueue.queues import partitions
from django_pgqueue.queues.partitions import make_partitions
from django_pgqueue.schedules import declare
from django_pgqueue.schedules.declare import cron
from tests.app import control_tasks, tasks
from tests.harness.captures import capture, captures, migrations
from tests.harness.factories import (
    make_dead_letter,
    make_declared,
    make_job,
    make_leased_job,
    make_schedule,
)
from tests.harness.minutes import in_minutes

__all__ = ["captures", "migrations"]

LONG_AGO = timedelta(minutes=-10)

CHECKS = {
    "server",
    "suspects",
    "migrations",
    "indexes",
    "partitions",
    "sequences",
    "listen",
    "connections",
    "horizon",
    "prepared",
    "notifications",
    "vacuum",
    "clock",
    "workers",
    "heartbeats",
    "unserved",
    "oldest_ready",
    "paused",
    "leases",
    *("lanes_held", "lanes_blocked", "lanes_paused", "breakers_open"),
    "tasks",
    "dead_letters",
    "sagas",
    "saga_versions",
    "export",
    "ticks",
    "schedules",
    "withdrawn",
    "hidden",
    "schedule_tasks",
    *("log_days", "log_closed", "log_early", "log_horizon"),
    "roles",
    *("groups_behind", "groups_halted", "topics", "log_bytes"),
    *("log_ingest", "ingest_behind", "scheduled", "unpublished", "topics_former"),
    *("groups_unserved", "groups_stale"),
    *("stale", "subscribed_tasks", "patterns"),
    *("backfills_behind", "backfills_lost", "backlogs"),
    *("captures", "captured_columns"),
}


@pytest.fixture(autouse=True)
def database(transactional_db):
    """The tables, with the days ahead that a worker would have made."""
    with connection.cursor() as cursor:
        make_partitions(cursor)


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


def trouble(check):
    """Return the finding of *check*, which is none to be content with."""
    status, found = examined()
    finding = found[check]
    assert finding["severity"] != "ok"
    assert finding["way_out"]
    assert (finding["severity"] == "error") is (status == 1)
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
    assert CHECKS == set(found)

    status, out = run()
    assert out.endswith(f"0 errors, 0 warnings, {len(CHECKS)} as they should be.\n")
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


def test_a_missing_index():
    """An error: workers refuse to start."""
    rename = "ALTER INDEX {} RENAME TO {}"
    with connection.cursor() as cursor:
        cursor.execute(rename.format("pgqueue_job_claim", "hidden"))
        try:
            finding = trouble("indexes")
        finally:
            cursor.execute(rename.format("hidden", "pgqueue_job_claim"))

    assert "pgqueue_job_claim" == finding["value"]


def test_an_index_that_was_left_half_made():
    """A warning where claims do not need it."""
    make_dead_letter(), make_dead_letter()
    with connect("default", name="tests") as other:
        with pytest.raises(psycopg.errors.UniqueViolation):
            other.execute(
                "CREATE UNIQUE INDEX CONCURRENTLY pgqueue_half_made"
                " ON pgqueue_dead_letter (task)"
            )
        try:
            finding = trouble("indexes")
        finally:
            other.execute("DROP INDEX pgqueue_half_made")

    assert ("warning", "pgqueue_half_made") == (finding["severity"], finding["value"])


def test_an_archive_without_days_ahead():
    """No worker has run for a week."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'pgqueue_archived_job'::regclass"
        )
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE {name}")
        try:
            assert 0 == trouble("partitions")["value"]
        finally:
            make_partitions(cursor)


def test_a_notify_that_is_not_heard(settings, monkeypatch):
    """Another database of the same server, say; workers poll all the same."""
    monkeypatch.setattr(examine_server, "HEARD_SECONDS_MAX", 0.2)
    settings.PGQUEUE = {"LISTEN_DATABASE": "queue"}

    finding = trouble("listen")
    assert "warning" == finding["severity"]
    assert "every 5 s" in finding["what"]


def test_a_listen_database_that_is_away(settings, monkeypatch):
    """An error: workers try it again and again."""
    nobody = {**connection.settings_dict, "HOST": "127.0.0.1", "PORT": 1}
    monkeypatch.setitem(connections.settings, "gone", nobody)
    settings.PGQUEUE = {"LISTEN_DATABASE": "gone"}

    assert "gone" == trouble("listen")["value"]


def test_listen_that_is_turned_off_is_no_trouble(settings):
    """It is said, though."""
    settings.PGQUEUE = {"LISTEN": False}

    assert "only poll" in examined()[1]["listen"]["what"]


def test_a_direct_connection_is_no_pooler():
    """Its process id is that of the server's process."""
    with connect("default", name="tests") as direct:
        assert is_pooled(direct) is False


def test_connections_that_run_out(monkeypatch):
    """Before they have."""
    monkeypatch.setattr(examine_server, "CONNECTIONS_SHARE_MAX", 0.0)

    assert trouble("connections")["value"] >= 2


def test_a_long_transaction(monkeypatch):
    """Named with its process, so that it can be ended."""
    monkeypatch.setattr(examine_server, "TRANSACTION_SECONDS_MAX", -1.0)
    with connect("default", name="nightly report") as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        finding = trouble("horizon")

        assert "nightly report" in finding["what"]
        assert str(other.info.backend_pid) in finding["what"]


def test_a_prepared_transaction(monkeypatch, cursor):
    """Its locks outlive restarts."""
    cursor.execute("SHOW max_prepared_transactions")
    if cursor.fetchone() == ("0",):
        pytest.skip("this server takes no prepared transactions")
    monkeypatch.setattr(examine_server, "PREPARED_SECONDS_MAX", -1.0)
    cursor.execute("BEGIN")
    cursor.execute("PREPARE TRANSACTION 'pgqueue_doctor'")
    try:
        assert "1 prepared" in trouble("prepared")["what"]
    finally:
        cursor.execute("ROLLBACK PREPARED 'pgqueue_doctor'")


@pytest.mark.parametrize(
    "limit,check",
    [("NOTIFICATIONS_SHARE_MAX", "notifications"), ("CLOCK_SKEW_SECONDS_MAX", "clock")],
)
def test_other_limits_of_the_server(monkeypatch, limit, check):
    """Told with the value and the limit."""
    monkeypatch.setattr(examine_server, limit, -1.0)

    assert -1.0 == trouble(check)["limit"]


# Jobs and workers --------------------------------------------------------------------


def test_ready_jobs_without_a_worker():
    """An error, with the command that would run them."""
    make_worker(queues=["other"])
    make_worker("gone", silent=timedelta(hours=1))
    make_job(queue="mail")

    finding = trouble("unserved")
    assert "error" == finding["severity"]
    assert "pgqueue_worker --queues mail" in finding["way_out"]


@pytest.mark.parametrize("queues", [["*:2", "-mail"], ["mail.*"]])
def test_ready_jobs_that_every_worker_leaves_out(queues):
    """A worker's row has its entries as --queues was given them."""
    make_worker(queues=queues)
    make_job(queue="mail")

    assert "error" == trouble("unserved")["severity"]


@pytest.mark.parametrize(
    "queues", [[], ["mail", "other"], ["ma*=2:4"], ["-other"], [{"of": "the future"}]]
)
def test_ready_jobs_with_a_worker(queues):
    """That serves all queues, or theirs."""
    make_worker(queues=queues)
    make_job(queue="mail")

    assert "ok" == examined()[1]["unserved"]["severity"]


def test_a_worker_that_is_silent():
    """With its name."""
    make_worker("web-9", silent=timedelta(minutes=5))

    assert ["web-9"] == trouble("heartbeats")["value"]


def test_a_job_that_waits_too_long():
    """With its queue."""
    make_worker()
    make_job(queue="mail", visible_at=LONG_AGO)

    finding = trouble("oldest_ready")
    assert 600 <= finding["value"] < 700
    assert "queue mail" in finding["what"]


def test_a_queue_that_waits_for_its_own_limit():
    """It is told apart from one that has too few workers."""
    make_worker()
    make_job(queue="mail", visible_at=LONG_AGO)
    Queue.objects.create(name="mail", concurrency=5, rate_spacing=0.6, rate_burst=1)

    finding = trouble("oldest_ready")
    assert "queue mail, which has a limit: 0 of 5 run, 100/min." in finding["what"]
    assert "manage.py pgqueue limit mail" in finding["way_out"]


def test_jobs_that_wait_to_run_alone():
    """They are few, and each may be what ends its process."""
    make_worker()
    make_job(queue="mail", runs_alone=True, crashes=1)

    finding = trouble("suspects")

    assert ("warning", 1) == (finding["severity"], finding["value"])
    assert (
        "1 job of a process that died waits to run alone, in mail." == finding["what"]
    )
    assert "worker_lost" in finding["way_out"]


def test_a_paused_queue_with_ready_jobs():
    """Neither unserved nor late, but not forgotten either."""
    Queue.objects.create(name="mail", paused_at="2026-01-01T00:00Z")
    assert "ok" == examined()[1]["paused"]["severity"]
    make_job(queue="mail", visible_at=LONG_AGO)

    assert ["mail"] == trouble("paused")["value"]
    found = examined()[1]
    assert "ok" == found["unserved"]["severity"]
    assert "ok" == found["oldest_ready"]["severity"]


def test_leases_that_ran_out():
    """In any queue and priority; those that are held do not count."""
    make_worker()
    make_leased_job()
    for priority, queue in ((5, "a"), (0, "a"), (-5, "b")):
        make_leased_job(queue=queue, priority=priority, visible_at=LONG_AGO)
        make_job(queue=queue, priority=priority)

    finding = trouble("leases")
    assert 3 == finding["value"]
    assert "10 min ago" in in_minutes(finding["what"])


def test_what_was_found_stands_in_a_column():
    """However long the names of the checks are."""
    make_worker()

    lines = run()[1].splitlines()[:-1]
    starts = {
        re.match(r"(?:\w+ +\w+ +)?", line + "x").end()
        for line in lines
        if line[0] != " "
    }
    indents = {len(line) - len(line.lstrip()) for line in lines if line[0] == " "}

    assert {len("subscribed_tasks") + 10} == starts
    assert indents <= starts | {start + 3 for start in starts}


def test_jobs_of_tasks_that_are_not_declared():
    """With their names, harmless to a terminal."""
    make_worker()
    make_job(task="gone\x1b[31m")
    make_job(task="tests.app.tasks.noop")

    finding = trouble("tasks")
    assert ["gone\x1b[31m"] == finding["value"]
    assert "\x1b" not in run()[1]


def test_new_dead_letters():
    """By reason; old ones are no news."""
    make_dead_letter(reason="timeout")
    make_dead_letter(reason="timeout")
    make_dead_letter(finished_at=timedelta(days=-2))

    finding = trouble("dead_letters")
    assert 2 == finding["value"]
    assert "2 timeout" in finding["what"]


def test_what_gave_up_though_a_rule_had_redriven_it(settings):
    """Asked where there are rules, and of the last day."""
    headers = {"pgqueue.reprocessed_at": "2026-01-01T00:00:00+00:00"}
    make_dead_letter(headers=headers)
    make_dead_letter(headers=headers, finished_at=timedelta(days=-2))
    make_dead_letter()
    assert "reprocessed" not in examined()[1]

    settings.PGQUEUE = {"REPROCESS": [{"reason": "exhausted"}]}

    assert 1 == trouble("reprocessed")["value"]
    DeadLetter.objects.all().delete()
    assert "ok" == examined()[1]["reprocessed"]["severity"]


def test_what_a_role_may_not_see_is_a_warning(monkeypatch):
    """And the other examinations go on."""

    def forbidden(cursor, settings):
        """Ask for what is not there."""
        cursor.execute("SELECT * FROM nowhere")
        yield

    forbidden.__name__ = "nowhere"
    monkeypatch.setattr(
        examine_jobs, "EXAMINATIONS", (forbidden, *examine_jobs.EXAMINATIONS)
    )

    status, found = examined()
    assert "could not be examined" in found["nowhere"]["what"]
    assert CHECKS < set(found)
    assert 0 == status


# The export of the archive -----------------------------------------------------------

TARGET = "/srv/export"


@pytest.fixture
def yesterdays(archive_days, cursor):
    """The archive has the last nine days too; returns them, the latest first."""
    today = partitions.today(cursor)
    days = [today - timedelta(days=age) for age in range(1, 10)]
    with cursor.connection.transaction():
        for day in days:
            partitions.make_partition(cursor, day)
    return days


def note_export(cursor, day):
    found = exports.content(cursor, partitions.partition_name(day))
    exports.begin(cursor, TARGET, day, form="parquet", run=1)
    exports.publish(cursor, TARGET, day, run=1)
    exports.record(cursor, TARGET, day, run=1, found=found, content="", files=[])


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

    exports.begin(cursor, TARGET, yesterdays[-2], form="parquet", run=1)
    exports.fail(cursor, TARGET, yesterdays[-2], run=1, error="No space left.")
    note_export(cursor, yesterdays[-1])
    assert "exported to /srv/export. No space left." in trouble("export")["what"]

    note_export(cursor, yesterdays[-2])
    assert "7 days of the archive" in trouble("export")["what"]
    for day in yesterdays[2:-2]:
        note_export(cursor, day)
    assert "ok" == examined()[1]["export"]["severity"]
    exports.doubt(cursor, TARGET, yesterdays[-1], error="The files have 2 rows.")
    found = trouble("export")
    assert [str(yesterdays[-1])] == found["value"]
    assert "wrong with 1 exported days" in found["what"]
    assert "The files have 2 rows." in found["what"]
    assert "run verify" in found["way_out"]


def test_an_export_that_never_ran_is_found(settings, cursor, archive_days):
    """Once a day has ended; and one that the settings do not know of."""
    day = partitions.today(cursor) - timedelta(days=1)
    settings.PGQUEUE = {"EXPORT": {"path": TARGET}}
    assert "ok" == examined()[1]["export"]["severity"]
    with cursor.connection.transaction():
        partitions.make_partition(cursor, day)
    assert "Nothing was exported to /srv/export yet" in trouble("export")["what"]

    settings.PGQUEUE = {}
    assert "ok" == examined()[1]["export"]["severity"]
    note_export(cursor, day)
    assert "retention does not wait" in trouble("export")["what"]


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


def test_overdue_ticks_are_found():
    """An error: nobody issues them. Those of paused ones are none."""
    make_schedule(next_tick=LONG_AGO)
    make_schedule(name="paused", next_tick=2 * LONG_AGO, paused_at=LONG_AGO)

    finding = trouble("ticks")

    assert 540 < finding["value"] < 660
    assert "Ticks are overdue, the first for 10 min: nightly." == in_minutes(
        finding["what"]
    )
    assert "pgqueue_worker" in finding["way_out"]


def test_schedules_that_cannot_be_read_are_found():
    """By name, with why."""
    make_schedule(name="a", error="There is no time zone 'Mars'.")

    finding = trouble("schedules")

    assert ["a"] == finding["value"]
    assert "There is no time zone 'Mars'." in finding["what"]


def test_schedules_that_code_declares_no_longer_are_found():
    """They rest until somebody deletes them."""
    make_declared(name="old", withdrawn_at=LONG_AGO)

    assert ["old"] == trouble("withdrawn")["value"]


def test_a_schedule_of_a_user_that_hides_one_of_code_is_found(monkeypatch):
    """The code's never runs."""
    monkeypatch.setattr(declare, "_declared", {})
    cron("@daily", name="evening")(tasks.noop)
    make_schedule(name="evening")

    assert ["evening"] == trouble("hidden")["value"]


def test_schedules_of_a_task_that_is_not_declared_are_found():
    """Those that rest are none."""
    make_schedule(name="a", task="no.such.task")
    make_schedule(name="b", task="no.such.task", paused_at=LONG_AGO)

    assert ["a"] == trouble("schedule_tasks")["value"]


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

"""`manage.py pgqueue sequences`: what a restore without them has left behind."""

import io
import json

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models

from django_pgqueue import chain
from django_pgqueue.log.lag import lag
from django_pgqueue.models import Job, LogState, Message
from django_pgqueue.postgres import counters
from django_pgqueue.queues import durable
from django_pgqueue.queues.partitions import make_partitions
from tests.app.workflow_tasks import give
from tests.harness.factories import make_dead_letter, make_job, make_schedule, make_tick
from tests.log.log import batch, make_group, make_topic, payloads, put, take
from tests.management.test_doctor import examined

pytestmark = pytest.mark.django_db(transaction=True)

OWNED = """
SELECT t.relname || '.' || a.attname
  FROM pg_class s
  JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid
                  AND d.deptype IN ('a', 'i')
  JOIN pg_class t ON t.oid = d.refobjid
  JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
 WHERE s.relkind = 'S' AND t.relname LIKE 'pgqueue\\_%'
"""
BACK = """
SELECT setval('pgqueue_message_id_seq', 1, false),
       setval(pg_get_serial_sequence('pgqueue_job', 'id'), 1, false)
"""


@pytest.fixture(autouse=True)
def repaired():
    """Sequences as they should be, before and after."""
    with connection.cursor() as cursor:
        make_partitions(cursor)
    yield
    with connection.cursor() as cursor:
        counters.repair(cursor)


def run(*arguments):
    """Return (status, output, notes) of the subcommand."""
    out, notes, status = io.StringIO(), io.StringIO(), 0
    try:
        call_command("pgqueue", "sequences", *arguments, stdout=out, stderr=notes)
    except SystemExit as end:
        status = end.code
    return status, out.getvalue(), notes.getvalue()


def test_every_sequence_of_ours_is_looked_at(cursor):
    """Those of the database, and every id that a model draws."""
    cursor.execute(OWNED)
    owned = {name for (name,) in cursor.fetchall()}
    drawn = {
        f"{model._meta.db_table}.{model._meta.pk.column}"
        for model in apps.get_app_config("pgqueue").get_models()
        if isinstance(model._meta.pk, models.AutoField | models.BigAutoField)
    }

    assert owned == set(counters.USED)
    by_sql = {"pgqueue_message.id", "pgqueue_scheduled_message.id"}
    assert set(counters.USED) == drawn | by_sql


def test_a_log_whose_sequence_fell_behind_is_found_and_repaired(cursor):
    """What was published meanwhile is told; what is published then is read."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *range(500))
    claimed = take(cursor, group)
    assert ids[-1] == batch(cursor, claimed).to
    cursor.execute(
        "UPDATE pgqueue_position SET position = %s, leased_by = NULL,"
        " leased_until = NULL",
        [ids[-1]],
    )
    cursor.execute(BACK)
    put(cursor, "low", "lower")

    assert take(cursor, group) is None
    (row,) = lag(cursor, group)
    assert ("beyond", True) == (row.state, row.is_beyond)
    finding = examined()[1]["sequences"]
    assert ("error", ["pgqueue_message.id"]) == (finding["severity"], finding["value"])
    assert "manage.py pgqueue sequences repair" == finding["way_out"]
    assert 1 == run()[0]

    status, told, notes = run("repair")
    assert (0, f"pgqueue_message.id goes on after {ids[-1]:,}; it stood at 2.\n") == (
        status,
        told,
    )
    assert "Topic clicks: 2 messages came meanwhile" in notes
    assert "ok" == examined()[1]["sequences"]["severity"]
    put(cursor, "high")
    assert ["high"] == payloads(batch(cursor, take(cursor, group)))


def test_every_id_that_rows_have_is_passed():
    """Also where a job is a dead letter by now, and of what other tables refer to."""
    make_job()
    dead = make_dead_letter()
    tick = make_tick(make_schedule())
    with connection.cursor() as cursor:
        cursor.execute(BACK)
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('pgqueue_tick', 'id'), 1, false),"
            " setval(pg_get_serial_sequence('pgqueue_schedule', 'id'), 1, false)"
        )
    told = json.loads(run("repair", "--json")[1])["repaired"]

    assert {
        "pgqueue_job.id": dead.pk,
        "pgqueue_tick.id": tick.pk,
        "pgqueue_schedule.id": tick.schedule_id,
    } == {each["gives"]: each["in_use"] for each in told}
    assert make_job().pk > dead.pk
    assert {"repaired": [], "passed_over": {}} == json.loads(run("repair", "--json")[1])


def test_an_epoch_that_was_lost_is_raised(cursor):
    """A new subscription would take old messages for those that it has had."""
    put(cursor, 1)
    Message.objects.update(epoch=7)
    LogState.objects.all().delete()
    (behind,) = [each for each in counters.counters(cursor) if each.is_behind]
    assert ("pgqueue_log_state.epoch", 0, 7) == behind

    run("repair")
    assert 7 == LogState.objects.get().epoch
    assert "None is behind.\n" == run("repair")[1]


def test_a_database_in_order_is_left_as_it_is():
    """Listed with what each has given; also where nothing was drawn so far."""
    make_job()
    status, told, _ = run()

    assert (0, "None is behind.\n") == (status, run("repair")[1])
    assert 1 == Job.objects.count()
    assert {"ok"} == {line.split()[1] for line in told.splitlines()[1:]}


def test_the_ids_of_steps_and_of_what_jobs_have_done_are_not_drawn_again(cursor):
    """A step has its job's id before there is one; a job's steps outlive its rows."""
    result = chain(give.s(1), give.s()).delay()
    last = max(step.id for step in result.steps())
    cursor.execute("SELECT setval(pg_get_serial_sequence('pgqueue_job', 'id'), 1)")
    assert last == used_of(cursor, "pgqueue_job.id")

    durable.store(cursor, last + 5, 0, "one", "step")
    assert last + 5 == used_of(cursor, "pgqueue_job.id")


def used_of(cursor, column):
    """Return what the sequence of a column should have drawn at least; it is behind."""
    (found,) = [each for each in counters.counters(cursor) if each.column == column]
    assert found.is_behind
    return found.used

"""The SQL that the doctor prints: for sequences left behind, and days closed early."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.apps import apps
from django.db import models

from django_pgqueue import chain
from django_pgqueue.log import days
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.horizon import DRAWN
from django_pgqueue.log.lag import lag
from django_pgqueue.models import LogDay, LogState, Message
from django_pgqueue.postgres import counters
from django_pgqueue.postgres.day_tables import ARCHIVE, LOG
from django_pgqueue.queues import durable
from django_pgqueue.topics.publish import publish
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
BACK = "SELECT setval(pg_get_serial_sequence(%s, 'id'), 1, false)"


def repair(cursor):
    """Run the SQL of every counter that is behind; return those."""
    behind = [each for each in counters.counters(cursor) if each.is_behind]
    for each in behind:
        cursor.execute(counters.repair_sql(cursor, each))
    return {each.column: each.used for each in behind}


@pytest.fixture
def repaired(cursor):
    """Sequences as they should be, before and after."""
    ARCHIVE.make(cursor)
    yield
    repair(cursor)


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
    assert set(counters.USED) == drawn | {"pgqueue_message.id"}


def test_a_log_whose_sequence_fell_behind_is_found_and_repaired(cursor, repaired):
    """By the SQL of the finding; what is published then is read."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *range(500))
    take(cursor, group)
    cursor.execute(
        "UPDATE pgqueue_position SET position = %s, leased_by = NULL,"
        " leased_until = NULL",
        [ids[-1]],
    )
    cursor.execute("SELECT setval('pgqueue_message_id_seq', 1, false)")
    put(cursor, "low")

    assert take(cursor, group) is None
    (row,) = lag(cursor, group)
    assert "beyond" == row.state
    finding = examined()[1]["sequences"]
    assert ("error", ["pgqueue_message.id"]) == (finding["severity"], finding["value"])
    statement, _, more = finding["way_out"].removeprefix("Run: ").partition("; ")
    assert f"greatest({ids[-1]}, 1)" in statement
    assert "manage.py pgqueue seek TOPIC/GROUP --to earliest" in more

    cursor.execute(statement)
    assert "ok" == examined()[1]["sequences"]["severity"]
    put(cursor, "high")
    assert ["high"] == payloads(batch(cursor, take(cursor, group)))


def test_every_id_that_rows_have_is_used(cursor, repaired):
    """Of dead letters, steps without a job, steps of jobs that are gone, and ticks."""
    dead = make_dead_letter()
    tick = make_tick(make_schedule())
    for table in ("pgqueue_job", "pgqueue_tick", "pgqueue_schedule"):
        cursor.execute(BACK, [table])

    assert {
        "pgqueue_job.id": dead.pk,
        "pgqueue_tick.id": tick.pk,
        "pgqueue_schedule.id": tick.schedule_id,
    } == repair(cursor)
    assert make_job().pk > dead.pk
    assert {} == repair(cursor)

    step = max(step.id for step in chain(give.s(1), give.s()).delay().steps())
    cursor.execute(BACK, ["pgqueue_job"])
    assert {"pgqueue_job.id": step} == repair(cursor)
    durable.store(cursor, step + 5, 0, "one", "step")
    assert {"pgqueue_job.id": step + 5} == repair(cursor)


def test_an_epoch_that_was_lost_is_raised(cursor, repaired):
    """A new subscription would take old messages for those that it has had."""
    put(cursor, 1)
    Message.objects.update(epoch=7)
    LogState.objects.all().delete()

    assert {"pgqueue_log_state.epoch": 7} == repair(cursor)
    assert 7 == LogState.objects.get().epoch


def test_days_that_a_wrong_clock_has_closed_are_opened_again(cursor, log_days):
    """By the SQL of the finding; days that are over stay closed."""
    early = [log_days(0), log_days(0) + timedelta(days=1)]
    LogDay.objects.create(day=log_days(1), last_id=0)
    cursor.execute(f"SELECT {DRAWN}")
    (highest,) = cursor.fetchone()
    for day in early:
        # As a leader closes it whose database has a clock that is ahead.
        cursor.execute(
            f"ALTER TABLE {LOG.name_of(day)} ADD CONSTRAINT {LOG.name_of(day)}_closed"
            f" CHECK (id <= {highest}) NOT VALID"
        )
        LogDay.objects.create(day=day, last_id=highest)
    make_topic()
    group = make_group(cursor)
    cursor.execute(
        "UPDATE pgqueue_position SET leased_by = 'w', fence = 7,"
        " leased_until = clock_timestamp() + '1 hour'"
    )
    with pytest.raises(Exception, match=f"{LOG.name_of(early[0])}_closed"):
        publish("orders", 1)
    status, found = examined()
    finding = found["log_early"]
    assert (1, "error") == (status, finding["severity"])
    assert [str(day) for day in early] == finding["value"]
    statements = finding["way_out"].partition("Then run: ")[2]
    forget, pause, rest = statements.partition("SELECT pg_sleep(15);")
    assert pause

    cursor.execute(forget)
    # Half done, as by somebody who was interrupted.
    assert early == days.closed_early(cursor)
    cursor.execute(rest)

    assert [] == days.closed_early(cursor)
    (message,) = put(cursor, "a")
    assert message > highest
    claimed = take(cursor, group)
    assert 9 == claimed.fence
    assert ["a"] == payloads(batch(cursor, claimed))
    assert [log_days(1)] == [day for day, _last_id in closed_days(cursor).closed]
    assert "ok" == examined()[1]["log_early"]["severity"]

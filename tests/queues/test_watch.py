"""The watch: what is wrong is found by the database, and said once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import Alert, Lane, Queue
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.postgres.wake import channel, listen
from django_pgqueue.queues import watch
from django_pgqueue.queues.claim import claim
from tests.harness.factories import (
    LEASE,
    make_dead_letter,
    make_group,
    make_job,
    make_leased_job,
    make_position,
    make_schedule,
    make_stuck_saga,
    make_topic,
)
from tests.harness.notices import heard_until_now

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def look(cursor):
    """Look; return what has changed: kind, subject and change."""
    return lambda: [each[:3] for each in watch.look(cursor)]


@pytest.fixture
def log(cursor):
    """What the server has said to the session that looks, by severity."""
    said = []
    cursor.execute("SET client_min_messages = log")
    cursor.connection.add_notice_handler(
        lambda notice: said.append(
            (notice.severity_nonlocalized, notice.message_primary)
        )
    )
    return said


def halted():
    topic = make_topic(name="orders", partitions=2)
    group = make_group(topic, name="audit")
    return make_position(
        group,
        halted_at=CLOCK,
        halted_for="failure",
        errors=[{"kind": "failed", "message": "secret"}],
    )


def made_wrong():
    """Make one of each; return what undoes it, by kind and subject."""
    lapsed = make_leased_job("gone", queue="mail", visible_at=-HOUR)
    unclaimed = make_job(queue="bank", visible_at=-HOUR)
    dead = make_dead_letter(task="shop.charge", errors=[{"type": "shop.Refused"}])
    silent = make_schedule(name="nightly", next_tick=-HOUR)
    position = halted()
    saga = make_stuck_saga(name="order")
    return {
        ("halted_groups", "orders/audit"): position.delete,
        ("lapsed_leases", "mail"): lapsed.delete,
        ("new_dead_letters", "shop.charge"): dead.delete,
        ("silent_schedules", "nightly"): silent.delete,
        ("stuck_sagas", "order"): saga.delete,
        ("unclaimed_jobs", "bank"): unclaimed.delete,
    }


# What is wrong ------------------------------------------------------------------------


def test_each_is_said_once_and_once_that_it_is_over(look, log):
    """Into the server's log, and in the rows of the call."""
    wrong = made_wrong()
    assert [(*each, "begins") for each in sorted(wrong)] == look()
    warned = {message.split(": ")[1] for level, message in log if level == "WARNING"}
    assert {f"{kind} of {subject}" for kind, subject in wrong} == warned
    log.clear()

    assert [] == look()
    assert [] == log

    for undo in wrong.values():
        undo()
    assert [(*each, "ends") for each in sorted(wrong)] == look()
    assert {"LOG"} == {level for level, _ in log}
    assert [] == look()


def test_nothing_that_a_job_says_is_said(look, log):
    """Neither arguments nor messages: the log of a server is read by others."""
    make_dead_letter(
        task="t",
        args=["secret"],
        errors=[{"type": "shop.Refused", "message": "secret", "traceback": "secret"}],
    )
    halted()
    look()

    assert 2 == len(log)
    assert "secret" not in str(log) + str(list(Alert.objects.values_list()))
    assert "exhausted: shop.Refused" in str(log)


# What is as it should be --------------------------------------------------------------


def test_what_waits_on_purpose_is_no_alert(look):
    """Of a paused queue or task, of a paused or withdrawn schedule, and later jobs."""
    Queue.objects.create(name="mail", paused_at=CLOCK)
    Lane.objects.create(name="shop.call", paused_at=CLOCK)
    make_job(queue="mail", visible_at=-HOUR)
    make_leased_job("gone", queue="mail", visible_at=-HOUR)
    make_job(queue="bank", task="shop.call", visible_at=-HOUR)
    make_schedule(name="paused", next_tick=-HOUR, paused_at=CLOCK)
    make_schedule(name="withdrawn", next_tick=-HOUR, withdrawn_at=CLOCK)
    make_job(visible_at=-2 * MINUTE)
    make_leased_job("works", visible_at=MINUTE)
    make_dead_letter(finished_at=-HOUR)

    assert [] == look()


# With every worker dead ---------------------------------------------------------------


def test_a_lapsed_lease_is_said_by_plain_sql_until_a_worker_takes_it(cursor, log):
    """Once, by a session that knows nothing of the app."""
    make_leased_job("gone", queue="mail", visible_at=-HOUR)
    cursor.execute("SELECT pgqueue_watch()")
    cursor.execute("SELECT pgqueue_watch()")
    assert ["WARNING"] == [level for level, _ in log]

    assert claim(cursor, queues=["mail"], worker="w", limit=1, lease=LEASE)
    cursor.execute("SELECT pgqueue_watch()")
    assert ["WARNING", "LOG"] == [level for level, _ in log]


# Who looks ----------------------------------------------------------------------------


def test_others_hear_of_it_after_the_commit(cursor, other_cursor, look):
    """By one NOTIFY, however much there is; of nothing, by none."""
    name = channel(other_cursor)
    listen(other_cursor, [name])
    made_wrong()
    assert 6 == len(look())
    assert [watch.HINT] == heard_until_now(other_cursor.connection, name)
    assert [] == look()
    assert [] == heard_until_now(other_cursor.connection, name)


def test_what_was_said_since_a_moment_is_read_by_whoever_was_away(cursor):
    """With the change, as the call that found it gave it."""
    before = watch.now(cursor)
    letter = make_dead_letter(task="t")
    found = watch.look(cursor)
    said, upto = watch.said_after(cursor, before)
    assert found == said
    assert ([], upto) == watch.said_after(cursor, upto)
    assert [found[0]._replace(change="stands")] == watch.standing(cursor)
    letter.delete()

    found = watch.look(cursor)
    assert (found, "ends") == (watch.said_after(cursor, upto)[0], found[0].change)
    assert [] == watch.standing(cursor)

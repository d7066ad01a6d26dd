"""Waiting: how a process hears of the end of jobs."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import pytest
from django.db import connection, connections, transaction

from django_pgqueue import topic
from django_pgqueue.models import Job
from django_pgqueue.queues.waited import tell
from django_pgqueue.tasks import waiting
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.waiting import Ear, Wait
from tests.harness.factories import make_archived_job, make_job
from tests.harness.waiting import wait_for
from tests.log.log import make_group, make_topic

pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = """
SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'pgqueue results %%'
"""


@pytest.fixture(autouse=True)
def _no_ears(monkeypatch):
    """What other tests have left is not heard by."""
    monkeypatch.setattr(waiting, "_ears", {})


@pytest.fixture
def sessions(other_cursor):
    """A function that returns the connections that wait for results."""
    return lambda: [pid for (pid,) in other_cursor.execute(SESSIONS).fetchall()]


@pytest.fixture
def wait_on(sessions):
    """A function that begins a wait; at the end all are over, and nobody listens."""
    ear = Ear(waiting.ear()._alias)
    waits = []

    def wait_on(*ids):
        woken = threading.Event()
        wait = Wait(ids, woken.set)
        wait.woken, wait.ear = woken, ear
        waits.append(wait)
        ear.add(wait)
        return wait

    yield wait_on
    for wait in waits:
        ear.remove(wait)
    wait_for(lambda: not sessions(), what="the connection is closed")


def hears(wait):
    wait_for(lambda: wait.hears, what="the wait is announced")
    # Which wakes him, once: whoever clears that does so afterwards.
    assert wait.woken.wait(20)
    return wait


# Telling -----------------------------------------------------------------------------


def test_a_wait_is_announced_and_then_everything_is_looked_at(wait_on, heard):
    """A job may have ended before anybody knew that somebody waits."""
    wait = wait_on(1, 2)

    assert wait.woken.wait(20)
    assert ["!wait:1,2"] == heard()
    assert wait.hears
    assert wait.take() is None
    assert set() == wait.take()


def test_who_waits_is_told_of_his_jobs(wait_on, other_cursor):
    """And of no others; each time, of those that have ended since."""
    one, other = hears(wait_on(1, 2)), hears(wait_on(2, 3))
    for wait in (one, other):
        wait.take()
        wait.woken.clear()
    tell(other_cursor, [2, 9])

    assert one.woken.wait(20)
    assert other.woken.wait(20)
    assert ({2}, {2}) == (one.take(), other.take())
    one.woken.clear()
    other.woken.clear()
    tell(other_cursor, [3])
    assert other.woken.wait(20)
    assert {3} == other.take()
    assert not one.woken.is_set()


def test_who_waits_for_a_topic_is_told_of_its_messages(wait_on, cursor):
    """Also where nobody in the process has ever waited for a pull queue."""
    make_topic()
    make_group(cursor)
    wait = hears(wait_on("!topic clicks"))
    wait.take()
    wait.woken.clear()
    topic("clicks").publish({"n": 1})

    assert wait.woken.wait(20)
    assert {"!topic clicks"} == wait.take()


def test_all_waits_of_a_process_share_a_connection(wait_on, sessions, monkeypatch):
    """It is closed when the last one is over: in tests at once."""
    monkeypatch.setattr(waiting, "IDLE_SECONDS", 3_600.0)
    waits = [hears(wait_on(n)) for n in range(5)]
    assert 1 == len(sessions())

    for wait in waits:
        wait.ear.remove(wait)
    wait_for(lambda: not sessions(), what="it is closed")
    hears(wait_on(7))
    assert 1 == len(sessions())


# Losing ------------------------------------------------------------------------------


def test_who_waits_looks_by_himself_while_the_connection_is_lost(
    wait_on, sessions, other_cursor, heard, monkeypatch
):
    """All that he waits for is announced on the next one, at once."""
    monkeypatch.setattr(waiting, "ANNOUNCE_SECONDS", 3_600.0)
    wait = hears(wait_on(1, 2))
    wait.ear.ended(wait, [1])
    heard()
    wait.take()
    wait.woken.clear()
    (pid,) = sessions()
    other_cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])

    assert wait.woken.wait(20)
    assert wait.take() is None
    hears(wait)
    assert ["!wait:2"] == heard()
    assert wait.take() is None
    tell(other_cursor, [2])
    wait_for(lambda: wait.take() == {2}, what="he is told")


def test_behind_a_pooler_nobody_listens(wait_on, sessions, monkeypatch, caplog):
    """LISTEN would be another client's; the way out is said once, and nothing tried."""
    monkeypatch.setattr(waiting, "is_pooled", lambda connection: True)
    with caplog.at_level(logging.DEBUG, "django_pgqueue.wake"):
        wait = wait_on(1)
        wait_for(lambda: caplog.messages, what="it is said")
        again = wait_on(2)

    (line,) = caplog.messages
    assert "PGQUEUE['LISTEN_DATABASE']" in line
    assert (False, False) == (wait.hears, again.hears)
    assert again.ear._wakeup is None


# Callers -----------------------------------------------------------------------------


@pytest.fixture
def only_told(monkeypatch):
    """Who is told looks once after his announcement, and then not for an hour."""
    monkeypatch.setattr(waiting, "TOLD_PAUSES_SECONDS", ())
    monkeypatch.setattr(waiting, "TOLD_PAUSE_SECONDS_MAX", 3_600.0)


def is_announced():
    """Whether somebody waits, and would be told."""
    ears = list(waiting._ears.values())
    return any(wait.hears for ear in ears for wait in list(ear._waits))


def rests(thread):
    """Whether it waits by wait_until(), and looks in a minute at the earliest."""
    innermost = frame = sys._current_frames()[thread]
    while frame is not None and frame.f_code is not waiting.wait_until.__code__:
        frame = frame.f_back
    is_next_far = frame is not None and frame.f_locals["looks"].seconds > 60
    return is_next_far and innermost.f_code is threading.Condition.wait.__code__


def end_when_announced(ids):
    """End these jobs behind everybody's back, and tell so, once somebody waits."""
    wait_for(is_announced, what="somebody waits")
    try:
        with transaction.atomic():
            Job.objects.filter(pk__in=ids).delete()
            for job_id in ids:
                make_archived_job(id=job_id, result=7)
        with connection.cursor() as cursor:
            tell(cursor, ids)
    finally:
        connections.close_all()


@pytest.mark.usefixtures("only_told")
def test_get_returns_when_it_is_told(in_thread, sessions):
    """It looks at nothing for an hour."""
    row = make_job()
    in_thread(end_when_announced, [row.pk])

    assert 7 == JobResult(row.pk).get(timeout="1h")
    wait_for(lambda: not sessions(), what="the connection is closed")


@pytest.mark.usefixtures("only_told")
def test_ctrl_c_ends_a_wait(sessions):
    """And the wait is forgotten."""
    row = make_job()
    main = threading.main_thread().ident

    def interrupt():
        wait_for(is_announced, what="the main thread waits")
        wait_for(lambda: rests(main), what="it has looked, and is in no statement")
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        JobResult(row.pk).get(timeout="1h")
    thread.join()

    assert [[]] == [list(ear._waits) for ear in waiting._ears.values()]
    wait_for(lambda: not sessions(), what="the connection is closed")


def test_a_process_that_was_forked_listens_by_itself(wait_on, sessions):
    """The connection of the other one is left alone, and goes on."""
    hears(wait_on(1))
    ours = waiting.ear()
    before = sessions()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        is_new = waiting.ear() is not ours and waiting._inherited[-1] != {}
        os.write(writer, b"1" if is_new else b"0")
        os._exit(0)
    os.waitpid(child, 0)

    assert b"1" == os.read(reader, 1)
    os.close(reader)
    os.close(writer)
    assert before == sessions()

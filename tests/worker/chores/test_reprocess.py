"""Reprocess: whoever leads redrives dead letters by rules, no faster than these say."""

from __future__ import annotations

import logging
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.conf import parse
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.postgres.wake import channel, listen
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.settle import Ended, dead_letter
from django_pgqueue.worker.chores import reprocess
from django_pgqueue.worker.chores.reprocess import (
    NEXT_SECONDS,
    REST_SECONDS,
    chores,
)
from tests.harness.factories import LEASE, make_dead_letter, make_job
from tests.harness.notices import heard_until_now

HOUR = timedelta(hours=1)


def letter(**columns):
    return make_dead_letter(**{"finished_at": -HOUR, **columns})


def rule(**said):
    (chore,) = chores(parse({"REPROCESS": [{"reason": "exhausted", **said}]}))
    return chore


@pytest.fixture
def log(caplog):
    """A function that returns the lines of the chore until now."""
    with caplog.at_level(logging.INFO, logger="django_pgqueue.worker"):
        yield lambda: caplog.messages


def test_without_rules_there_is_no_chore():
    """No statement, and nothing to wake for."""
    assert [] == chores(parse({}))


def test_letters_go_back_and_their_queues_are_woken(link, other_cursor, log):
    """The log says how many, and by which rule."""
    name = channel(other_cursor)
    listen(other_cursor, [name])
    made = [letter(queue="mail").pk, letter(queue="mail").pk]

    assert REST_SECONDS == rule()(link)

    assert made == [*Job.objects.order_by("pk").values_list("pk", flat=True)]
    assert ["mail"] == heard_until_now(other_cursor.connection, name)
    assert ["redriven   jobs=2 by PGQUEUE['REPROCESS'][0]"] == log()


def test_what_gives_up_again_stays(link, cursor):
    """Whichever rule has sent it back."""
    dead = letter()
    chore = rule(after=0)
    chore(link)
    (job,) = claim(cursor, queues=["default"], worker="w", limit=1, lease=LEASE)
    ended = Ended(job.id, job.delivery, error="{}", reason="exhausted")
    assert {dead.pk} == dead_letter(cursor, worker="w", ended=[ended])

    for again in (chore, rule(after=0)):
        assert REST_SECONDS == again(link)
    assert 0 == Job.objects.count()
    assert "pgqueue.reprocessed_at" in DeadLetter.objects.get().headers


def test_no_more_go_back_in_a_time_than_the_rate_says(link):
    """Others wait, and are not passed over."""
    for _ in range(5):
        letter()
    chore = rule(rate="2/m")

    assert 60.0 == chore(link)
    assert 2 == Job.objects.count()
    assert 60.0 == chore(link)
    assert 4 == Job.objects.count()
    assert REST_SECONDS == chore(link)
    assert 5 == Job.objects.count()


def test_a_rate_below_one_a_minute_is_kept(link):
    """One goes, and the next one in its time."""
    letter()
    letter()

    assert 3_600.0 == rule(rate="1/h")(link)
    assert 1 == Job.objects.count()


def test_more_that_are_not_meant_are_read_soon(link, monkeypatch):
    """A look ends somewhere, and the next one goes on there."""
    monkeypatch.setattr(reprocess.reprocess, "LOOK_ROWS_MAX", 2)
    letter(reason="rejected")
    letter(reason="rejected")
    letter()
    chore = rule()

    assert NEXT_SECONDS == chore(link)
    assert 0 == Job.objects.count()
    assert REST_SECONDS == chore(link)
    assert 1 == Job.objects.count()


def test_what_could_not_go_back_is_tried_again_in_an_hour(link, monkeypatch):
    """Such as one whose key a live job has; what comes meanwhile goes as ever."""
    letter(dedup_key="k")
    monkeypatch.setattr(reprocess, "ANEW_SECONDS", 0.0)
    chore = rule()
    job = make_job(dedup_key="k")
    assert REST_SECONDS == chore(link)
    assert 1 == DeadLetter.objects.count()
    job.delete()

    assert REST_SECONDS == chore(link)
    assert 0 == DeadLetter.objects.count()


def test_what_the_database_was_lost_over_is_looked_at_again(link, other_cursor):
    """By the next look, and not in an hour."""
    letter()
    chore = rule()
    with link.cursor() as cursor:
        cursor.execute("SET lock_timeout = '10ms'")
    with other_cursor.connection.transaction():
        other_cursor.execute("LOCK TABLE pgqueue_job IN EXCLUSIVE MODE")
        with pytest.raises(psycopg.OperationalError, match="lock timeout"):
            chore(link)

    assert REST_SECONDS == chore(link)
    assert 1 == Job.objects.count()


def test_one_that_its_queue_refuses_keeps_no_other_one(link, log):
    """It stays, and the log names it."""
    good, bad, last = letter(), letter(), letter()
    DeadLetter.objects.filter(pk=bad.pk).update(args={})

    assert REST_SECONDS == rule()(link)

    assert {good.pk, last.pk} == {*Job.objects.values_list("pk", flat=True)}
    assert any(
        f"failed     redrive of job={bad.pk} by PGQUEUE" in line for line in log()
    )

"""Reprocess: whoever leads redrives dead letters by rules, no faster than these say."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from django_pgqueue.conf import parse
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.postgres.wake import channel, listen
from django_pgqueue.worker.chores.reprocess import (
    REST_SECONDS,
    chores,
)
from tests.harness.factories import make_dead_letter
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


def test_letters_go_back_and_their_queues_are_woken(link, other_cursor, log):
    """The log says how many, and by which rule."""
    name = channel(other_cursor)
    listen(other_cursor, [name])
    made = [letter(queue="mail").pk, letter(queue="mail").pk]

    assert REST_SECONDS == rule()(link)

    assert made == [*Job.objects.order_by("pk").values_list("pk", flat=True)]
    assert ["mail"] == heard_until_now(other_cursor.connection, name)
    assert ["redriven   jobs=2 by PGQUEUE['REPROCESS'][0]"] == log()


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


def test_one_that_its_queue_refuses_keeps_no_other_one(link, log):
    """It stays, and the log names it."""
    good, bad, last = letter(), letter(), letter()
    DeadLetter.objects.filter(pk=bad.pk).update(args={})

    assert REST_SECONDS == rule()(link)

    assert {good.pk, last.pk} == {*Job.objects.values_list("pk", flat=True)}
    assert any(
        f"failed     redrive of job={bad.pk} by PGQUEUE" in line for line in log()
    )

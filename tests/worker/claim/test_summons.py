"""Summons: a supervisor hears that jobs wait to run alone, and nobody waits for it."""

from __future__ import annotations

import multiprocessing

import pytest

from django_pgqueue.queues.suspects import Waiting
from django_pgqueue.worker.claim.quarantine import (
    Summons,
    SuspectWatch,
    served_suspects,
)
from django_pgqueue.worker.queue_plan import read_plan
from tests.harness.factories import make_job


@pytest.fixture
def summons():
    return Summons(multiprocessing.get_context("fork"))


def test_who_tells_often_is_heard_once(summons):
    """And not again, until somebody tells again."""
    for _ in range(100):
        summons.send()

    assert summons.take()
    assert not summons.take()


def test_it_is_told_of_what_waits_in_its_queues(summons, link, cursor):
    """Looked for now and then, not at each beat of the heart."""
    watch = SuspectWatch(read_plan(("mail",), None), summons)
    make_job(queue="other", runs_alone=True)
    watch.look(link)
    assert not summons.take()

    make_job(queue="mail", runs_alone=True)
    watch.look(link)
    assert not summons.take()
    SuspectWatch(read_plan(("mail",), None), summons).look(link)
    assert summons.take()
    served = served_suspects(cursor, read_plan(("mail",), None))
    assert {"mail": Waiting("mail", 1, is_limited=False)} == served

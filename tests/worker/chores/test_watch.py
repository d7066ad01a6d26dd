"""Watch: whoever leads looks for what is wrong, and tells handlers of it."""

from __future__ import annotations

import logging

import pytest

from django_pgqueue import signals
from django_pgqueue.queues import watch
from django_pgqueue.worker.chores.leader import Leader
from django_pgqueue.worker.chores.watch import INTERVAL_SECONDS, Watch
from tests.harness.factories import make_dead_letter


@pytest.fixture
def told():
    """What a receiver of the signal was told: change, kind, subject and count."""
    told = []

    def receiver(**said):
        told.append((said["change"], said["kind"], said["subject"], said["count"]))

    signals.alert_changed.connect(receiver)
    yield told
    signals.alert_changed.disconnect(receiver)


def test_what_is_found_becomes_a_signal_and_a_line(link, told, caplog):
    """Once; and once that it is over."""
    chore = Watch()
    letter = make_dead_letter(task="t")
    with caplog.at_level(logging.INFO, logger="django_pgqueue.worker"):
        assert INTERVAL_SECONDS == chore(link)
        chore(link)
        letter.delete()
        chore(link)
        chore(link)

    alert = ("new_dead_letters", "t", 1)
    assert [("begins", *alert), ("ends", *alert)] == told
    begins, ends = caplog.records
    assert (logging.WARNING, logging.INFO) == (begins.levelno, ends.levelno)
    assert begins.getMessage().startswith(
        "alert      begins kind=new_dead_letters subject=t: 1 jobs gave up"
    )


def test_what_others_have_found_is_told_of_too(link, told, cursor):
    """Such as pg_cron; but not what was said before this process led."""
    make_dead_letter(task="before")
    watch.look(cursor)
    chore = Watch()
    chore(link)
    make_dead_letter(task="after")
    watch.look(cursor)
    chore(link)

    assert [("begins", "new_dead_letters", "after", 1)] == told


def test_who_hears_of_alerts_looks_soon(link):
    """If it leads; else nobody waits for it."""
    ran = []

    def chore(link):
        ran.append(link)
        return 3_600.0

    leader = Leader(link, [chore])
    leader.hurry(chore)
    assert not leader.wake.is_set()
    leader.set_leading(True)
    leader.tick()
    leader.tick()
    assert 1 == len(ran)
    leader.wake.clear()

    leader.hurry(chore)
    assert leader.wake.is_set()
    leader.tick()
    assert 2 == len(ran)

"""Wakes: a flag per queue, however many said so."""

from __future__ import annotations

import threading

import pytest

from django_pgqueue.worker.claim.wakes import CANCEL, NAMES_MAX, Wakes
from django_pgqueue.worker.queue_plan import QueuePlan, read_plan


@pytest.fixture
def signal():
    return threading.Event()


def taken(wakes):
    """Wakes whose first flag, for everything, is already taken."""
    assert wakes.take() is None
    return wakes


def test_the_first_look_is_at_everything(signal):
    """Jobs may have come before this worker listened."""
    wakes = Wakes(QueuePlan(), signal)

    assert wakes.pending
    assert wakes.take() is None
    assert not wakes.pending
    assert set() == wakes.take()


def test_many_wakes_of_one_queue_are_one_flag(signal):
    """Taking it lowers it."""
    wakes = taken(Wakes(QueuePlan(), signal))
    for _ in range(10_000):
        wakes.flag("mail")
    wakes.flag("reports")

    assert signal.is_set()
    assert wakes.pending
    assert {"mail", "reports"} == wakes.take()
    assert not wakes.pending


def test_wakes_of_other_queues_are_nothing_to_a_worker(signal):
    """It does not even wake up."""
    wakes = taken(Wakes(read_plan(("mail",)), signal))

    wakes.flag("reports")
    assert not signal.is_set()
    assert not wakes.pending

    wakes.flag("mail")
    assert signal.is_set()
    assert {"mail"} == wakes.take()


def test_wakes_of_queues_that_match_a_pattern_are_heard(signal):
    """Also of one that nobody has heard of; not of one that is left out."""
    wakes = taken(Wakes(read_plan(("shop.*", "-shop.old")), signal))

    for queue in ("shop.old", "shop", "mail"):
        wakes.flag(queue)
    assert not signal.is_set()

    wakes.flag("shop.new")
    assert {"shop.new"} == wakes.take()


def test_a_stranger_with_made_up_names_fills_bounded_memory(signal):
    """Beyond it, the flag is for any queue."""
    wakes = taken(Wakes(QueuePlan(), signal))
    for number in range(100_000):
        wakes.flag(f"q{number}")

    assert NAMES_MAX == len(wakes._names)
    assert wakes.take() is None
    assert set() == wakes.take()


def test_as_many_queues_as_fit_are_named(signal):
    """One more is not."""
    wakes = taken(Wakes(QueuePlan(), signal))
    for number in range(NAMES_MAX):
        wakes.flag(f"q{number}")

    assert NAMES_MAX == len(wakes.take())


def test_a_reconnect_flags_everything(signal):
    """Whatever was notified meanwhile was not heard."""
    wakes = taken(Wakes(read_plan(("mail",)), signal))
    wakes.flag("mail")
    wakes.flag_any()

    assert signal.is_set()
    assert wakes.take() is None
    assert not wakes.pending


def test_after_a_reconnect_all_are_told(signal):
    """A cancel, a changed schedule or a message may have been notified meanwhile."""
    heard = []
    wakes = Wakes(
        QueuePlan(),
        signal,
        lambda: heard.append("cancel"),
        lambda: heard.append("schedules"),
        heard.append,
    )

    wakes.flag_any()

    assert ["cancel", "schedules", None] == heard


@pytest.mark.parametrize("served", [(), ("mail",)])
def test_a_cancel_is_no_queue(signal, served):
    """It reaches the heartbeat, whatever queues are served, and wakes no claimer."""
    heard = []
    wakes = taken(Wakes(read_plan(served), signal, lambda: heard.append(1)))
    signal.clear()

    wakes.flag(CANCEL)

    assert [1] == heard
    assert not wakes.pending
    assert not signal.is_set()


def test_a_wake_of_a_topic_is_for_its_readers(signal):
    """The claimer is not woken; what may be anything is for readers, too."""
    heard = []
    wakes = taken(Wakes(QueuePlan(), signal, on_topic=heard.append))

    wakes.flag("!topic clicks")
    assert not signal.is_set()
    wakes.flag_any()
    assert ["clicks", None] == heard
    taken(Wakes(QueuePlan(), signal)).flag("!topic clicks")

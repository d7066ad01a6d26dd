"""States of groups and subscriptions, in one word."""

from __future__ import annotations

from types import SimpleNamespace

from django_pgqueue.operators.states import URGENCY, behind_of, subscription_state
from django_pgqueue.worker.queue_plan import QueuePlan

# A worker that serves every queue.
ALL = (QueuePlan(),)


def part(state, *, unread=1, seconds=5.0, partition=0):
    """Return the lag of a partition, as far as states look at it."""
    halted_at = 1 if state == "halted" else None
    return SimpleNamespace(
        state=state,
        unread=unread,
        seconds=seconds,
        partition=partition,
        halted_at=halted_at,
    )


def behind(*lags, paused_at=None, plans=ALL, limit=10):
    row = SimpleNamespace(queue="stats", task="shop.count", paused_at=paused_at)
    return behind_of(row, lags, plans, limit=limit)


def test_a_group_does_the_most_urgent_of_what_its_partitions_do():
    """Whatever the others do that is less urgent."""
    for place, state in enumerate(URGENCY):
        lags = [part(word) for word in reversed(URGENCY[place:])]
        assert state == behind(*lags).state


def test_what_waits_without_a_worker_is_unserved():
    """And what is read is not."""
    assert "unserved" == behind(part("waiting"), part("reading"), plans=()).state
    assert "reading" == behind(part("reading"), plans=()).state


def test_a_pause_is_told_first():
    """Even where nobody has read a message of its log yet."""
    assert "paused" == behind(paused_at=1).state
    assert "paused" == behind(part("halted"), paused_at=1).state
    assert "idle" == behind().state


def test_a_lag_is_that_of_all_partitions():
    """The oldest message counts, and a count that stopped is told as such."""
    found = behind(part("idle", unread=0, seconds=None), part("halted", partition=1))

    assert (1, False, 5.0, [1], 2, "1") == (
        *(found.unread, found.is_more, found.seconds, found.halted),
        *(found.partitions, found.shown),
    )
    assert "11+" == behind(part("waiting", unread=10), part("waiting")).shown


def test_a_subscription_has_one_state():
    """That somebody has disabled it says the most."""
    names = ("disabled_at", "is_stale", "held_at", "full_at", "backfill_position")
    states = ("disabled", "stale", "held", "full", "back-filling", "enabled")
    for place, state in enumerate(states):
        held = [None] * place + [1] * (len(names) - place)
        row = SimpleNamespace(**dict(zip(names, held, strict=True)))
        assert state == subscription_state(row)

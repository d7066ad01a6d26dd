"""States of groups and subscriptions, in one word."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

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


@pytest.mark.parametrize("place", range(len(URGENCY)))
def test_a_group_does_the_most_urgent_of_what_its_partitions_do(place):
    """Whatever the others do that is less urgent."""
    lags = [part(word) for word in reversed(URGENCY[place:])]

    assert URGENCY[place] == behind(*lags).state


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


@pytest.mark.parametrize(
    "disabled_at, is_stale, held_at, full_at, position, state",
    [
        (1, True, 1, 1, 7, "disabled"),
        (None, True, 1, 1, 7, "stale"),
        (None, False, 1, 1, 7, "held"),
        (None, False, None, 1, 7, "full"),
        (None, False, None, None, 7, "back-filling"),
        (None, False, None, None, None, "enabled"),
    ],
)
def test_a_subscription_has_one_state(
    disabled_at, is_stale, held_at, full_at, position, state
):
    """That somebody has disabled it says the most."""
    row = SimpleNamespace(
        disabled_at=disabled_at,
        is_stale=is_stale,
        held_at=held_at,
        full_at=full_at,
        backfill_position=position,
    )

    assert state == subscription_state(row)

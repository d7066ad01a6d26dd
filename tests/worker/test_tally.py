"""What worker processes have done, in memory that all of them share."""

from __future__ import annotations

import multiprocessing
import os
import signal
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from django_pgqueue.worker import tally as tallies
from django_pgqueue.worker.tally import (
    OTHERS,
    SERIES_MAX,
    UNKNOWN,
    Tally,
    TallyBoard,
    TallyPlace,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(task="shop.send", queue="mail", waited=0.2, last_error=None):
    return SimpleNamespace(
        queue=queue,
        task=task,
        due_at=NOON,
        claimed_at=NOON + timedelta(seconds=waited),
        last_error=last_error,
    )


def filled(buckets):
    """Return how many there are in each bucket that has some, by its place."""
    return {place: count for place, count in enumerate(buckets) if count}


def test_an_attempt_counts_by_queue_task_and_end():
    """With how long it waited and ran, to the bucket; and whether it repeats one."""
    tally = Tally()
    tally.note(job(), "succeeded", 0.005, is_known=True)
    tally.note(job(waited=0.3), "dead", 7.0, is_known=True)
    tally.note(job(last_error="worker_lost"), "expired", None, is_known=True)

    (series,) = tally.series.values()
    assert {"succeeded": 1, "dead": 1, "expired": 1} == series.ends
    assert 1 == series.repeats
    assert {3: 1, 13: 1} == filled(series.runs)
    assert {8: 2, 9: 1} == filled(series.waits)
    assert pytest.approx(7.005) == series.seconds_run
    assert pytest.approx(0.7) == series.seconds_waited


def test_names_of_tasks_that_nobody_declared_are_one():
    """Whoever may insert rows makes up any number of them."""
    tally = Tally()
    for number in range(50):
        tally.note(job(f"made.up{number}"), "dead", None, is_known=False)

    assert [("mail", UNKNOWN)] == list(tally.series)
    assert {"dead": 50} == tally.series["mail", UNKNOWN].ends


def test_beyond_so_many_series_all_are_counted_as_one():
    """No number is lost, and no scrape grows without end."""
    tally = Tally()
    for number in range(SERIES_MAX + 50):
        tally.note(job(queue=f"queue{number}"), "succeeded", 1.0, is_known=True)

    assert SERIES_MAX == len(tally.series)
    assert {"succeeded": 51} == tally.series[OTHERS, OTHERS].ends


def test_who_takes_a_place_goes_on_from_its_counts():
    """Those of claims and of messages, too: no counter goes back."""
    board = TallyBoard(2)
    for claimed in (1, 2):
        place = TallyPlace(board, 0)
        place.tally.note(job(), "succeeded", 1.0, is_known=True)
        place.show(claimed=claimed, messages={"consumed": 5})
        place.show(claimed=claimed, messages={"consumed": 5})
    other = TallyPlace(board, 1)
    other.tally.note(job(), "dead", 1.0, is_known=True)
    other.show(claimed=4, messages={})

    total = board.total()
    assert {"succeeded": 2, "dead": 1} == total.series["mail", "shop.send"].ends
    assert 7 == total.claimed
    assert {"consumed": 10} == total.messages


def test_a_process_that_dies_as_it_writes_spoils_nothing():
    """What it had shown before stays, and is what the next one goes on from."""
    board = TallyBoard(1)
    board.write(0, b"before")

    def die():
        def killed(text):
            os.kill(os.getpid(), signal.SIGKILL)

        tallies.zlib = SimpleNamespace(crc32=killed)
        board.write(0, b"after it")

    process = multiprocessing.get_context("fork").Process(target=die)
    process.start()
    process.join()

    assert -signal.SIGKILL == process.exitcode
    assert b"before" == board.read(0)

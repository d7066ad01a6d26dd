"""Run token: one thread at a time takes jobs, and none is left waiting beside work."""

from __future__ import annotations

import random
import threading
from collections import deque

import pytest

from django_pgqueue.worker.run.run_token import NOBODY, RunToken
from tests.harness.waiting import wait_for


class Bench:
    """Threads that take numbers from a queue as the executor's take jobs."""

    def __init__(self, in_thread, threads, run):
        self.work = deque()
        self.token = RunToken(threads, lambda: bool(self.work))
        self.done = deque()
        self._run_one = run
        for thread in range(threads):
            in_thread(self._run, thread)

    def add(self, *items):
        self.work.extend(items)
        self.token.work_came()

    def _run(self, thread):
        while self.token.take(thread):
            try:
                item = self.work.popleft()
            except IndexError:
                self.token.wait_for_work(thread)
                continue
            self._run_one(self.token, thread, item)
            self.done.append((thread, item))


@pytest.fixture
def bench(in_thread):
    """A function that makes a Bench, which is over at the end."""
    made = []

    def bench(threads, run=lambda token, thread, item: None):
        made.append(Bench(in_thread, threads, run))
        return made[-1]

    yield bench
    for each in made:
        each.token.over()


def test_short_work_is_done_by_one_thread_in_order(bench):
    """Nobody else is woken for it."""
    one = bench(8)

    for n in range(100):
        one.add(n)
    wait_for(lambda: len(one.done) == 100, what="all is done")

    assert list(range(100)) == [item for _, item in one.done]
    assert 1 == len({thread for thread, _ in one.done})


def test_who_passes_it_on_lets_others_work_beside_it(bench):
    """As many as there are threads, each on one item."""
    inside, gate = threading.Semaphore(0), threading.Event()

    def long(token, thread, item):
        token.pass_on(thread)
        inside.release()
        assert gate.wait(10)

    four = bench(4, long)
    four.add(*range(6))

    assert all(inside.acquire(timeout=10) for _ in range(4))
    assert 2 == len(four.work)
    gate.set()
    wait_for(lambda: len(four.done) == 6, what="all is done")


def test_work_that_comes_while_nobody_has_it_wakes_a_thread(bench):
    """The one that let go of it found nothing to do for another."""
    gate = threading.Event()

    def long(token, thread, item):
        token.pass_on(thread)
        if item == "long":
            assert gate.wait(10)

    two = bench(2, long)
    two.add("long")
    wait_for(lambda: two.token.holder == NOBODY and not two.work, what="it was let go")

    two.add("next")

    wait_for(lambda: two.done, what="the other thread has done it")
    assert "next" == two.done[0][1]
    gate.set()


def test_it_can_be_taken_from_who_keeps_it_for_too_long(bench):
    """The other thread takes what waits; the first one parks after its item."""
    gate, begun = threading.Event(), threading.Event()

    def surprise(token, thread, item):
        if item == "long":
            begun.set()
            assert gate.wait(10)

    two = bench(2, surprise)
    two.add("long", "short")
    assert begun.wait(10)
    first = two.token.holder

    two.token.take_away(first)

    wait_for(lambda: two.done, what="the other thread has done it")
    assert "short" == two.done[0][1]
    assert two.token.holder != first
    gate.set()
    wait_for(lambda: len(two.done) == 2, what="all is done")


def test_taking_it_away_from_who_lost_it_already_changes_nothing(bench):
    """The watching thread's look is old by the time it acts."""
    gate = threading.Event()

    def long(token, thread, item):
        token.pass_on(thread)
        assert gate.wait(10)

    three = bench(3, long)
    three.add("a")
    wait_for(lambda: three.token.holder == NOBODY, what="it was let go")

    three.token.take_away(0)
    three.token.take_away(1)
    three.token.take_away(2)

    assert NOBODY == three.token.holder
    gate.set()


def test_no_work_is_left_behind_whoever_passes_on_takes_away_and_adds(bench):
    """Four threads, two that add, one that takes it away: 20 000 items, each once."""
    chance = random.Random(7)

    def run(token, thread, item):
        if item % 3 == 0:
            token.pass_on(thread)

    four = bench(4, run)
    stop = threading.Event()

    def add(start):
        for n in range(start, start + 10_000):
            four.add(n)

    def disturb():
        while not stop.is_set():
            four.token.take_away(chance.randrange(4))

    adders = [threading.Thread(target=add, args=(n * 10_000,)) for n in range(2)]
    disturber = threading.Thread(target=disturb)
    disturber.start()
    for adder in adders:
        adder.start()
    for adder in adders:
        adder.join()
    try:
        wait_for(lambda: len(four.done) == 20_000, 30, "all is done")
    finally:
        stop.set()
        disturber.join()

    assert set(range(20_000)) == {item for _, item in four.done}


def test_all_threads_end_when_it_is_over(bench):
    """Those that are parked, the one that waits for work, and none is left."""
    eight = bench(8)
    wait_for(lambda: eight.token.holder != NOBODY, what="somebody has it")

    eight.token.over()

    # The fixture of the threads joins them.

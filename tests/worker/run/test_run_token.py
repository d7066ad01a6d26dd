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

    # The fixture of the threads joins them.

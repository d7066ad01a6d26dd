"""Watchdog: a task that runs too long is ended, in its own thread and in no other."""

from __future__ import annotations

import socket
import threading
import time
from datetime import timedelta

import pytest

from django_pgqueue import TaskTimeout
from django_pgqueue.worker.run import watchdog as module
from django_pgqueue.worker.run.watchdog import Watchdog
from tests.harness.waiting import wait_for
from tests.tasks.test_outcome import claimed

SHORT = timedelta(milliseconds=30)
LONG = timedelta(hours=1)
JOB = claimed()
DEADLINE_SECONDS = 10.0


@pytest.fixture
def hard():
    """What is told when a task did not react."""
    return []


@pytest.fixture
def watchdog(hard):
    watchdog = Watchdog(lambda job, error: hard.append((job, error)))
    watchdog.start()
    yield watchdog
    watchdog.stop()
    watchdog.join(10)
    assert not watchdog.is_alive()


def spin():
    """Run Python code until something is raised in it."""
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        pass
    raise AssertionError("nothing was raised")


def test_a_task_that_is_done_in_time_is_left_alone(watchdog, hard):
    """What it returns is returned."""
    assert 5 == watchdog.watch(JOB, LONG, lambda: 5)
    assert not watchdog._watched
    assert [] == hard


def test_a_task_that_runs_too_long_is_told_inside_its_code(watchdog, hard):
    """It may clean up, and the exception goes on."""
    cleaned = []

    def call():
        try:
            spin()
        finally:
            cleaned.append(True)

    started = time.monotonic()
    with pytest.raises(TaskTimeout):
        watchdog.watch(JOB, SHORT, call)

    assert [True] == cleaned
    assert time.monotonic() - started >= SHORT.total_seconds()
    assert not watchdog._watched
    assert [] == hard


def test_only_the_thread_that_ran_too_long_is_told(watchdog, in_thread):
    """Others go on, whether they are watched or not."""
    errors = {}
    stop = threading.Event()

    def run(name, timeout):
        def call():
            while not stop.is_set():
                pass

        try:
            watchdog.watch(JOB, timeout, call) if timeout else call()
        except BaseException as error:
            errors[name] = type(error)
        else:
            errors[name] = None

    others = [in_thread(run, "long", LONG), in_thread(run, "none", None)]
    in_thread(run, "short", SHORT).join(10)
    stop.set()
    for thread in others:
        thread.join(10)

    assert {"short": TaskTimeout, "long": None, "none": None} == errors


def test_nothing_is_raised_after_the_job(watchdog):
    """However close to its deadline a job ends: the next one in its thread is safe."""
    ended_by = {"itself": 0, "timeout": 0}
    for number in range(150):
        length = 0.002 + (number % 10) * 0.0001

        def call(end=length):
            until = time.monotonic() + end
            while time.monotonic() < until:
                pass

        try:
            watchdog.watch(JOB, timedelta(seconds=0.0025), call)
            ended_by["itself"] += 1
        except TaskTimeout:
            ended_by["timeout"] += 1
        # What comes next in this thread; a late exception would land here.
        for _ in range(2_000):
            pass

    assert 150 == sum(ended_by.values())
    assert not watchdog._watched


def test_a_task_in_c_code_is_settled_from_outside(watchdog, hard, monkeypatch):
    """After the grace; once; and what was sent to it never arrives."""
    monkeypatch.setattr(module, "HARD_GRACE_SECONDS", 0.05)
    left, right = socket.socketpair()

    def deliver():
        wait_for(lambda: hard)
        right.send(b"x")

    threading.Thread(target=deliver, daemon=True).start()
    with left, right:
        try:
            watchdog.watch(JOB, SHORT, lambda: left.recv(1))
        except TaskTimeout:
            reacted = True
        else:
            reacted = False

    # recv() came back to Python at last, where the soft timeout had waited for it.
    assert reacted
    ((job, error),) = hard
    assert JOB is job
    assert isinstance(error, TaskTimeout)
    assert "longer than its timeout of 0.03 s. It did not react" in str(error)
    assert not watchdog._watched


def test_a_timeout_in_the_last_moment_leaves_everything_usable():
    """It arrives while the thread says that its job is over: no lock stays held."""
    # Not started: the test is its thread.
    watchdog = Watchdog(lambda job, error: None)
    release, over, ended = threading.Event(), threading.Event(), []

    def forget(watched, real=watchdog._forget):
        assert release.wait(10)
        real(watched)

    watchdog._forget = forget

    def run():
        try:
            watchdog.watch(JOB, LONG, over.set)
        except TaskTimeout:
            ended.append("timeout")
        else:
            ended.append("in time")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert over.wait(10)
    (watched,) = watchdog._watched
    with watchdog._changed:
        watchdog._expire(watched, time.monotonic())
        release.set()
        thread.join(10)

    assert ["timeout"] == ended
    assert not watchdog._watched
    with watchdog._changed:
        watchdog._expire(watched, time.monotonic())

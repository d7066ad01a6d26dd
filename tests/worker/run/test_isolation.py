"""Isolation: the process is after a job what it was at the start."""

from __future__ import annotations

import contextvars
import decimal
import gc
import locale
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from django.core.cache import caches
from django.test import override_settings
from django.utils import timezone, translation

from django_pgqueue.worker.run import isolation as module
from django_pgqueue.worker.run.isolation import (
    Isolation,
    in_own_context,
    keep_caches,
    new_thread,
)


@pytest.fixture
def spoiled():
    """How often the process was said to be beyond fixing."""
    return []


@pytest.fixture
def isolation(spoiled):
    return Isolation(threads=1, on_spoiled=lambda: spoiled.append(1))


@pytest.fixture
def told(isolation, caplog):
    """A function that looks and returns what was told."""
    isolation._know_threads()

    def told():
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            isolation.look(7, "shop.send")
        return [record.getMessage() for record in caplog.records]

    return told


def leftover(what):
    return [f"leftover   job=7 task=shop.send left behind: {what}"]


def test_a_job_that_leaves_nothing_is_not_told_of(told):
    """The usual case."""
    assert [] == told()


def test_the_working_directory_is_put_back(told):
    """Relative paths of the next job mean what they meant."""
    before = Path.cwd()
    os.chdir("/")

    assert leftover("another working directory; put back") == told()
    assert before == Path.cwd()
    assert [] == told()


def test_the_locale_is_put_back(told):
    """Numbers of the next job are written as ever."""
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if "C.UTF-8" not in before else "C")

    assert leftover("another locale; put back") == told()
    assert before == locale.setlocale(locale.LC_ALL)


def test_the_umask_is_put_back(told):
    """Files of the next job can be read by whoever could."""
    before = os.umask(0o077)

    assert leftover("another umask; put back") == told()
    assert before == os.umask(before)


def test_the_limit_of_recursion_is_put_back(told):
    """One that is too high ends the process of the next job."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 1_000)

    assert leftover("another recursion limit; put back") == told()
    assert before == sys.getrecursionlimit()


def test_the_collector_is_put_back(told):
    """The memory of a worker would grow."""
    gc.disable()

    assert leftover("the garbage collector switched; put back") == told()
    assert gc.isenabled()


def test_an_alarm_is_taken_back(told):
    """It would end the process, whatever runs by then."""
    # Not the usual one: pytest has set that itself, before.
    signal.setitimer(signal.ITIMER_VIRTUAL, 600)

    assert leftover("an alarm; taken back") == told()
    assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_VIRTUAL)


def test_an_override_of_settings_is_taken_back(told):
    """It is a tool of tests; one that was left would hold for all jobs."""
    from django.conf import settings

    override_settings(LANGUAGE_CODE="xx").enable()

    assert leftover("an override of Django's settings; taken back") == told()
    assert "xx" != settings.LANGUAGE_CODE


def test_a_thread_is_told_of_once_and_left_alone(told):
    """Nobody can end it."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left-alone", daemon=True)
    thread.start()

    assert leftover("the thread 'left-alone'; it goes on") == told()
    assert [] == told()
    release.set()
    thread.join()


def test_a_standard_file_that_was_closed_costs_the_process(
    isolation, told, spoiled, monkeypatch
):
    """Once; its number is filled, so that no connection gets it."""
    files = dict(enumerate(module._file(number) for number in (0, 1, 2)))
    filled = []
    monkeypatch.setattr(module, "_fill", filled.append)
    monkeypatch.setattr(module, "_file", lambda number: files[number])
    assert [] == told()

    files[1] = None
    assert (
        leftover("standard files closed or replaced; this process is replaced")
        == told()
    )
    assert [] == told()
    assert ([1], [1]) == (filled, spoiled)


@pytest.fixture
def shared(spoiled):
    """One for several threads, which has looked a moment ago."""
    isolation = Isolation(threads=8, on_spoiled=spoiled.append)
    isolation.look(1, "a")
    return isolation


def test_with_several_threads_it_looks_now_and_then(shared):
    """A look costs microseconds, and a job may take no more than that."""
    before = Path.cwd()
    os.chdir("/")
    shared.look(2, "b")
    seen_at_once = Path.cwd()
    shared._look_at = 0.0
    shared.look(3, "c")

    assert (Path("/"), before) == (seen_at_once, Path.cwd())


def test_a_look_that_was_left_out_is_made_up_for(shared, caplog):
    """Once, before a job that may take long: it would find the rest for as long."""
    before = Path.cwd()
    os.chdir("/")
    shared.look(2, "b")
    shared.catch_up()
    put_back = Path.cwd()
    os.chdir("/")
    shared.catch_up()
    left = Path.cwd()
    os.chdir(before)

    assert (before, Path("/")) == (put_back, left)
    assert ["leftover   job=2 task=b"] == [
        record.getMessage().partition(" left behind")[0] for record in caplog.records
    ]


def test_a_job_that_ends_during_a_look_is_looked_after(shared, monkeypatch):
    """What it has changed, the look may have compared before."""
    shared._look_at = 0.0
    looks = []

    def mend(now):
        looks.append(now)
        if len(looks) == 1:
            shared._look_at = 0.0
            shared.look(3, "c")  # Another thread's, which cannot get in.
        return []

    monkeypatch.setattr(shared, "_mend", mend)
    shared.look(2, "b")
    shared.catch_up()
    shared.catch_up()

    assert 2 == len(looks)


def test_a_look_never_raises(isolation, told, monkeypatch):
    """The outcome of the job is still to be settled."""
    monkeypatch.setattr(isolation, "_locale", "no such locale")

    assert ["failed     loop=isolation job=7"] == told()


def test_each_job_has_a_context_of_its_own():
    """Language, time zone, precision: what a job sets ends with it."""
    variable = contextvars.ContextVar("variable", default="before")
    found = []

    def look():
        found.append(
            (
                variable.get(),
                translation.get_language(),
                timezone.get_current_timezone_name(),
                decimal.getcontext().prec,
            )
        )

    def job():
        variable.set("after")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        decimal.getcontext().prec = 3
        look()

    def jobs():
        in_own_context(look)
        in_own_context(job)
        in_own_context(look)

    thread = new_thread(jobs, name="jobs")
    thread.start()
    thread.join()

    before, during, after = found
    assert ("after", "de", "Asia/Tokyo", 3) == during
    assert before == after


def test_jobs_of_a_thread_share_its_cache_clients():
    """Else each job would connect to the cache anew."""
    found = []

    def thread():
        keep_caches()
        found.extend(in_own_context(lambda: caches["default"]) for _ in range(2))

    worker = new_thread(thread, name="jobs")
    worker.start()
    worker.join()

    assert found[0] is found[1]

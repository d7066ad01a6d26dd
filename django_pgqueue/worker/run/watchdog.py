"""
Watchdog: ends tasks that run longer than their timeout.

Soft: TaskTimeout is raised inside the task, wherever its Python code is. A task that
sits in C code (a socket without a time-out of its own) does not notice. Hard: when the
grace after the soft one is over too, the job is settled as timed out and the process
is replaced, because a thread cannot be killed.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.tasks.perform import timeout_message

logger = logging.getLogger("django_pgqueue.worker")

R = TypeVar("R")

# From the soft timeout to the hard one.
HARD_GRACE_SECONDS = 15.0


class Watched:
    """One running task that has a timeout."""

    __slots__ = ("deadline", "ident", "is_sent", "job", "may_end", "timeout")

    def __init__(self, job: Any, timeout: timedelta) -> None:
        self.job = job
        self.timeout = timeout
        self.deadline = time.monotonic() + timeout.total_seconds()
        self.ident = threading.get_ident()
        # Taken once, by whoever is first: the watchdog, to raise TaskTimeout; or the
        # thread, when its job is over. list.pop() is atomic.
        self.may_end = [None]
        self.is_sent = False


class Watchdog(threading.Thread):
    """Sleeps until the nearest deadline of all threads."""

    def __init__(self, on_hard: Callable[[Any, TaskTimeout], None]) -> None:
        super().__init__(name="pgqueue-watchdog", daemon=True)
        # Called when a task has not reacted within the grace, with what was given to
        # watch().
        self._on_hard = on_hard
        self._changed = threading.Condition()
        self._watched: set[Watched] = set()
        self._stopping = False

    def watch(self, job: Any, timeout: timedelta, call: Callable[[], R]) -> R:
        """
        Run *call* in this thread, and raise TaskTimeout in it when time is up.

        Args:
            job: Whatever has the name of its task, as *task*.
            timeout: From now on.
            call: Runs the task.

        Raises:
            TaskTimeout: It arrived when the task was done and *call* was not.
        """
        watched = Watched(job, timeout)
        try:
            with self._changed:
                self._watched.add(watched)
                self._changed.notify()
            return call()
        finally:
            try:
                self._forget(watched)
            except TaskTimeout:
                # It arrived in here. Only one is sent, so this time nothing disturbs.
                self._forget(watched)
                raise

    def _forget(self, watched: Watched) -> None:
        """
        Return once nothing can be raised in this thread for the job any more.

        Takes no lock: an exception that arrives between two instructions could leave
        it held for ever.
        """
        try:
            watched.may_end.pop()
        except IndexError:
            # The watchdog was first: TaskTimeout was raised, or will be in a moment.
            while not watched.is_sent:
                time.sleep(0)
            # One that was sent and not yet raised belongs to this job alone.
            _withdraw(watched.ident)
        self._watched.discard(watched)

    def run(self) -> None:
        """Wait for deadlines until stopped."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                # A copy: threads take theirs out of it at any time.
                for watched in [w for w in list(self._watched) if w.deadline <= now]:
                    self._expire(watched, now)
                nearest = min((w.deadline for w in list(self._watched)), default=None)
                self._changed.wait(None if nearest is None else max(nearest - now, 0))

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _expire(self, watched: Watched, now: float) -> None:
        if not watched.is_sent:
            try:
                watched.may_end.pop()
            except IndexError:
                self._watched.discard(watched)  # Over in this very moment.
                return
            watched.deadline = now + HARD_GRACE_SECONDS
            _raise_in(watched.ident)
            watched.is_sent = True
            return
        self._watched.discard(watched)
        message = timeout_message(watched.job, watched.timeout)
        error = TaskTimeout(
            f"{message} It did not react within {HARD_GRACE_SECONDS:.0f} s more, so "
            f"its process was replaced."
        )
        try:
            self._on_hard(watched.job, error)
        except Exception:
            # Without this thread no other task would be timed out.
            logger.exception("failed     loop=watchdog task=%s", watched.job.task)


def _raise_in(ident: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(ident), ctypes.py_object(TaskTimeout)
    )


def _withdraw(ident: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), None)

"""
Run token: which thread takes the next job.

Threads that run Python code take turns whatever one does, and each turn costs as much
as a short job. So one thread at a time has the token: it takes jobs, and runs those
that are known to be short one after the other. Before any other job it passes the token
on, so that jobs that wait for something run side by side, as many as there are threads.

Each thread waits for a wakeup of its own, so that exactly one is woken: that which has
the token and nothing to do, or one of those that are parked without it. A wakeup for
nothing costs a look.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

NOBODY = -1


class RunToken:
    """
    Handed from thread to thread; threads are known by their number.

    Args:
        threads: How many there are.
        has_work: Whether a job could start at this moment.
    """

    def __init__(self, threads: int, has_work: Callable[[], bool]) -> None:
        self._has_work = has_work
        self._holder = NOBODY
        self._lock = threading.Lock()
        self._parked: list[int] = []
        self._wakeups = [queue.SimpleQueue[None]() for _ in range(threads)]
        self._sleeps = [False] * threads
        self._is_over = False

    @property
    def holder(self) -> int:
        """The number of the thread that has it, or NOBODY."""
        return self._holder

    def take(self, thread: int) -> bool:
        """Wait until *thread* has it; False: over() was called."""
        while not self._is_over:
            with self._lock:
                if self._holder == NOBODY:
                    self._holder = thread
                if self._holder == thread and not self._is_over:
                    return True
                if thread not in self._parked:
                    self._parked.append(thread)
            self._wakeups[thread].get()
        return False

    def wait_for_work(self, thread: int) -> None:
        """Wait until has_work(), or a little less; for the thread that has it."""
        self._sleeps[thread] = True
        # Asked after that was said: what comes from here on wakes us.
        if not self._has_work() and not self._is_over:
            self._wakeups[thread].get()
        self._sleeps[thread] = False

    def pass_on(self, thread: int) -> None:
        """Let go of it, and wake another thread if there is something to do for one."""
        with self._lock:
            if self._holder == thread:
                self._hand_over()

    def work_came(self) -> None:
        """Note that has_work() may have become true. Called in any thread."""
        holder = self._holder
        if holder == NOBODY:
            if self._parked and self._has_work():
                with self._lock:
                    if self._holder == NOBODY:
                        self._hand_over()
        elif self._sleeps[holder]:
            self._wakeups[holder].put(None)

    def take_away(self, thread: int) -> None:
        """Take it from *thread*, whose job turned out to be no short one."""
        with self._lock:
            if self._holder == thread and self._parked:
                self._hand_over()

    def over(self) -> None:
        """Let all threads end, each after its job."""
        self._is_over = True
        for wakeup in self._wakeups:
            wakeup.put(None)

    def _hand_over(self) -> None:
        """Under the lock: to a parked thread, if there is work; or to nobody."""
        # Said before the question: work that comes after it finds nobody has it.
        self._holder = NOBODY
        if self._parked and self._has_work():
            # The last one that was parked: its connections are the freshest.
            self._holder = self._parked.pop()
            self._wakeups[self._holder].put(None)

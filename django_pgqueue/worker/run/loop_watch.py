"""
Loop watch: finds an event loop that is blocked, and tasks that outlive their timeout.

The most common mistake in async code is a sync call that takes long: nothing else in
the process moves meanwhile, timeouts neither. So a thread outside of the loop asks it
for an answer, and says whose code keeps it busy. The same thread enforces hard
timeouts, which must not need the loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.perform import timeout_message
from django_pgqueue.worker.run.coroutine import Coroutine
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS

logger = logging.getLogger("django_pgqueue.worker")

# A loop that does not answer for longer than this is blocked.
BLOCKED_SECONDS = 1.0

ASK_SECONDS = 0.25

# Frames of a stack that are shown: the innermost.
FRAMES = 12


class LoopWatch(threading.Thread):
    """Asks the loop four times a second while coroutines run; sleeps otherwise."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutines: Callable[[], Iterable[Coroutine]],
        on_hard: Callable[[Claimed, TaskTimeout], None],
    ) -> None:
        super().__init__(name="pgqueue-loop-watch", daemon=True)
        self._loop = loop
        self._coroutines = coroutines
        self._on_hard = on_hard
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._loop_ident: int | None = None
        # Monotonic time of a probe that is not answered yet.
        self._probed_at: float | None = None
        self._is_logged = False

    def look(self) -> None:
        """Be awake: something runs. Called in the loop."""
        self._loop_ident = threading.get_ident()
        self._wanted.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._wanted.set()

    def run(self) -> None:
        """Ask and look until stopped."""
        while not self._stopping.is_set():
            self._wanted.wait()
            coroutines = list(self._coroutines())
            if not coroutines and self._probed_at is None:
                self._wanted.clear()
                coroutines = list(self._coroutines())
                if not coroutines:
                    continue
                # They came in between, and look() perhaps before the line above.
                self._wanted.set()
            try:
                self._look_once(coroutines)
            except Exception:
                logger.exception("failed     loop=loop-watch")
            self._stopping.wait(ASK_SECONDS)

    def _look_once(self, coroutines: list[Coroutine]) -> None:
        now = time.monotonic()
        probed_at = self._probed_at
        if probed_at is None:
            self._probed_at = now
            self._is_logged = False
            self._loop.call_soon_threadsafe(self._answer)
        blocked_seconds = 0.0 if probed_at is None else now - probed_at
        is_blocked = blocked_seconds > BLOCKED_SECONDS
        if is_blocked and not self._is_logged:
            self._is_logged = True
            self._tell(coroutines, blocked_seconds)
        for coroutine in coroutines:
            if coroutine.hard_at is not None and now >= coroutine.hard_at:
                coroutine.hard_at = None
                blamed = self._blocker(coroutines) if is_blocked else None
                self._expire(coroutine, blamed or coroutine, blocked_seconds)

    def _answer(self) -> None:
        self._probed_at = None

    def _blocker(self, coroutines: list[Coroutine]) -> Coroutine | None:
        task = asyncio.current_task(self._loop)
        for coroutine in coroutines:
            if task is not None and coroutine.owns(task):
                return coroutine
        return None

    def _tell(self, coroutines: list[Coroutine], seconds: float) -> None:
        blocker = self._blocker(coroutines)
        logger.warning(
            "blocked    job=%s task=%s: sync code keeps the event loop busy for %.1f s "
            "and %d coroutines wait; call it with asyncio.to_thread() or "
            "sync_to_async()\n%s",
            "unknown" if blocker is None else blocker.job.id,
            "unknown" if blocker is None else blocker.job.task,
            seconds,
            len(coroutines),
            self._stack(),
        )

    def _stack(self) -> str:
        frame: Any = sys._current_frames().get(self._loop_ident or 0)
        if frame is None:
            return "  (its stack is unknown)"
        return "".join(traceback.format_stack(frame)[-FRAMES:]).rstrip()

    def _expire(
        self, late: Coroutine, blamed: Coroutine, blocked_seconds: float
    ) -> None:
        if blamed is late:
            message = (
                f"{timeout_message(late.job, late.timeout)} It did not react within "
                f"{HARD_GRACE_SECONDS:.0f} s more, so its process was replaced."
            )
        else:
            # The late one could not run: it is handed back, as its neighbours are.
            message = (
                f"{blamed.job.task} kept the event loop busy for "
                f"{blocked_seconds:.0f} s, so that other jobs could not keep their "
                f"timeouts, and its process was replaced."
            )
        self._on_hard(blamed.job, TaskTimeout(message))

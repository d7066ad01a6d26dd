"""
Wakes: which queues may have new jobs. A flag each, however many said so.

And some that are about no queue: running jobs may have been cancelled, schedules
changed, or messages published to a topic that groups read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_pgqueue.publishing.publish import HINT as TOPIC_HINT
from django_pgqueue.schedules.sync import HINT as SCHEDULES_HINT
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.service import Waitable

# What is notified instead of a queue's name, in which there is no "!".
CANCEL = "!cancel"

# A worker of all queues learns new names from wakes. A stranger who notifies with
# made-up names fills this much and no more; beyond it, the flag is "any".
NAMES_MAX = 1_000


class Wakes:
    """Set by the listener, taken by the claimer."""

    def __init__(
        self,
        plan: QueuePlan,
        signal: Waitable,
        on_cancel: Callable[[], None] | None = None,
        on_schedules: Callable[[], None] | None = None,
        on_topic: Callable[[str | None], None] | None = None,
    ) -> None:
        self._on_topic = on_topic
        self._hints = {CANCEL: on_cancel, SCHEDULES_HINT: on_schedules}
        self._plan = plan
        self._signal = signal
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._any = True  # The first look is at everything.

    def flag(self, queue: str) -> None:
        """Note that *queue* got jobs, if this worker serves it."""
        if queue in self._hints:
            on_hint = self._hints[queue]
            if on_hint is not None:
                on_hint()
            return
        if queue.startswith(TOPIC_HINT):
            if self._on_topic is not None:
                self._on_topic(queue.removeprefix(TOPIC_HINT))
            return
        if not self._plan.serves(queue):
            return
        with self._lock:
            if len(self._names) < NAMES_MAX:
                self._names.add(queue)
            else:
                self._any = True
        self._signal.set()

    def flag_any(self) -> None:
        """Note that anything may have been notified, as after a reconnect."""
        with self._lock:
            self._any = True
        self._signal.set()
        for on_hint in self._hints.values():
            if on_hint is not None:
                on_hint()
        if self._on_topic is not None:
            self._on_topic(None)

    def wake_up(self) -> None:
        """End the claimer's wait, without a flag."""
        self._signal.set()

    @property
    def pending(self) -> bool:
        """Whether there is a flag to take."""
        return self._any or bool(self._names)

    def take(self) -> set[str] | None:
        """Return the flagged queues and lower the flags; None: any."""
        with self._lock:
            names, anything = self._names, self._any
            self._names, self._any = set(), False
        return None if anything else names

"""
Breakers: count how attempts end, and open and close the circuit breakers of tasks.

Whoever hands an outcome to the settler has it counted here, which takes no statement.
The loop has a connection of its own, since who opens a breaker waits for promotions; it
starts when the first of them has something to open or to close.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from django_pgqueue import signals, telemetry
from django_pgqueue.options.breaker import Breaker
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import breakers, held
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.lanes import freed_hints
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.errors import message_of, type_of
from django_pgqueue.tasks.outcome import Performed, has_failed
from django_pgqueue.worker.service import Service

# A window is counted in so many parts; the oldest goes as a whole.
PARTS = 20


class Window:
    """Counts of the last seconds, by monotonic time; a few numbers, whatever came."""

    def __init__(self, seconds: float) -> None:
        self._part_seconds = seconds / PARTS
        # Of each part its number, how many ended in it, and how many of these failed.
        self._parts: deque[list[int]] = deque()

    def note(self, now: float, *, has_failed: bool) -> None:
        """Count an attempt that ended."""
        number = int(now / self._part_seconds)
        if not self._parts or self._parts[-1][0] < number:
            self._parts.append([number, 0, 0])
        self._parts[-1][1] += 1
        self._parts[-1][2] += has_failed
        self._drop(number)

    def counts(self, now: float) -> tuple[int, int]:
        """Return how many ended in the window, and how many of these failed."""
        self._drop(int(now / self._part_seconds))
        return (
            sum(ended for _, ended, _ in self._parts),
            sum(failed for _, _, failed in self._parts),
        )

    def clear(self) -> None:
        """Forget what came."""
        self._parts.clear()

    def _drop(self, number: int) -> None:
        while self._parts and self._parts[0][0] <= number - PARTS:
            self._parts.popleft()


logger = logging.getLogger("django_pgqueue.worker")

REST_SECONDS = 60.0

# Characters of the last error in the reason of a pause.
MESSAGE_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be written: of a probe, or None: of a window that is full."""

    task: str
    probe: int | None
    lane: str | None
    has_failed: bool
    reason: str = ""


class Breakers(Service):
    """Those of the tasks that are declared here."""

    name = "breakers"

    def __init__(
        self,
        link: Link,
        declared: Mapping[str, Breaker],
        *,
        redact: Collection[str],
        freed: Callable[[Collection[str]], None],
    ) -> None:
        super().__init__(link)
        self._declared = declared
        self._redact = redact
        # Promotes lanes.
        self._freed = freed
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._windows = {
            task: Window(breaker.within_seconds) for task, breaker in declared.items()
        }
        # Tasks of which the claims run nothing; only probes of theirs count.
        self._held: set[str] = set()
        self._verdicts: list[Verdict] = []
        # When tasks that were opened here want their probe, by the monotonic clock.
        self._probe_at: dict[str, float] = {}

    def set_held(self, tasks: Collection[str]) -> None:
        """Be told by the claimer which tasks are held."""
        with self._lock:
            for task in self._held.symmetric_difference(tasks):
                if task in self._windows:
                    # What came before the pause says nothing of what comes after it.
                    self._windows[task].clear()
            self._held = set(tasks)

    def note(self, job: Claimed, performed: Performed) -> None:
        """Count how an attempt ended. Any thread may call it; it never waits long."""
        breaker = self._declared.get(job.task)
        if breaker is None or performed.settled:
            return
        failed = has_failed(performed)
        if failed is None:
            return
        with self._lock:
            verdict = self._judge(job, breaker, performed, failed)
            if verdict is None:
                return
            self._verdicts.append(verdict)
        self.call()

    def lanes_left(self, lanes: Collection[str]) -> None:
        """Promote *lanes*, except those of probes to be judged: see _decide()."""
        if self._verdicts:
            with self._lock:
                waiting = {each.lane for each in self._verdicts if each.probe}
            lanes = [lane for lane in lanes if lane not in waiting]
        self._freed(lanes)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until all that was noted is written; False: it is not."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._verdicts, seconds)

    def tick(self) -> float:
        """Write what is to be written; ask for the probes that are due."""
        while self._verdicts and not self.stopping:
            verdict = self._verdicts[0]
            self._decide(verdict)
            with self._lock:
                self._verdicts.remove(verdict)
                self._idle.notify_all()
            if verdict.lane is not None:
                self._freed([verdict.lane])
        now = time.monotonic()
        due = [task for task, at in self._probe_at.items() if at <= now]
        for task in due:
            del self._probe_at[task]
        if due:
            self._freed(due)
        until = min(self._probe_at.values(), default=now + REST_SECONDS)
        return max(until - now, 0.0)

    def _judge(
        self, job: Claimed, breaker: Breaker, performed: Performed, failed: bool
    ) -> Verdict | None:
        """Return what follows an outcome; None: nothing. Under the lock."""
        if job.task in self._held:
            if job.lane is None:
                return None
            reason = f"the probe failed, {self._words(performed)}" if failed else ""
            return Verdict(job.task, job.id, job.lane, failed, reason)
        window, now = self._windows[job.task], time.monotonic()
        window.note(now, has_failed=failed)
        if not failed:
            return None
        ended, bad = window.counts(now)
        if ended < breaker.of or bad < breaker.share * ended:
            return None
        window.clear()
        reason = (
            f"{bad:,} of {ended:,} attempts failed within {breaker.within_seconds:g} s,"
            f" last {self._words(performed)}"
        )
        return Verdict(job.task, None, None, has_failed=True, reason=reason)

    def _words(self, performed: Performed) -> str:
        error = performed.error
        assert error is not None
        text = redact_text(message_of(error), self._redact)
        kind = type_of(error)[1].rpartition(".")[2]
        return f"{kind}: {text}"[:MESSAGE_CHARACTERS_MAX]

    def _decide(self, verdict: Verdict) -> None:
        """
        Open the breaker, or close it.

        The lane of a probe is promoted after that: before, another job would be let
        through in its place.
        """
        task, probe = verdict.task, verdict.probe
        cooldown = self._declared[task].cooldown_first
        connection, opened, is_closed = self.link.connection, None, False
        with connection.transaction(), connection.cursor() as cursor:
            if probe is None:
                opened = breakers.open_breaker(
                    cursor, task, cooldown=cooldown, reason=verdict.reason
                )
            elif verdict.has_failed:
                opened = breakers.open_again(
                    cursor, task, probe, cooldown=cooldown, reason=verdict.reason
                )
            else:
                is_closed = breakers.close(cursor, task, probe)
        if opened is not None:
            self._tell_opened(task, opened, verdict.reason)
        elif is_closed:
            self._tell_closed(task)

    def _tell_opened(self, task: str, opened: breakers.Opened, reason: str) -> None:
        with self._lock:
            self._held.add(task)
            self._probe_at[task] = time.monotonic() + opened.seconds
        self._hint([held.HINT])
        logger.warning(
            "opened     task=%s trips=%d cooldown=%.0fs: %s",
            task,
            opened.trips,
            opened.seconds,
            reason,
        )
        telemetry.send(
            signals.breaker_opened,
            registry.tasks.get(task),
            task=task,
            trips=opened.trips,
            cooldown_seconds=opened.seconds,
            reason=reason,
        )

    def _tell_closed(self, task: str) -> None:
        with self._lock:
            self._held.discard(task)
        self._hint([held.HINT, *freed_hints([task])])
        self._freed([task])
        logger.info("closed     task=%s: its probe has succeeded", task)
        telemetry.send(signals.breaker_closed, registry.tasks.get(task), task=task)

    def _hint(self, names: Collection[str]) -> None:
        with self.link.cursor() as cursor:
            wake(cursor, names)


def declared_breakers() -> dict[str, Breaker]:
    """Return those of the tasks that are declared here, by each of their names."""
    return {
        name: task.options.breaker
        for name, task in registry.tasks.items()
        if task.options.breaker is not None
    }

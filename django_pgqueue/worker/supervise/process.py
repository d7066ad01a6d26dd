"""
Process: one child of the supervisor. It starts its loops and stops them in order.

The order in which it stops is the order in which jobs flow: the claimer first, then
what has not started is handed back, then running jobs get the grace to finish, then
their outcomes are written; the heartbeat is last, so that leases stay ours until then.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import time
from collections import Counter
from typing import Any

from django_pgqueue import __version__, signals, telemetry
from django_pgqueue.exceptions import PgQueueError, ScheduleError, TaskTimeout
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.server import installation
from django_pgqueue.postgres.wake import wake
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.queues import workers
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.store import HINT
from django_pgqueue.schedules.sync import sync
from django_pgqueue.tasks.perform import timed_out
from django_pgqueue.tasks.registry import has_async_tasks
from django_pgqueue.topics import registry
from django_pgqueue.topics.consume import declared as consumers_declared
from django_pgqueue.topics.subscribe import declared as subscribed
from django_pgqueue.topics.sync import sync_groups, sync_subscriptions, sync_topics
from django_pgqueue.worker.claim.quarantine import Summons
from django_pgqueue.worker.lease.leases import Slots
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.recycling import Turn
from django_pgqueue.worker.run.control import interrupted
from django_pgqueue.worker.service import Service, backoff_seconds
from django_pgqueue.worker.settle.settler import Settlement
from django_pgqueue.worker.supervise.health import (
    STOP_SIGNALS,
    TERMINAL_SIGNALS,
    HealthPlace,
    State,
)
from django_pgqueue.worker.supervise.loops import Loops
from django_pgqueue.worker.tally import Tally, TallyPlace
from django_pgqueue.workflows.versions import others_under_way

SUMMARY_INTERVAL_SECONDS = 60.0

# What readers of groups count.
CONSUMED_KINDS = ("consumed", "failed", "dead", "halted", "stale")


class Summary:
    """A line or two a minute, if there is something to say."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._due_at = time.monotonic() + SUMMARY_INTERVAL_SECONDS
        self._settled: Counter[str] = Counter()
        self._consumed: Counter[str] = Counter()

    def log_if_due(
        self, now: float, settled: Counter[str], consumed: Counter[str], running: int
    ) -> None:
        """Log what has been added to these counts, by kind."""
        if now < self._due_at:
            return
        self._due_at = now + SUMMARY_INTERVAL_SECONDS
        # Copies, each at once: other threads go on counting.
        before, self._settled = self._settled, settled.copy()
        new = self._settled - before
        if new:
            logger.info(
                "summary    worker=%s succeeded=%d retried=%d dead=%d stale=%d "
                "running=%d",
                *(self._worker, new["ack"], new["retry"], new["dead"], new["stale"]),
                running,
            )
        before, self._consumed = self._consumed, consumed.copy()
        read = self._consumed - before
        if read:
            logger.info(
                "summary    worker=%s consumed=%d failed=%d dead=%d halted=%d stale=%d",
                self._worker,
                *(read[name] for name in CONSUMED_KINDS),
            )


logger = logging.getLogger("django_pgqueue.worker")

EXIT_CLEAN = 0
EXIT_LEFT_BEHIND = 3
# The supervisor starts another one at once.
EXIT_RECYCLE = 75

# An orphan has nobody who would rescue its jobs at once, so it hurries.
ORPHAN_GRACE_SECONDS = 3.0

# What the settler counts that was run.
RUN_KINDS = ("ack", "retry", "dead", "cancel")

# What a coroutine gets to tidy up when the grace is over.
INTERRUPT_SECONDS = 2.0

# How long a thread computes before another one gets its turn; Python's is 5 ms.
SWITCH_SECONDS = 0.001

# How often a stop looks whether there is still something to wait for.
LOOK_SECONDS = 0.05

# How long the heartbeat gets to add what was counted, before the rest is added.
COUNTED_SECONDS = 1.5

# How long a loop gets to end once its work is done.
JOIN_SECONDS = 5.0


class Process:
    """Everything that one worker process has."""

    def __init__(
        self,
        options: WorkerOptions,
        name: str,
        slots: Slots,
        health_place: HealthPlace | None = None,
        turn: Turn | None = None,
        summons: Summons | None = None,
        *,
        declares: bool = True,
        is_quarantine: bool = False,
        tally_place: TallyPlace | None = None,
    ) -> None:
        self.options = options
        # Whether it is for jobs that run alone, and for no others.
        self._is_quarantine = is_quarantine
        # None: nobody asks after our health.
        self._health_place = health_place
        # None: nobody asks, but for the charts, what we have done.
        self._tally_place = tally_place
        self._tally = Tally() if tally_place is None else tally_place.tally
        self._settings = options.settings
        self._name = name
        self._slots = slots
        # Set by a signal handler, which runs between any two steps of the main thread:
        # threading.Event would then wait for a lock that this very thread holds.
        self._woken = Wakeup()
        self._stop_requested = False
        self._is_recycling = False
        # It leaves because of a limit, so what runs gets all the time that it needs.
        self._is_patient = False
        self._stop_requested_at: float | None = None
        # Jobs that ignored their timeout, and run still, by id.
        self._stuck: dict[int, tuple[Claimed, TaskTimeout]] = {}
        self._turn = turn
        # None: nobody runs what is to run alone, and it waits.
        self._summons = summons
        # Whether it writes what the code declares of schedules and subscriptions.
        self._declares = declares
        self._looked_when_idle = False
        self._taken_when_idle = 0
        self._grace_seconds = options.grace_seconds
        # The supervisor, which makes this before it forks.
        self._parent = os.getpid()

    def run(self) -> int:
        """Work until told to stop; return the exit status."""
        signal.signal(signal.SIGTERM, self._on_term)
        for number in TERMINAL_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # Blocked by the supervisor over the fork, so that none met its handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        try:
            status = self._work()
            self._slots.note_stop()
            return status
        except BaseException:
            logger.exception("failed     worker=%s", self._name)
            return 1

    def _work(self) -> int:
        first = self._connect_first()
        if first is None:
            return EXIT_CLEAN
        self._loops = Loops(
            self,
            self.options,
            self._name,
            self._slots,
            installation=first,
            summons=self._summons,
            is_quarantine=self._is_quarantine,
            tally=self._tally,
        )
        self._start()
        while not self._stop_requested:
            self._woken.wait(self._chore())
            self._woken.clear()
        return self._stop()

    def _connect_first(self) -> str | None:
        """Wait for the database; return the installation's uuid."""
        failures = 0
        while not self._stop_requested and os.getppid() == self._parent:
            self._note(State.STARTING)
            self._slots.note_try()
            link = Link(self._settings.database, name=f"pgqueue start {self._name}")
            try:
                with link.cursor() as cursor:
                    self.register(cursor)
                    uuid = installation(cursor)
                if self._declares:
                    declare(link)
                return uuid
            except Exception as error:
                failures += 1
                if failures in (1, 10) or not failures % 100:
                    logger.error("failed     loop=start error=%s", str(error).strip())
                self._woken.wait(backoff_seconds(failures))
            finally:
                link.drop()
        return None

    def _start(self) -> None:
        # A loop that has its answer from the database must not wait for a turn as long
        # as a hundred short jobs take.
        sys.setswitchinterval(SWITCH_SECONDS)
        self._summary = Summary(self._name)
        self._started_at = time.monotonic()
        telemetry.send(signals.worker_started, None, worker=self._name)
        self._loops.watchdog.start()
        self._loops.dispatcher.start()
        for service in self._loops.services():
            service.start()
        if not self._is_quarantine:
            self._loops.consumers.start()
        self._slots.note_ready()
        logger.info("started    worker=%s pid=%d", self._name, os.getpid())

    def _note(self, state: State) -> None:
        if self._health_place is not None:
            loops: list[Service] = []
            if state is State.RUNNING:
                loops = [*self._loops.services(), *self._loops.consumers.readers]
            self._health_place.note(state, loops)

    def _show_tally(self) -> None:
        if self._tally_place is not None:
            loops = self._loops
            self._tally_place.show(
                claimed=loops.leases.taken, messages=loops.consumers.counts
            )

    def _chore(self) -> float:
        """Do what the main thread does between waits; return the next wait."""
        now = time.monotonic()
        self._note(State.RUNNING)
        if os.getppid() != self._parent:
            logger.error("orphaned   worker=%s: its supervisor is gone", self._name)
            self._grace_seconds = min(self._grace_seconds, ORPHAN_GRACE_SECONDS)
            self._stop_requested = True
            return 0.0
        self._summary.log_if_due(
            now,
            self._loops.settler.counts,
            self._loops.consumers.counts,
            len(self._slots.running()),
        )
        self._show_tally()
        self._look_at_limits(now)
        if self.options.drain:
            return self._drain_step()
        return 1.0

    def _look_at_limits(self, now: float) -> None:
        """Leave, when it is this process's turn, if it has reached a limit."""
        limits = self.options.limits
        if self._stop_requested or not limits:
            return
        jobs = sum(self._loops.settler.counts[kind] for kind in RUN_KINDS)
        # One that has run nothing would be replaced by its like.
        why = jobs and limits.reached(jobs=jobs, age_seconds=now - self._started_at)
        if why and (self._turn is None or self._turn.take()):
            logger.info("recycling  worker=%s after %s", self._name, why)
            self._is_patient = True
            self.recycle()

    def _drain_step(self) -> float:
        """Ask to stop once looks that began when nothing ran found nothing."""
        loops = self._loops
        if not loops.has_nothing() or not loops.consumers.found_nothing:
            self._looked_when_idle = False
        elif not self._looked_when_idle:
            self._looked_when_idle = True
            self._taken_when_idle = loops.leases.taken
            # First: what is let through before is there for the claimer's look.
            loops.promoter.look_now()
            loops.claimer.look_now()
            loops.consumers.look_now()
        else:
            # What was let through after the claimer's look wants another one; and so
            # does the end of a job that a wake has brought, before that look and
            # behind our back.
            claimed = loops.claimer.found_since_requested()
            let_through = loops.promoter.found_since_requested()
            has_run = loops.leases.taken != self._taken_when_idle
            if claimed or let_through or has_run:
                self._looked_when_idle = False
            elif claimed == 0 and let_through == 0:
                self._stop_requested = True
                return 0.0
        return 0.01

    def _stop(self) -> int:
        loops, started = self._loops, time.monotonic()
        self._note(State.STOPPING)
        until = started + self._grace_seconds
        running = len(self._slots.running())
        logger.info(
            "stopping   worker=%s running=%d grace=%gs",
            self._name,
            running,
            self._grace_seconds,
        )
        loops.claimer.stop()
        loops.consumers.stop()
        loops.scheduler.stop()
        if loops.listener is not None:
            loops.listener.stop()
        # A claim that is under way still brings jobs; they are handed back too.
        loops.claimer.join(JOIN_SECONDS)
        loops.dispatcher.stop()
        finished = self._wait_for_jobs(until)
        if not finished:
            # Coroutines can be told, and get a moment to tidy up.
            loops.coroutines.interrupt()
            loops.coroutines.join(time.monotonic() + INTERRUPT_SECONDS)
            self._interrupt_running()
        has_read = loops.consumers.join(until)
        loops.consumers.close()
        self._settle_stuck()
        settled = loops.settler.wait_until_idle(
            max(until - time.monotonic(), JOIN_SECONDS)
        )
        if loops.breakers is not None:
            loops.breakers.wait_until_idle(JOIN_SECONDS)
            loops.breakers.stop()
        # What these lanes hold may be for others.
        loops.promoter.wait_until_idle(JOIN_SECONDS)
        for service in (
            loops.settler,
            loops.promoter,
            loops.reporter,
            loops.leader,
            loops.heartbeat,
        ):
            service.stop()
        loops.collector.close()
        loops.watchdog.stop()
        left = len(loops.leases)
        self._show_tally()
        self._forget()
        telemetry.send(signals.worker_stopped, None, worker=self._name)
        counts = loops.settler.counts
        logger.info(
            "stopped    worker=%s succeeded=%d retried=%d dead=%d stale=%d left=%d",
            self._name,
            counts["ack"],
            counts["retry"],
            counts["dead"],
            counts["stale"],
            left,
        )
        if self._is_recycling:
            return EXIT_RECYCLE
        is_clean = finished and settled and has_read and not left
        # A claim whose answer was lost may still be committed: somebody must look.
        is_clean = is_clean and not loops.strays.is_pending
        return EXIT_CLEAN if is_clean else EXIT_LEFT_BEHIND

    def _wait_for_jobs(self, until: float) -> bool:
        """
        Wait until nothing runs any more; False when the grace is over first.

        A process that leaves because of a limit waits for as long as it takes, until it
        is told to stop.
        """
        while not self._is_done():
            if self._is_patient and self._stop_requested_at is None:
                until = math.inf
                if os.getppid() != self._parent:
                    self._grace_seconds = min(self._grace_seconds, ORPHAN_GRACE_SECONDS)
                    self._stop_requested_at = time.monotonic()
            if self._is_patient and self._stop_requested_at is not None:
                until = self._stop_requested_at + self._grace_seconds
            if time.monotonic() >= until:
                return False
            self._wait_a_little(until)
        return True

    def _wait_a_little(self, until: float) -> None:
        """Wait for what runs; when nothing does, for what is to be written."""
        until = min(until, time.monotonic() + LOOK_SECONDS)
        if self._loops.dispatcher.join(
            until
        ) and not self._loops.settler.wait_until_idle(until - time.monotonic()):
            return
        # Neither is waited for: who holds the rest is about to let go of it.
        time.sleep(max(min(until - time.monotonic(), LOOK_SECONDS / 10), 0.0))

    def _is_done(self) -> bool:
        """Whether nothing is held any more, but for what cannot be stopped."""
        stuck = [job for job, _ in list(self._stuck.values()) if self._is_held(job)]
        return len(self._loops.leases) <= len(stuck)

    def _is_held(self, job: Claimed) -> bool:
        leases = self._loops.leases
        return leases.get(job) is not None or leases.is_settled(job)

    def _interrupt_running(self) -> None:
        """Give running jobs back: a stop is no failure of theirs and no crash."""
        leases = self._loops.leases
        # Of those that are settled nothing is left: their archived rows get a note.
        for job in [*(held.job for held in leases.all()), *leases.settled()]:
            if job.id not in self._stuck:
                performed = interrupted(job, self._grace_seconds)
                self._loops.settler.put(Settlement(job, performed))

    def _on_term(self, number: int, frame: Any) -> None:
        # A second one is ignored: a container's init may send it to the whole group
        # besides the supervisor. To leave at once, the supervisor kills.
        self._stop_requested = True
        self._stop_requested_at = self._stop_requested_at or time.monotonic()
        self._woken.set()

    def on_hard_timeout(self, job: Claimed, error: TaskTimeout) -> None:
        """
        Replace this process, since the thread of a job cannot be stopped.

        The job is settled when the process ends: until then it runs, and its next
        attempt must not run beside it.
        """
        logger.error(
            "ignored    job=%d task=%s: it did not react to its timeout; its "
            "process is replaced",
            job.id,
            job.task,
        )
        others = [other.job for other in self._loops.leases.others(job)]
        for each in (job, *others):
            self._stuck[each.id] = each, error
        self.recycle()

    def _settle_stuck(self) -> None:
        """Settle what has ignored its timeout, and has not ended since."""
        for job, error in list(self._stuck.values()):
            if self._loops.settler.has(job) or not self._is_held(job):
                continue
            held = self._loops.leases.get(job)
            is_cancelled = held is not None and held.is_cancelled
            performed = timed_out(
                job, self._settings, error, None, is_cancelled=is_cancelled
            )
            self._loops.settler.put(Settlement(job, performed))

    def on_suspect(self) -> None:
        """There is a job that is to run alone: not here."""
        if self._summons is not None:
            self._summons.send()

    def leave(self) -> None:
        """End in order: there is nothing left to do."""
        self._stop_requested = True
        self._woken.set()

    def recycle(self) -> None:
        """Let another process take this one's place; what runs gets the grace."""
        self._is_recycling = True
        self._stop_requested = True
        self._woken.set()

    def register(self, cursor: Cursor) -> None:
        """Write the row of this process, at its start or since it is gone."""
        workers.register(
            cursor,
            name=self._name,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            queues=self.options.queues,
            threads=self.options.threads,
            async_slots=self.options.async_slots * has_async_tasks(),
            version=__version__,
        )

    def _forget(self) -> None:
        link = self._loops.link("stop")
        # It may be adding counts at this moment, in a turn of its own.
        has_ended = self._loops.heartbeat.join(COUNTED_SECONDS)
        try:
            with link.turn:
                with link.cursor() as cursor:
                    workers.forget(cursor, [self._name])
                if has_ended:
                    self._loops.counting.add(link)
        except Exception as error:
            logger.info("row of worker=%s stays: %s", self._name, str(error).strip())
        finally:
            link.drop()


def declare(link: Link) -> None:
    """Write what the code declares; a mistake there does not stop a worker."""
    if registry.declared():
        with link.transaction() as cursor:
            for name in sync_topics(cursor):
                logger.info("declared   topic=%s", name)
    if declared():
        _declare_schedules(link)
    if subscribed():
        _declare_subscriptions(link)
    if consumers_declared():
        with link.transaction() as cursor:
            for name in sync_groups(cursor):
                logger.info("declared   group=%s", name)
    with link.cursor() as cursor:
        for name, count in others_under_way(cursor).items():
            logger.info(
                "unchanged  saga=%s under_way=%d: began with other steps, keep them",
                name,
                count,
            )


def _declare_schedules(link: Link) -> None:
    try:
        with link.transaction() as cursor:
            synced = sync(cursor, migrates=False)
    except ScheduleError as error:
        logger.error("failed     schedules: %s", error)
        return
    for name in synced.changed:
        logger.info("declared   schedule=%s", name)
    if synced.changed:
        with link.cursor() as cursor:
            wake(cursor, [HINT])


def _declare_subscriptions(link: Link) -> None:
    try:
        with link.transaction() as cursor:
            done = sync_subscriptions(cursor, migrates=False)
    except PgQueueError as error:
        logger.error("failed     subscriptions: %s", error)
        return
    for name in [*done.added, *done.changed]:
        logger.info("declared   subscription=%s", name)

"""
Process: one child of the supervisor. It wires the loops and stops them in order.

The order in which it stops is the order in which jobs flow: the claimer first, then
what has not started is handed back, then running jobs get the grace to finish, then
their outcomes are written; the heartbeat is last, so that leases stay ours until then.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from typing import Any

from django_pgqueue import __version__, signals, telemetry
from django_pgqueue.exceptions import PgQueueError, ScheduleError, TaskTimeout
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.server import installation
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import workers
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.sync import HINT, sync
from django_pgqueue.tasks.perform import timed_out
from django_pgqueue.topics import registry
from django_pgqueue.topics import sync_subscriptions as subscriptions
from django_pgqueue.topics.consume import declared as consumers_declared
from django_pgqueue.topics.subscribe import declared as subscribed
from django_pgqueue.topics.sync_groups import sync_groups
from django_pgqueue.topics.sync_topics import sync as sync_topics
from django_pgqueue.worker.chores import purger
from django_pgqueue.worker.chores.backfills import Backfills
from django_pgqueue.worker.chores.heartbeat import Heartbeat
from django_pgqueue.worker.chores.leader import Leader
from django_pgqueue.worker.chores.repeats import repeat
from django_pgqueue.worker.chores.scheduler import Scheduler
from django_pgqueue.worker.claim.capacity import MEMORY_JOBS, QueueMix
from django_pgqueue.worker.claim.claimer import Claimer
from django_pgqueue.worker.claim.fair_share import run_order
from django_pgqueue.worker.claim.listener import Listener, Wakes
from django_pgqueue.worker.claim.quarantine import Quarantine
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.claim.summons import Summons, SuspectWatch
from django_pgqueue.worker.lease.leases import Leases, Slots
from django_pgqueue.worker.lease.renewal import Renewal
from django_pgqueue.worker.lease.reporter import Reporter
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.read.consumers import Consumers
from django_pgqueue.worker.recycling import Turn
from django_pgqueue.worker.run.call_collector import CallCollector
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.coroutines import Coroutines
from django_pgqueue.worker.run.dispatcher import Dispatcher
from django_pgqueue.worker.run.executor import Executor
from django_pgqueue.worker.run.interruption import interrupted
from django_pgqueue.worker.run.isolation import Isolation
from django_pgqueue.worker.run.pool import ProcessPool
from django_pgqueue.worker.run.pool_forker import Forker
from django_pgqueue.worker.run.pool_messages import PoolFlags
from django_pgqueue.worker.run.pool_runner import RunnerOptions
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.service import Service, Wakeup, backoff_seconds
from django_pgqueue.worker.settle.settler import Settlement, Settler
from django_pgqueue.worker.supervise.health_table import HealthRow, State

logger = logging.getLogger("django_pgqueue.worker")

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})

EXIT_CLEAN = 0
EXIT_BROKEN = 1
EXIT_LEFT_BEHIND = 3
# The supervisor starts another one at once.
EXIT_RECYCLE = 75

# An orphan has nobody who would rescue its jobs at once, so it hurries.
ORPHAN_GRACE_SECONDS = 3.0

SUMMARY_INTERVAL_SECONDS = 60.0

# What the settler counts that was run.
RUN_KINDS = ("ack", "retry", "dead", "cancel")

# What readers of groups count.
CONSUMED_KINDS = ("consumed", "failed", "dead", "halted", "stale")

# What a coroutine gets to tidy up when the grace is over.
INTERRUPT_SECONDS = 2.0

# How long a thread computes before another one gets its turn; Python's is 5 ms.
SWITCH_SECONDS = 0.001

# How often a stop looks whether there is still something to wait for.
LOOK_SECONDS = 0.05

# How long a loop gets to end once its work is done.
JOIN_SECONDS = 5.0


class Process:
    """Everything that one worker process has."""

    def __init__(
        self,
        options: WorkerOptions,
        name: str,
        slots: Slots,
        health_row: HealthRow | None = None,
        turn: Turn | None = None,
        summons: Summons | None = None,
        *,
        declares: bool = True,
        is_quarantine: bool = False,
    ) -> None:
        self._options = options
        # Whether it is for jobs that run alone, and for no others.
        self._is_quarantine = is_quarantine
        # None: nobody asks after our health.
        self._health_row = health_row
        self._settings = options.settings
        self._name = name
        self._slots = slots
        # Set by a signal handler, which runs between any two steps of the main thread:
        # threading.Event would then wait for a lock that this very thread holds.
        self._woken = Wakeup()
        self._stop_requested = False
        self._is_recycling = False
        self._is_broken = False
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
        self._grace_seconds = options.grace_seconds
        self._parent = os.getppid()

    def run(self) -> int:
        """Work until told to stop; return the exit status."""
        signal.signal(signal.SIGTERM, self._on_term)
        # Ctrl+C reaches the whole group; the supervisor passes it on in order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        # Before there are threads and connections.
        self._forker = self._make_forker()
        first = self._connect_first()
        if first is None:
            if self._forker is not None:
                self._forker.stop(JOIN_SECONDS)
            return EXIT_CLEAN
        self._wire(first)
        self._start()
        while not self._stop_requested:
            self._woken.wait(self._chore())
            self._woken.clear()
        return self._stop()

    def _make_forker(self) -> Forker | None:
        if self._options.pool != "processes":
            return None
        # The supervisor's way to make processes was "fork" as well; see options.
        context = multiprocessing.get_context("fork")
        runner_options = RunnerOptions(
            worker=self._name,
            settings=self._settings,
            limits=self._options.limits,
            flags=PoolFlags(context, self._options.threads),
        )
        return Forker(context, runner_options)

    def _connect_first(self) -> str | None:
        """Wait for the database; return the installation's uuid."""
        failures = 0
        self._note(State.STARTING)
        while not self._stop_requested and os.getppid() == self._parent:
            link = self._link("start")
            try:
                with link.cursor() as cursor:
                    self._register(cursor)
                    uuid = installation(cursor)
                self._declare(link)
                return uuid
            except Exception as error:
                failures += 1
                if failures in (1, 10) or not failures % 100:
                    logger.error("failed     loop=start error=%s", str(error).strip())
                self._woken.wait(backoff_seconds(failures))
            finally:
                link.drop()
        return None

    def _declare(self, link: Link) -> None:
        """Write what the code declares; a mistake there does not stop a worker."""
        if not self._declares:
            return
        if registry.declared():
            with link.connection.transaction(), link.cursor() as cursor:
                for name in sync_topics(cursor):
                    logger.info("declared   topic=%s", name)
        if declared():
            self._declare_schedules(link)
        if subscribed():
            self._declare_subscriptions(link)
        if consumers_declared():
            with link.connection.transaction(), link.cursor() as cursor:
                for name in sync_groups(cursor):
                    logger.info("declared   group=%s", name)

    def _declare_schedules(self, link: Link) -> None:
        try:
            with link.connection.transaction(), link.cursor() as cursor:
                synced = sync(cursor, migrates=False)
        except ScheduleError as error:
            logger.error("failed     schedules: %s", error)
            return
        for name in synced.changed:
            logger.info("declared   schedule=%s", name)
        if synced.changed:
            with link.cursor() as cursor:
                wake(cursor, [HINT])

    def _declare_subscriptions(self, link: Link) -> None:
        try:
            with link.connection.transaction(), link.cursor() as cursor:
                done = subscriptions.sync(cursor, migrates=False)
        except PgQueueError as error:
            logger.error("failed     subscriptions: %s", error)
            return
        for name in [*done.added, *done.changed]:
            logger.info("declared   subscription=%s", name)

    def _wire(self, installation: str) -> None:
        options, settings, name = self._options, self._settings, self._name
        self._leases = Leases(settings.lease_seconds)
        self._strays = Strays(self._leases, worker=name)
        self._renewal = Renewal(self._leases, worker=name)
        self._settler = Settler(
            self._link("settler", steady=True),
            worker=name,
            leases=self._leases,
            on_retry=self._on_retry,
        )
        self._watchdog = Watchdog(self._on_hard_timeout)
        self._reporter = Reporter(self._link("reporter"), worker=name)
        self._collector = CallCollector(
            self._link("gatherer", steady=True),
            worker=name,
            leases=self._leases,
            settler=self._settler,
            strays=self._strays,
            settings=settings,
        )
        services = JobServices(
            worker=name,
            alias=settings.database,
            leases=self._leases,
            settler=self._settler,
            reporter=self._reporter,
            collector=self._collector,
        )
        self._pool = None
        if self._forker is not None:
            self._pool = ProcessPool(
                self._forker,
                threads=options.threads,
                settings=settings,
                installation=installation,
                grace_seconds=options.grace_seconds,
                on_broken=self._on_broken,
                on_crashed=self._on_suspect,
            )
        on_suspect = None if self._is_quarantine else self._on_suspect
        self._isolation = Isolation(threads=options.threads, on_spoiled=self._recycle)
        executor = Executor(
            threads=options.threads,
            settings=settings,
            slots=self._slots,
            leases=self._leases,
            settler=self._settler,
            watchdog=self._watchdog,
            services=services,
            isolation=self._isolation,
            installation=installation,
            on_capacity=self._on_capacity,
            rank=run_order(options.plan, settings.ageing_seconds),
            # Runners run alone anyway.
            on_suspect=None if self._pool is not None else on_suspect,
            pool=self._pool,
        )
        self._coroutines = Coroutines(
            count=options.async_slots,
            first_slot=options.threads,
            sync_threads=options.sync_threads,
            settings=settings,
            slots=self._slots,
            services=services,
            isolation=self._isolation,
            installation=installation,
            grace_seconds=options.grace_seconds,
            on_capacity=self._on_capacity,
            on_suspect=on_suspect,
            on_hard_timeout=self._on_hard_timeout,
        )
        # A queue is forgotten no sooner than it could fill all slots.
        mix = QueueMix(max(MEMORY_JOBS, options.async_slots))
        self._dispatcher = Dispatcher(
            executor,
            self._coroutines,
            self._settler,
            mix,
            self._leases,
            self._on_capacity,
        )
        self._mix = mix
        wakeup = Wakeup()
        self._scheduler = Scheduler(self._link("scheduler"))
        self._consumers = Consumers(
            worker=name,
            plan=options.plan,
            settings=settings,
            link=lambda loop: self._link(loop, steady=True, flushes_later=True),
            isolation=self._isolation,
            on_spoiled=self._recycle,
        )
        self._wakes = Wakes(
            options.plan,
            wakeup,
            self._on_cancel,
            self._scheduler.hint,
            self._consumers.hint,
        )
        self._listener = None
        if settings.listen and not self._is_quarantine:
            alias = settings.listen_database or settings.database
            self._listener = Listener(self._link("listener", alias), self._wakes)
        self._claimer = self._make_claimer(wakeup)
        self._leader = Leader(
            self._link("leader"), [repeat, *purger.chores(settings), Backfills()]
        )
        self._heartbeat = Heartbeat(
            self._link("heartbeat", steady=True),
            worker=name,
            leases=self._leases,
            renewal=self._renewal,
            register=self._register_again,
            leader=self._leader,
            scheduler=self._scheduler,
            listener=self._listener,
            suspect_watch=self._suspect_watch(),
            stands=not self._is_quarantine,
        )

    def _make_claimer(self, wakeup: Wakeup) -> Claimer | Quarantine:
        options = self._options
        if self._is_quarantine:
            return Quarantine(
                self._link("claimer", steady=True),
                worker=self._name,
                options=options,
                leases=self._leases,
                strays=self._strays,
                hand_back=self._hand_back,
                is_idle=self._has_nothing,
                put=self._dispatcher.put,
                on_empty=self._leave,
                on_more=self._on_suspect,
            )
        return Claimer(
            self._link("claimer", steady=True, flushes_later=True),
            worker=self._name,
            options=options,
            wakes=self._wakes,
            leases=self._leases,
            renewal=self._renewal,
            strays=self._strays,
            hand_back=self._hand_back,
            mix=self._mix,
            capacity=self._dispatcher.capacity,
            extra_capacity=self._dispatcher.extra_capacity,
            put=self._dispatcher.put,
            wakeup=wakeup,
            listener=self._listener,
        )

    def _suspect_watch(self) -> SuspectWatch | None:
        if self._summons is None or self._is_quarantine:
            return None
        return SuspectWatch(self._options.plan, self._summons)

    def _start(self) -> None:
        # A loop that has its answer from the database must not wait for a turn as long
        # as a hundred short jobs take.
        sys.setswitchinterval(SWITCH_SECONDS)
        self._summary_at = time.monotonic() + SUMMARY_INTERVAL_SECONDS
        self._summary_counts: dict[str, int] = {}
        self._summary_consumed: dict[str, int] = {}
        self._started_at = time.monotonic()
        telemetry.send(signals.worker_started, None, worker=self._name)
        self._isolation.start()
        self._watchdog.start()
        self._dispatcher.start()
        for service in self._services():
            service.start()
        if not self._is_quarantine:
            self._consumers.start()
        logger.info("started    worker=%s pid=%d", self._name, os.getpid())

    def _services(self) -> list[Service]:
        """Return the loops, in the order in which they start."""
        loops: list[Service] = [self._settler, self._heartbeat]
        if not self._is_quarantine:
            loops += [self._leader, self._scheduler]
        if self._listener is not None:
            loops.append(self._listener)
        return [*loops, self._claimer]

    def _note(self, state: State) -> None:
        if self._health_row is not None:
            loops: list[Service] = []
            if state is State.RUNNING:
                loops = [*self._services(), *self._consumers.readers]
            self._health_row.note(state, loops)

    def _chore(self) -> float:
        """Do what the main thread does between waits; return the next wait."""
        now = time.monotonic()
        self._note(State.RUNNING)
        if os.getppid() != self._parent:
            logger.error("orphaned   worker=%s: its supervisor is gone", self._name)
            self._grace_seconds = min(self._grace_seconds, ORPHAN_GRACE_SECONDS)
            self._stop_requested = True
            return 0.0
        if now >= self._summary_at:
            self._summary_at = now + SUMMARY_INTERVAL_SECONDS
            self._log_summary()
        self._look_at_limits(now)
        if self._options.drain:
            return self._drain_step()
        return 1.0

    def _look_at_limits(self, now: float) -> None:
        """Leave, when it is this process's turn, if it has reached a limit."""
        limits = self._options.limits
        if self._stop_requested or self._pool is not None or not limits:
            return
        jobs = sum(self._settler.counts.get(kind, 0) for kind in RUN_KINDS)
        # One that has run nothing would be replaced by its like.
        why = jobs and limits.reached(jobs=jobs, age_seconds=now - self._started_at)
        if why and (self._turn is None or self._turn.take()):
            logger.info("recycling  worker=%s after %s", self._name, why)
            self._is_patient = True
            self._recycle()

    def _drain_step(self) -> float:
        """Ask to stop once a look that began when nothing ran found nothing."""
        if not self._has_nothing() or not self._consumers.found_nothing:
            self._looked_when_idle = False
        elif not self._looked_when_idle:
            self._looked_when_idle = True
            self._claimer.look_now()
            self._consumers.look_now()
        elif self._claimer.found_since_requested() == 0:
            self._stop_requested = True
            return 0.0
        elif self._claimer.found_since_requested():
            self._looked_when_idle = False
        return 0.01

    def _has_nothing(self) -> bool:
        """Whether nothing runs, waits to run or waits to be written."""
        is_idle = self._dispatcher.is_idle and not len(self._leases)
        return is_idle and self._settler.wait_until_idle(0)

    def _stop(self) -> int:
        started = time.monotonic()
        self._note(State.STOPPING)
        until = started + self._grace_seconds
        running = len(self._slots.running())
        logger.info(
            "stopping   worker=%s running=%d grace=%gs",
            self._name,
            running,
            self._grace_seconds,
        )
        self._claimer.stop()
        self._consumers.stop()
        self._scheduler.stop()
        if self._listener is not None:
            self._listener.stop()
        # A claim that is under way still brings jobs; they are handed back too.
        self._claimer.join(JOIN_SECONDS)
        self._dispatcher.stop()
        finished = self._wait_patiently() or self._wait_for_jobs(
            self._stop_requested_at + self._grace_seconds
            if self._is_patient and self._stop_requested_at
            else until
        )
        if not finished:
            # Coroutines can be told, and get a moment to tidy up.
            self._coroutines.interrupt()
            self._coroutines.join(time.monotonic() + INTERRUPT_SECONDS)
            if self._pool is not None:
                self._pool.interrupt()
                self._dispatcher.join(time.monotonic() + INTERRUPT_SECONDS)
                self._settler.wait_until_idle(INTERRUPT_SECONDS)
            self._interrupt_running()
        has_read = self._consumers.join(until)
        self._consumers.close()
        self._settle_stuck()
        settled = self._settler.wait_until_idle(
            max(until - time.monotonic(), JOIN_SECONDS)
        )
        for service in (
            self._settler,
            self._reporter,
            self._leader,
            self._heartbeat,
        ):
            service.stop()
        self._collector.close()
        self._watchdog.stop()
        if self._pool is not None:
            self._pool.stop()
        left = len(self._leases)
        self._forget()
        telemetry.send(signals.worker_stopped, None, worker=self._name)
        counts = self._settler.counts
        logger.info(
            "stopped    worker=%s succeeded=%d retried=%d dead=%d stale=%d left=%d",
            self._name,
            counts["ack"],
            counts["retry"],
            counts["dead"],
            counts["stale"],
            left,
        )
        if self._is_broken:
            return EXIT_BROKEN
        if self._is_recycling:
            return EXIT_RECYCLE
        is_clean = finished and settled and has_read and not left
        # A claim whose answer was lost may still be committed: somebody must look.
        is_clean = is_clean and not self._strays.is_pending
        return EXIT_CLEAN if is_clean else EXIT_LEFT_BEHIND

    def _wait_for_jobs(self, until: float) -> bool:
        """Wait until nothing runs any more; False when the grace is over first."""
        while time.monotonic() < until:
            if self._is_done():
                return True
            self._wait_a_little(until)
        return self._is_done()

    def _wait_a_little(self, until: float) -> None:
        """Wait for what runs; when nothing does, for what is to be written."""
        until = min(until, time.monotonic() + LOOK_SECONDS)
        if self._dispatcher.join(until) and not self._settler.wait_until_idle(
            until - time.monotonic()
        ):
            return
        # Neither is waited for: who holds the rest is about to let go of it.
        time.sleep(max(min(until - time.monotonic(), LOOK_SECONDS / 10), 0.0))

    def _is_done(self) -> bool:
        """Whether nothing is held any more, but for what cannot be stopped."""
        stuck = [job for job, _ in list(self._stuck.values()) if self._is_held(job)]
        return len(self._leases) <= len(stuck)

    def _is_held(self, job: Claimed) -> bool:
        leases = self._leases
        return leases.get(job) is not None or leases.is_settled(job)

    def _wait_patiently(self) -> bool:
        """Wait until nothing runs any more; False when somebody wants a stop."""
        while self._is_patient and self._stop_requested_at is None:
            if self._is_done():
                return True
            self._wait_a_little(time.monotonic() + LOOK_SECONDS)
            if os.getppid() != self._parent:
                self._grace_seconds = min(self._grace_seconds, ORPHAN_GRACE_SECONDS)
                self._stop_requested_at = time.monotonic()
        return False

    def _interrupt_running(self) -> None:
        """Give running jobs back: a stop is no failure of theirs and no crash."""
        for held in self._leases.all():
            if held.job.id in self._stuck:
                continue
            performed = interrupted(held.job, self._grace_seconds)
            self._settler.put(Settlement(held.job, performed))
        for job in self._leases.settled():
            if job.id in self._stuck:
                continue
            # Nothing is left to be handed back: its archived row gets a note.
            self._settler.put(Settlement(job, interrupted(job, self._grace_seconds)))

    def _on_term(self, number: int, frame: Any) -> None:
        # A second one is ignored: a container's init may send it to the whole group
        # besides the supervisor. To leave at once, the supervisor kills.
        self._stop_requested = True
        self._stop_requested_at = self._stop_requested_at or time.monotonic()
        self._woken.set()

    def _hand_back(self, jobs: list[Claimed]) -> None:
        """Return claimed jobs that must not start here to their queues."""
        for job in jobs:
            self._settler.put(Settlement(job, None))

    def _on_capacity(self) -> None:
        self._claimer.wake.set()

    def _on_retry(self, seconds: float) -> None:
        self._claimer.retry_in(seconds)

    def _on_hard_timeout(self, job: Claimed, error: TaskTimeout) -> None:
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
        others = [other.job for other in self._leases.others(job)]
        for each in (job, *others):
            self._stuck[each.id] = each, error
        self._recycle()

    def _settle_stuck(self) -> None:
        """Settle what has ignored its timeout, and has not ended since."""
        for job, error in list(self._stuck.values()):
            if self._settler.has(job) or not self._is_held(job):
                continue
            held = self._leases.get(job)
            is_cancelled = held is not None and held.is_cancelled
            performed = timed_out(
                job, self._settings, error, None, is_cancelled=is_cancelled
            )
            self._settler.put(Settlement(job, performed))

    def _on_suspect(self) -> None:
        """There is a job that is to run alone: not here."""
        if self._summons is not None:
            self._summons.send()

    def _leave(self) -> None:
        """End in order: there is nothing left to do."""
        self._stop_requested = True
        self._woken.set()

    def _recycle(self) -> None:
        """Let another process take this one's place; what runs gets the grace."""
        self._is_recycling = True
        self._stop_requested = True
        self._woken.set()

    def _on_broken(self) -> None:
        """Let another process take this one's place; it may not fare better."""
        self._is_broken = True
        self._recycle()

    def _on_cancel(self) -> None:
        """Look at once which running jobs were asked to stop."""
        self._heartbeat.hint_cancel()

    def _log_summary(self) -> None:
        counts = dict(self._settler.counts)
        before, self._summary_counts = self._summary_counts, counts
        fresh = {name: counts[name] - before.get(name, 0) for name in counts}
        if any(fresh.values()):
            logger.info(
                "summary    worker=%s succeeded=%d retried=%d dead=%d stale=%d "
                "running=%d",
                self._name,
                fresh.get("ack", 0),
                fresh.get("retry", 0),
                fresh.get("dead", 0),
                fresh.get("stale", 0),
                len(self._slots.running()),
            )

        consumed = dict(self._consumers.counts)
        before, self._summary_consumed = self._summary_consumed, consumed
        read = {name: consumed[name] - before.get(name, 0) for name in consumed}
        if any(read.values()):
            logger.info(
                "summary    worker=%s consumed=%d failed=%d dead=%d halted=%d stale=%d",
                self._name,
                *(read.get(name, 0) for name in CONSUMED_KINDS),
            )

    def _register(self, cursor: Cursor) -> None:
        workers.register(
            cursor,
            name=self._name,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            queues=self._options.queues,
            threads=self._options.threads,
            async_slots=self._options.async_slots * self._options.has_async_tasks,
            version=__version__,
        )

    def _register_again(self) -> None:
        with self._heartbeat.link.cursor() as cursor:
            self._register(cursor)

    def _forget(self) -> None:
        link = self._link("stop")
        try:
            with link.cursor() as cursor:
                workers.forget(cursor, [self._name])
        except Exception as error:
            logger.info("row of worker=%s stays: %s", self._name, str(error).strip())
        finally:
            link.drop()

    def _link(self, loop: str, alias: str | None = None, **options: bool) -> Link:
        alias = alias or self._settings.database
        return Link(alias, name=f"pgqueue {loop} {self._name}", **options)

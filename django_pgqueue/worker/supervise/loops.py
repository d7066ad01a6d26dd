"""
Loops: what one worker process has, made for one another.

The main thread of the process starts and stops them: see process.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.postgres.connect import Link, SharedLink
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.waited import OUTPUT_HINT
from django_pgqueue.worker.chores import backlogs, purger, reprocess
from django_pgqueue.worker.chores.backfills import Backfills
from django_pgqueue.worker.chores.backlogs import Backlogs
from django_pgqueue.worker.chores.counting import Counting
from django_pgqueue.worker.chores.heartbeat import Heartbeat
from django_pgqueue.worker.chores.leader import Leader
from django_pgqueue.worker.chores.overdue import cancel_overdue, end_generations, repeat
from django_pgqueue.worker.chores.pull_ends import PullEnds
from django_pgqueue.worker.chores.scheduler import Scheduler
from django_pgqueue.worker.chores.watch import Watch
from django_pgqueue.worker.claim.capacity import MEMORY_JOBS, Dispatcher, QueueMix
from django_pgqueue.worker.claim.claimer import Claimer
from django_pgqueue.worker.claim.fair_share import run_order
from django_pgqueue.worker.claim.listener import Listener, SharedListener, Wakes
from django_pgqueue.worker.claim.quarantine import Quarantine, SuspectWatch
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.claim.turns import StartOrder, Turns
from django_pgqueue.worker.lanes.breakers import Breakers, declared_breakers
from django_pgqueue.worker.lanes.promoter import Promoter
from django_pgqueue.worker.lease.leases import Leases, Renewal, Slots
from django_pgqueue.worker.lease.reporter import Reporter
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.read.consumers import Consumers
from django_pgqueue.worker.run.call_collector import CallCollector
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.coroutines import Coroutines
from django_pgqueue.worker.run.executor import Executor
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.service import Service
from django_pgqueue.worker.settle.settler import (
    LOCK_SECONDS,
    Settlement,
    Settler,
    Waited,
)
from django_pgqueue.worker.tally import Tally


class Owner(Protocol):
    """The process, to its loops. Any of their threads may call it."""

    def register(self, cursor: Cursor) -> None:
        """Write the row of this process anew, which is gone."""

    def on_hard_timeout(self, job: Claimed, error: TaskTimeout) -> None:
        """Note a job that does not react to its timeout."""

    def on_suspect(self) -> None:
        """Note that there is a job which is to run alone."""

    def recycle(self) -> None:
        """Let another process take this one's place."""

    def leave(self) -> None:
        """End in order: there is nothing left to do."""


class Loops:
    """Every loop of a process, and what they share."""

    def __init__(
        self,
        owner: Owner,
        options: WorkerOptions,
        name: str,
        slots: Slots,
        *,
        installation: str,
        suspect_watch: SuspectWatch | None,
        is_quarantine: bool,
        tally: Tally,
    ) -> None:
        settings = options.settings
        self._owner, self._options, self._name = owner, options, name
        self._is_quarantine = is_quarantine
        # The connection of all loops; None: each has one.
        self._shared: SharedLink | None = None
        if options.shares_connection:
            self._shared = SharedLink(
                settings.database,
                name=f"pgqueue loops {name}",
                statement_seconds=settings.lease_seconds / 6,
                lock_seconds=LOCK_SECONDS,
            )
        self.leases = Leases(settings.lease_seconds)
        self.strays = Strays(self.leases, worker=name)
        self.renewal = Renewal(self.leases, worker=name)
        # None: no task has one.
        self.breakers: Breakers | None = None
        if declared := declared_breakers():
            self.breakers = Breakers(
                self._link("breakers"),
                declared,
                redact=settings.redact,
                freed=self._promote,
            )
        self.counting = Counting(tally)
        waited, streamed = Waited(), Waited(hint=OUTPUT_HINT)
        self.settler = Settler(
            self._link("settler", steady=True, lock_seconds=LOCK_SECONDS),
            worker=name,
            leases=self.leases,
            on_retry=self._on_retry,
            on_freed=self._on_freed,
            on_left=self._on_left,
            on_ended=None if self.breakers is None else self.breakers.note,
            tally=tally,
            waited=waited,
        )
        self.watchdog = Watchdog(owner.on_hard_timeout)
        self.reporter = Reporter(
            self._link("reporter"), worker=name, streamed=streamed.among
        )
        self.collector = CallCollector(
            self._link("gatherer", steady=True),
            worker=name,
            leases=self.leases,
            settler=self.settler,
            strays=self.strays,
            settings=settings,
        )
        services = JobServices(
            worker=name,
            alias=settings.database,
            leases=self.leases,
            settler=self.settler,
            reporter=self.reporter,
            collector=self.collector,
        )
        on_suspect = None if self._is_quarantine else owner.on_suspect
        self.turns = Turns()
        executor = Executor(
            threads=options.threads,
            settings=settings,
            slots=slots,
            leases=self.leases,
            settler=self.settler,
            watchdog=self.watchdog,
            services=services,
            installation=installation,
            on_capacity=self._on_capacity,
            order=StartOrder(run_order(options.plan, settings.ageing_seconds)),
            on_suspect=on_suspect,
        )
        self.coroutines = Coroutines(
            count=options.async_slots,
            first_slot=options.threads,
            sync_threads=options.sync_threads,
            settings=settings,
            slots=slots,
            services=services,
            installation=installation,
            grace_seconds=options.grace_seconds,
            on_capacity=self._on_capacity,
            on_suspect=on_suspect,
            on_hard_timeout=owner.on_hard_timeout,
        )
        # A queue is forgotten no sooner than it could fill all slots.
        mix = QueueMix(max(MEMORY_JOBS, options.async_slots))
        self.dispatcher = Dispatcher(
            executor,
            self.coroutines,
            self.settler,
            mix,
            self.leases,
            on_capacity=self._on_capacity,
            hand_back=self._hand_back,
        )
        self.mix = mix
        wakeup = Wakeup()
        self.scheduler = Scheduler(self._link("scheduler"))
        self.consumers = Consumers(
            worker=name,
            plan=options.plan,
            settings=settings,
            link=lambda loop: self._own_link(loop, steady=True, flushes_later=True),
            on_spoiled=owner.recycle,
        )
        self.wakes = Wakes(
            options.plan,
            wakeup,
            self._on_cancel,
            self.scheduler.hint,
            self.consumers.hint,
            self._on_lanes,
            self._on_freed,
            self.turns.flag,
            self._on_held,
            self._on_alert,
            self._on_bulk_act,
            waited.note,
            streamed.note,
        )
        # Nothing is flushed: a promotion that a crash of the server forgets is made
        # again, and what was committed after it, and is on disk, has it there, too.
        self.promoter = Promoter(
            self._link("promoter", steady=True, in_order=True, flushes_later=True),
            on_promoted=self.wakes.flag,
        )
        self.listener = None
        if settings.listen and not self._is_quarantine:
            alias = settings.listen_database or settings.database
            is_shared = self._shared is not None and alias == settings.database
            kind = SharedListener if is_shared else Listener
            self.listener = kind(self._link("listener", alias), self.wakes)
        self.claimer = self._make_claimer(wakeup)
        self._watch, self._bulk_acts = Watch(), options.bulk_acts
        self.leader = Leader(
            # Chores have statements that take minutes.
            self._own_link("leader"),
            [
                repeat,
                *backlogs.chores(settings),
                *purger.chores(settings),
                *reprocess.chores(settings),
                cancel_overdue,
                end_generations,
                Backlogs(),
                Backfills(),
                PullEnds(tally),
                self._watch,
                *([] if self._bulk_acts is None else [self._bulk_acts]),
            ],
            leave=None if self._bulk_acts is None else self._bulk_acts.leave,
        )
        self.heartbeat = Heartbeat(
            self._link("heartbeat", steady=True),
            worker=name,
            leases=self.leases,
            renewal=self.renewal,
            register=self._register,
            leader=self.leader,
            scheduler=self.scheduler,
            promoter=self.promoter,
            listener=self.listener,
            suspect_watch=suspect_watch,
            counting=self.counting,
            stands=not self._is_quarantine,
        )

    def _make_claimer(self, wakeup: Wakeup) -> Claimer | Quarantine:
        options, owner = self._options, self._owner
        if self._is_quarantine:
            return Quarantine(
                self._link("claimer", steady=True),
                worker=self._name,
                options=options,
                leases=self.leases,
                strays=self.strays,
                hand_back=self._hand_back,
                is_idle=self.has_nothing,
                put=self.dispatcher.put,
                on_empty=owner.leave,
                on_more=owner.on_suspect,
            )
        return Claimer(
            self._link("claimer", steady=True, in_order=True, flushes_later=True),
            worker=self._name,
            options=options,
            wakes=self.wakes,
            leases=self.leases,
            renewal=self.renewal,
            strays=self.strays,
            hand_back=self._hand_back,
            mix=self.mix,
            capacity=self.dispatcher.capacity,
            extra_capacity=self.dispatcher.extra_capacity,
            put=self.dispatcher.put,
            on_paced=self.promoter.freed,
            turns=self.turns,
            on_held=self._on_known_held,
            on_resumed=self.promoter.resumed,
            wakeup=wakeup,
            listener=self.listener,
        )

    def services(self) -> list[Service]:
        """Return the loops, in the order in which they start."""
        loops: list[Service] = [self.settler, self.heartbeat]
        if not self._is_quarantine:
            loops += [self.leader, self.scheduler]
        if self.listener is not None:
            loops.append(self.listener)
        return [*loops, self.claimer]

    def has_nothing(self) -> bool:
        """Whether nothing runs, waits to run or waits to be written."""
        is_idle = self.dispatcher.is_idle and not len(self.leases)
        return is_idle and self.settler.wait_until_idle(0)

    def _on_cancel(self) -> None:
        """Look at once which running jobs were asked to stop."""
        self.heartbeat.hint_cancel()

    def _hand_back(self, jobs: list[Claimed]) -> None:
        """Return claimed jobs that must not start here to their queues."""
        for job in jobs:
            self.settler.put(Settlement(job, None))

    def _on_capacity(self) -> None:
        self.claimer.wake.set()

    def _on_retry(self, seconds: float) -> None:
        self.claimer.retry_in(seconds)

    def _on_known_held(self, tasks: Collection[str]) -> None:
        if self.breakers is not None:
            self.breakers.set_held(tasks)

    def _on_freed(self, lanes: Collection[str]) -> None:
        if self.breakers is not None:
            lanes = self.breakers.without_judged(lanes)
        self._promote(lanes)

    def _promote(self, lanes: Collection[str]) -> None:
        self.promoter.freed(lanes)

    def _on_left(self, queues: Collection[str]) -> None:
        self.claimer.settled(queues)

    def _on_alert(self) -> None:
        self.leader.hurry(self._watch)

    def _on_bulk_act(self) -> None:
        if self._bulk_acts is not None:
            self.leader.hurry(self._bulk_acts)

    def _on_held(self) -> None:
        """Look at once which tasks are paused."""
        self.claimer.ask_again()

    def _on_lanes(self, seconds: float) -> None:
        self.promoter.hint(seconds)

    def _register(self) -> None:
        with self.heartbeat.link.cursor() as cursor:
            self._owner.register(cursor)

    def last_link(self) -> Link:
        """Return a connection for what is written when the loops have ended."""
        return self._link("stop")

    def _link(self, loop: str, alias: str | None = None, **options: Any) -> Link:
        is_ours = alias is None or alias == self._options.settings.database
        if self._shared is not None and is_ours:
            return self._shared
        return self._own_link(loop, alias, **options)

    def _own_link(self, loop: str, alias: str | None = None, **options: Any) -> Link:
        alias = alias or self._options.settings.database
        return Link(alias, name=f"pgqueue {loop} {self._name}", **options)

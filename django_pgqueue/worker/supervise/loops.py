"""
Loops: what one worker process has, made for one another.

The main thread of the process starts and stops them: see process.py.
"""

from __future__ import annotations

from typing import Any, Protocol

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.log.publish import HINT as TOPIC_HINT
from django_pgqueue.postgres.connect import Link, SharedLink
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.queues.bulk_acts import HINT as BULK_HINT
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.held import HINT as HELD_HINT
from django_pgqueue.queues.lanes import FREED_HINT, seconds_of
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.queues.pull import HINT as PULL_HINT
from django_pgqueue.queues.waited import HINT as WAITED_HINT
from django_pgqueue.queues.waited import OUTPUT_HINT
from django_pgqueue.queues.watch import HINT as ALERT_HINT
from django_pgqueue.schedules.store import HINT as SCHEDULES_HINT
from django_pgqueue.tasks.operate import CANCEL_HINT
from django_pgqueue.worker.chores import backlogs, purger, reprocess
from django_pgqueue.worker.chores.backlogs import Backfills, Backlogs
from django_pgqueue.worker.chores.counting import Counting, PullEnds
from django_pgqueue.worker.chores.heartbeat import Heartbeat
from django_pgqueue.worker.chores.leader import Leader
from django_pgqueue.worker.chores.overdue import cancel_overdue, end_generations, repeat
from django_pgqueue.worker.chores.scheduler import Scheduler
from django_pgqueue.worker.chores.watch import Watch
from django_pgqueue.worker.claim.capacity import MEMORY_JOBS, QueueMix
from django_pgqueue.worker.claim.claimer import Claimer
from django_pgqueue.worker.claim.fair_share import run_order
from django_pgqueue.worker.claim.listener import Listener, SharedListener, Wakes
from django_pgqueue.worker.claim.quarantine import Quarantine, Summons, SuspectWatch
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.claim.turns import StartOrder
from django_pgqueue.worker.lanes.breakers import Breakers, declared_breakers
from django_pgqueue.worker.lanes.promoter import Promoter
from django_pgqueue.worker.lease.leases import Leases, Slots
from django_pgqueue.worker.lease.reporter import Reporter
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.read.consumers import Consumers
from django_pgqueue.worker.run.call_collector import CallCollector
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.coroutines import Coroutines
from django_pgqueue.worker.run.dispatcher import Dispatcher
from django_pgqueue.worker.run.executor import Executor
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.service import Service, nothing
from django_pgqueue.worker.settle.settler import (
    LOCK_SECONDS,
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
        summons: Summons | None,
        is_quarantine: bool,
        tally: Tally,
    ) -> None:
        settings = options.settings
        self._options, self._name = options, name
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
        self.leases = Leases(settings.lease_seconds, name)
        self.strays = Strays(self.leases)
        wakeup = Wakeup()
        self.wakes = Wakes(options.plan, wakeup)
        # Nothing is flushed: a promotion that a crash of the server forgets is made
        # again, and what was committed after it, and is on disk, has it there, too.
        self.promoter = Promoter(
            self.link("promoter", steady=True, in_order=True, flushes_later=True),
            on_promoted=self.wakes.flag,
        )
        self.counting, streamed = Counting(tally), Waited()
        self.settler = Settler(
            self.link("settler", steady=True, lock_seconds=LOCK_SECONDS),
            self.leases,
            tally,
        )
        self.settler.on_freed = self.promoter.freed
        # None: no task has one.
        self.breakers: Breakers | None = None
        if declared := declared_breakers():
            self.breakers = Breakers(
                self.link("breakers"),
                declared,
                redact=settings.redact,
                freed=self.promoter.freed,
            )
            self.settler.on_ended = self.breakers.note
            self.settler.on_freed = self.breakers.lanes_left
        self.watchdog = Watchdog(owner.on_hard_timeout)
        self.reporter = Reporter(
            self.link("reporter"), worker=name, streamed=streamed.among
        )
        self.collector = CallCollector(
            link=self.link("gatherer", steady=True),
            leases=self.leases,
            settler=self.settler,
            strays=self.strays,
            settings=settings,
        )
        services = JobServices(
            settings=settings,
            installation=installation,
            slots=slots,
            leases=self.leases,
            settler=self.settler,
            reporter=self.reporter,
            collector=self.collector,
            on_capacity=wakeup.set,
            on_suspect=None if is_quarantine else owner.on_suspect,
        )
        executor = Executor(
            threads=options.threads,
            services=services,
            watchdog=self.watchdog,
            order=StartOrder(run_order(options.plan, settings.ageing_seconds)),
        )
        self.coroutines = Coroutines(
            count=options.async_slots,
            first_slot=options.threads,
            sync_threads=options.sync_threads,
            services=services,
            grace_seconds=options.grace_seconds,
            on_hard_timeout=owner.on_hard_timeout,
        )
        # A queue is forgotten no sooner than it could fill all slots.
        mix = QueueMix(max(MEMORY_JOBS, options.async_slots))
        self.dispatcher = Dispatcher(executor, self.coroutines, services, mix)
        self.scheduler = Scheduler(self.link("scheduler"))
        self.consumers = Consumers(
            worker=name,
            options=options,
            link=lambda loop: self._own_link(loop, steady=True, flushes_later=True),
            on_spoiled=owner.recycle,
        )
        self.listener = None
        if settings.listen and not is_quarantine:
            alias = settings.listen_database or settings.database
            is_shared = self._shared is not None and alias == settings.database
            kind = SharedListener if is_shared else Listener
            self.listener = kind(self.link("listener", alias), self.wakes)
        self.claimer: Claimer | Quarantine
        if is_quarantine:
            self.claimer = Quarantine(
                self.link("claimer", steady=True),
                options=options,
                leases=self.leases,
                strays=self.strays,
                hand_back=services.hand_back,
                is_idle=self.has_nothing,
                put=self.dispatcher.put,
                on_empty=owner.leave,
                on_more=owner.on_suspect,
            )
            self.claimer.wake = wakeup
        else:
            self.claimer = Claimer(
                self.link("claimer", steady=True, in_order=True, flushes_later=True),
                options=options,
                wakes=self.wakes,
                leases=self.leases,
                strays=self.strays,
                hand_back=services.hand_back,
                mix=mix,
                capacity=self.dispatcher.capacity,
                extra_capacity=self.dispatcher.extra_capacity,
                put=self.dispatcher.put,
                listener=self.listener,
            )
            self.claimer.on_paced = self.promoter.freed
            self.claimer.on_resumed = self.promoter.resumed
            if self.breakers is not None:
                self.claimer.on_held = self.breakers.set_held
        self.settler.on_retry = self.claimer.retry_in
        self.settler.on_left = self.claimer.settled
        watch, bulk_acts = Watch(), options.bulk_acts
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
                watch,
                *([] if bulk_acts is None else [bulk_acts]),
            ],
        )
        suspect_watch = None
        if summons is not None and not is_quarantine:
            suspect_watch = SuspectWatch(options.plan, summons)
        self.heartbeat = Heartbeat(
            self.link("heartbeat", steady=True),
            leases=self.leases,
            register=owner.register,
            leader=self.leader,
            scheduler=self.scheduler,
            promoter=self.promoter,
            listener=self.listener,
            suspect_watch=suspect_watch,
            counting=self.counting,
            stands=not is_quarantine,
        )
        self.wakes.hints = {
            CANCEL_HINT: lambda _: self.heartbeat.hint_cancel(),
            SCHEDULES_HINT: lambda _: self.scheduler.hint(),
            HELD_HINT: lambda _: self.claimer.ask_again(),
            ALERT_HINT: lambda _: self.leader.hurry(watch),
            BULK_HINT: lambda _: self.leader.hurry(bulk_acts),
            TOPIC_HINT: self.consumers.hint,
            LANES_HINT: lambda seconds: self.promoter.hint(seconds_of(seconds)),
            FREED_HINT: lambda lane: self.settler.on_freed([lane]),
            WAITED_HINT: self.settler.waited.note,
            OUTPUT_HINT: streamed.note,
            PULL_HINT: nothing,  # Of messages, for those who receive them.
        }

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

    def link(self, loop: str, alias: str | None = None, **options: Any) -> Link:
        """Return the connection of *loop*: one of its own, or that of all."""
        is_ours = alias is None or alias == self._options.settings.database
        if self._shared is not None and is_ours:
            return self._shared
        return self._own_link(loop, alias, **options)

    def _own_link(self, loop: str, alias: str | None = None, **options: Any) -> Link:
        alias = alias or self._options.settings.database
        return Link(alias, name=f"pgqueue {loop} {self._name}", **options)

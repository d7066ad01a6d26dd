"""
Pool runner: a process that runs tasks for one thread of a worker, one at a time.

It takes the steps that a thread takes: two clean-ups of its connections, the signal,
the call under its timeout, the look at what was left behind. The outcome is decided
here, where the exception is; the worker process writes it.

The main thread runs the tasks, so that they may do what only a main thread may.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Outcome, Performed
from django_pgqueue.tasks.perform import attempt, unguarded
from django_pgqueue.tasks.prepare import prepare
from django_pgqueue.worker.recycling import Limits
from django_pgqueue.worker.run.isolation import (
    Isolation,
    clean_connections,
    in_own_context,
    keep_caches,
    watch_connections,
)
from django_pgqueue.worker.run.pool_control import Caller, RunnerControl
from django_pgqueue.worker.run.pool_messages import (
    Channel,
    Ended,
    Packed,
    PoolFlags,
    Ready,
    Work,
    pack,
    pack_others,
)
from django_pgqueue.worker.run.watchdog import Watchdog

logger = logging.getLogger("django_pgqueue.worker")

# Leaves by itself, between two jobs; as worker/supervise/process.py's.
EXIT_RECYCLE = 75

# Interrupts what the main thread waits for. Whoever takes its handler away makes it
# harmless, and no more than that.
NUDGE = signal.SIGURG


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """What all runners of a worker process go by."""

    worker: str
    settings: Settings
    limits: Limits
    flags: PoolFlags


class Runner:
    """What a runner has."""

    def __init__(self, options: RunnerOptions, channel: Channel, place: int) -> None:
        self._options = options
        self._channel = channel
        self._place = place
        self._jobs = 0
        self._started_at = time.monotonic()
        self._leaves_because: str | None = None
        self._watchdog = Watchdog(_is_killed_by_worker, on_soft=_interrupt_main)
        self._caller = Caller(channel)

    def run(self) -> int:
        """Run jobs until there are no more; return the exit status."""
        watch_connections()
        keep_caches()
        self._isolation = Isolation(threads=1, on_spoiled=self._leave)
        self._watchdog.start()
        self._caller.start()
        self._isolation.start()
        try:
            while True:
                self._look_at_limits()
                self._channel.send(Ready(self._leaves_because))
                if self._leaves_because is not None:
                    return EXIT_RECYCLE
                work: Work = self._channel.receive()
                self._run(work)
        except EOFError:
            return 0  # The worker has no more for us, or is gone.

    def _run(self, work: Work) -> None:
        job = work.job
        # From here on its death is the job's doing.
        self._options.flags.begin(self._place, work.number)
        clean_connections()
        performed, others = in_own_context(self._call, work)
        self._channel.send(Ended(pack(performed), others))
        del performed, others
        clean_connections()
        self._isolation.look(job.id, job.task)
        self._jobs += 1

    def _call(self, work: Work) -> tuple[Performed, list[Packed | Outcome | None]]:
        job, options = work.job, self._options
        prepared = prepare(job, options.settings)
        if isinstance(prepared, Performed):
            # Nobody leads the others.
            return prepared, [None] * len(work.others)
        control = RunnerControl(
            self._caller,
            job,
            claimed_at=work.claimed_at,
            worker=options.worker,
            cancelled=functools.partial(
                options.flags.is_cancelled, self._place, work.number
            ),
        )
        timeout = prepared.options.timeout
        performed, ends = attempt(
            job,
            prepared,
            options.settings,
            installation=work.installation,
            control=control,
            guard=unguarded if timeout is None else self._watchdog.guard(job, timeout),
            others=work.others,
        )
        control.finish()
        return performed, pack_others(performed, ends)

    def _look_at_limits(self) -> None:
        if self._leaves_because is None and self._jobs:
            self._leaves_because = self._options.limits.reached(
                jobs=self._jobs, age_seconds=time.monotonic() - self._started_at
            )

    def _leave(self) -> None:
        self._leaves_because = "standard files closed or replaced"


def _is_killed_by_worker(job: Claimed, error: TaskTimeout) -> None:
    """Do nothing: the worker counts the time too, and ends this process."""


def _interrupt_main() -> None:
    """Let the main thread notice TaskTimeout also while it sleeps or waits."""
    signal.pthread_kill(threading.main_thread().ident or 0, NUDGE)


def run_runner(options: RunnerOptions, channel: Channel, place: int) -> None:
    """Be a runner; never returns."""
    status = 1
    try:
        status = Runner(options, channel, place).run()
    except BaseException:
        logger.exception("failed     loop=runner worker=%s", options.worker)
    finally:
        if options.settings.trace:
            from django_pgqueue.tasks import tracing

            tracing.flush()
        _flush()
        os._exit(status)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # A job may have closed it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def ignore(number: int, frame: Any) -> None:
    """
    Do nothing: who sends it to a whole group means the supervisor.

    A function rather than SIG_IGN, which programs that a task starts would inherit.
    """

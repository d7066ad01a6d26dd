"""
Pool: runs the jobs of threads in processes of their own, the runners.

Each thread of the executor has one runner, and waits for it. So a task that computes
has a core for itself and leaves this process's loops alone; one that does not react to
its timeout is killed, and one that dies takes nobody with it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import LeaseLost, TaskTimeout, UnknownTask, WrongState
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Crashed, Performed, Retried, Succeeded
from django_pgqueue.tasks.perform import timed_out, timeout_message
from django_pgqueue.tasks.prepare import Prepared, prepare
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.worker.lease.leases import Held
from django_pgqueue.worker.run.control import Control, RunControl
from django_pgqueue.worker.run.interruption import interrupted
from django_pgqueue.worker.run.pool_forker import Forker, Runner
from django_pgqueue.worker.run.pool_messages import (
    Answer,
    Call,
    Ended,
    Ready,
    Work,
    error_of,
    unpack,
    unpack_others,
)
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS

logger = logging.getLogger("django_pgqueue.worker")

# A runner that is not ready by then will never be.
READY_SECONDS = 30.0

# How often a job is given to a new runner when one died before it began.
TRIES = 3
START_AGAIN = timedelta(seconds=5)

# From the end of a runner's socket to the end of the runner, before it is killed.
DEATH_SECONDS = 1.0

# How long the forker gets to end its runners.
STOP_SECONDS = 5.0


class ProcessPool:
    """One runner for each thread of the executor."""

    def __init__(
        self,
        forker: Forker,
        *,
        threads: int,
        settings: Settings,
        installation: str,
        grace_seconds: float,
        on_broken: Callable[[], None],
        on_crashed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Make the pool.

        Args:
            forker: Started before any thread.
            threads: As many runners.
            settings: To resolve the options of tasks.
            installation: The uuid that begins idempotency keys.
            grace_seconds: Said to jobs that are interrupted.
            on_broken: Called when no runner can be forked any more.
            on_crashed: Called when a job is about to come back that runs alone then.
        """
        self._forker = forker
        self._settings = settings
        self._installation = installation
        self._grace_seconds = grace_seconds
        self._on_broken = on_broken
        self._on_crashed = on_crashed
        self._runners: list[Runner | None] = [None] * threads
        # Of the jobs of each place; see PoolFlags.
        self._numbers = [0] * threads
        self._is_interrupted = False

    def start(self) -> None:
        """Ask for the runners; they are there when they are needed."""
        self._forker.start(self._on_broken)
        for place in range(len(self._runners)):
            self._runners[place] = self._forker.fork(place)

    def interrupt(self) -> None:
        """Kill every runner: the worker stops, and the grace is over."""
        self._is_interrupted = True
        for runner in self._runners:
            if runner is not None:
                self._forker.kill(runner)

    def stop(self) -> None:
        """End the runners and their forker; nothing runs any more, or is lost."""
        if self._settings.trace:
            self._let_leave()
        self._forker.stop(STOP_SECONDS)

    def _let_leave(self) -> None:
        """Let idle runners end by themselves, since they export their spans then."""
        runners = [runner for runner in self._runners if runner is not None]
        for runner in runners:
            runner.channel.close()
        until = time.monotonic() + STOP_SECONDS
        for runner in runners:
            runner.has_died.wait(max(0.0, until - time.monotonic()))

    def prepare(self, job: Claimed) -> Prepared | Performed:
        """Find the job's task; its arguments are read by the runner."""
        try:
            task = find_task(job.task)
        except UnknownTask:
            return prepare(job, self._settings)
        return Prepared(task, task.resolve(job.queue, self._settings), [], {}, {})

    def run(
        self, place: int, held: Held, prepared: Prepared, control: Control
    ) -> Performed:
        """
        Run a job in the runner of *place*, from its thread; say what becomes of it.

        Args:
            place: The number of the thread.
            held: The job.
            prepared: Its task and options, without arguments.
            control: What its context works on.
        """
        for _ in range(TRIES):
            runner = self._ready(place)
            if runner is None:
                break
            self._numbers[place] += 1
            try:
                return self._follow(runner, place, held, prepared, control)
            except EOFError:
                performed = self._after_death(runner, place, held, control)
                if performed is not None:
                    return performed
        if self._is_interrupted:
            return interrupted(held.job, self._grace_seconds)
        return Performed(Retried(START_AGAIN, gives_attempt_back=True))

    def _ready(self, place: int) -> Runner | None:
        """Return a runner that waits for a job; None: none could be started."""
        until = time.monotonic() + READY_SECONDS
        for _ in range(TRIES):
            while not self._is_interrupted:
                runner = self._runners[place]
                if runner is None:
                    runner = self._runners[place] = self._forker.fork(place)
                try:
                    message: Ready = runner.channel.receive(until)
                except (EOFError, TimeoutError):
                    # It was killed while it waited for work, or could not start.
                    self._drop(place, runner, DEATH_SECONDS)
                    break
                if message.leaves_because is None:
                    return runner
                logger.info(
                    "recycled   runner pid=%s after %s",
                    runner.pid,
                    message.leaves_because,
                )
                self._runners[place] = None
                runner.channel.close()
        return None

    def _follow(
        self,
        runner: Runner,
        place: int,
        held: Held,
        prepared: Prepared,
        control: Control,
    ) -> Performed:
        """Give the job to *runner*, and do what its task asks for until it ends."""
        job, number, timeout = held.job, self._numbers[place], prepared.options.timeout
        flags = self._forker.options.flags
        control.when_cancelled(functools.partial(flags.cancel, place, number))
        run = control.run if isinstance(control, RunControl) else None
        others = [] if run is None else run.other_jobs
        started = time.monotonic()
        until = None
        if timeout is not None:
            until = started + timeout.total_seconds() + HARD_GRACE_SECONDS
        channel = runner.channel
        channel.send(Work(number, job, held.claimed_at, self._installation, others))
        try:
            while True:
                message = channel.receive(until)
                if isinstance(message, Ended):
                    break
                channel.send(_answer(control, message))
        except TimeoutError:
            self._drop(place, runner, 0)
            seconds = time.monotonic() - started
            return self._settled(
                control, self._timed_out(held, timeout, seconds, runner.pid)
            )
        performed = unpack(message.performed)
        if run is not None:
            run.ends = unpack_others(performed, message.others)
        if control.is_settled is not None:
            performed.settled = control.is_settled
        return performed

    def _timed_out(
        self, held: Held, timeout: timedelta | None, seconds: float, pid: int | None
    ) -> Performed:
        logger.error(
            "ignored    job=%d task=%s: it did not react to its timeout; its "
            "process %s is killed",
            held.job.id,
            held.job.task,
            pid,
        )
        error = TaskTimeout(
            f"{timeout_message(held.job, timeout)} It did not react within "
            f"{HARD_GRACE_SECONDS:.0f} s more, so its process {pid} was killed."
        )
        return timed_out(
            held.job,
            self._settings,
            error,
            seconds,
            is_cancelled=held.is_cancelled,
        )

    def _after_death(
        self, runner: Runner, place: int, held: Held, control: Control
    ) -> Performed | None:
        """Say what becomes of a job whose runner died; None: it had not begun."""
        self._drop(place, runner, DEATH_SECONDS)
        if self._is_interrupted:
            return self._settled(control, interrupted(held.job, self._grace_seconds))
        logger.error("died       runner pid=%s cause=%r", runner.pid, runner.cause)
        if not self._forker.options.flags.has_begun(place, self._numbers[place]):
            return None
        self._on_crashed()
        message = f"Its process {runner.pid} ended with {runner.cause} while it ran."
        return self._settled(control, Performed(Crashed(message)))

    def _settled(self, control: Control, performed: Performed) -> Performed:
        """Let the end of a runner stand, unless the job was settled before."""
        if control.may_be_acked and control.is_applied():
            control.committed()
        if control.is_settled is not None:
            performed.settled = control.is_settled
            if isinstance(performed.outcome, Crashed):
                performed.outcome = Succeeded()
        return performed

    def _drop(self, place: int, runner: Runner, patience: float) -> None:
        """Forget a runner; it is dead when this returns."""
        self._runners[place] = None
        if not runner.has_died.wait(patience):
            self._forker.kill(runner)
            runner.has_died.wait(STOP_SECONDS)
        runner.channel.close()


def _answer(control: Control, call: Call) -> Answer:
    try:
        return Answer(VERBS[call.verb](control, call.argument))
    except LeaseLost:
        return Answer(problem="lost")
    except WrongState:
        return Answer(problem="ended")
    except Exception as error:
        return Answer(problem=f"{call.verb}: {type(error).__name__}: {error}")


VERBS: dict[str, Callable[[Control, Any], Any]] = {
    "extend": lambda control, duration: control.extend(duration),
    "report": lambda control, progress: control.report(progress),
    "emit": lambda control, values: control.emit(values),
    "say": lambda control, word: control.say(error_of(word)),
    "acking": lambda control, packed: control.acking(unpack(packed)),
    "committed": lambda control, _: control.committed(),
    "is_applied": lambda control, _: control.is_applied(),
}

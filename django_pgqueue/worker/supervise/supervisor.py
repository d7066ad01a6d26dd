"""
Supervisor: the process that an operator starts. It starts children and watches them.

It has no connection between two waits, and no threads except those of the health
server, which use none while a child is forked; so a child inherits neither. When a
child dies it takes its jobs back at once and starts another one.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any

import psycopg

from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.claim.quarantine import Summons, served_suspects
from django_pgqueue.worker.lease.leases import Slots
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.recycling import Limits, Turn
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS
from django_pgqueue.worker.supervise.health import (
    EARLY_DEATHS_MAX,
    STOP_SIGNALS,
    Health,
    HealthPlace,
)
from django_pgqueue.worker.supervise.process import (
    EXIT_CLEAN,
    EXIT_LEFT_BEHIND,
    EXIT_RECYCLE,
    Process,
)
from django_pgqueue.worker.supervise.rescuer import Lost, Rescuer
from django_pgqueue.worker.tally import TallyPlace

logger = logging.getLogger("django_pgqueue.worker")

# A child that dies younger than this counts as one that could not start.
YOUNG_SECONDS = 2.0
RESTART_SECONDS_MAX = 30.0

# A start that comes to no end for so long hangs: in code of the project, or for a lock.
# One that cannot connect tries again, which counts anew.
START_SECONDS_MAX = 60.0

# After the grace, children get this long to write what they have and leave.
KILL_AFTER_SECONDS = 10.0

# What is left to take back after a forced stop is tried for this long.
LAST_RESCUE_SECONDS = 5.0

# How often the supervisor shows that it lives, where somebody asks.
BEAT_SECONDS = 1.0

# A process whose only job is past its hard timeout gets this long to end by itself; and
# how often it is looked whether there is one.
OWN_END_SECONDS = 5.0
LOOK_SECONDS = 2.0

HOSTNAME_CHARACTERS_MAX = 60

FORK = multiprocessing.get_context("fork")


@dataclass(slots=True)
class Child:
    """A running worker process."""

    place: int
    name: str
    process: Any
    slots: Slots
    started_at: float
    # Killed because its only job ignored its timeout.
    is_late: bool = False
    # Killed because it did not come to the end of its start.
    has_hung: bool = False

    @property
    def starts_since(self) -> float | None:
        """Since when it starts, by the monotonic clock; None: it has started."""
        return self.slots.hangs_since(self.started_at)


class Supervisor:
    """Keeps the asked-for number of children running until it is told to stop."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._health = None if options.health_port is None else Health(options)
        # Children that leave because of a limit do so one by one.
        self._turn = Turn() if options.limits else None
        self._children: dict[int, Child] = {}
        # Places without a child, and the monotonic time to start one.
        self._vacant = dict.fromkeys(range(options.processes), 0.0)
        # The places beside them of processes in which jobs run alone, and the earliest
        # time to start each again.
        places = range(options.processes, 2 * options.processes)
        self._quarantines = dict.fromkeys(places, 0.0)
        self._summons = Summons(FORK)
        self._young_deaths = dict.fromkeys(range(2 * options.processes), 0)
        # Places whose child has told the database what this code declares. The next
        # one does not: a newer deploy may have said something else meanwhile.
        self._has_declared: set[int] = set()
        self._link = Link(options.settings.database, name="pgqueue supervisor")
        self._rescuer = Rescuer(
            self._link,
            options.settings,
            on_crashed=self._expect_suspects,
        )
        self._signals = 0
        self._stop_started_at: float | None = None
        self._is_killed = False
        self._left_behind = False
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[0], False)
        os.set_blocking(self._pipe[1], False)
        is_under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        # From here on a stop is orderly, also before the first child runs.
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        if is_under_nohup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> int:
        """Run until stopped, or until everything is drained; return the status."""
        while True:
            self._follow_signals()
            self._follow_health()
            self._follow_summons()
            self._start_children()
            if not self._children and (
                self._stop_started_at is not None or not self._vacant
            ):
                if self._stop_started_at is None and self._leaves_suspects():
                    continue
                break
            self._wait()
            self._kill_late()
            self._kill_hanging()
            self._collect()
            self._rescuer.run()
        self._rescue_the_rest()
        if self._health is not None:
            self._health.close()
        return EXIT_LEFT_BEHIND if self._left_behind else EXIT_CLEAN

    @property
    def health_port(self) -> int | None:
        """The port of the health server; None: there is none."""
        return None if self._health is None else self._health.port

    def _follow_health(self) -> None:
        if self._health is not None:
            self._health.follow(
                is_stopping=self._stop_started_at is not None,
                early_deaths=self._young_deaths,
            )

    def _follow_summons(self) -> None:
        if self._summons.take():
            self._expect_suspects()

    def _expect_suspects(self) -> None:
        """
        See to it that somebody, or one more, runs what waits to run alone.

        Each of them calls the next one while more jobs wait than it has taken.
        """
        for place, at in self._quarantines.items():
            if place in self._vacant:
                return  # It is about to be started.
            if place not in self._children:
                self._vacant[place] = at
                return

    def _leaves_suspects(self) -> bool:
        """Whether a drained worker has left jobs that are to run alone."""
        try:
            with self._link.cursor() as cursor:
                is_left = bool(served_suspects(cursor, self._options.plan))
        except psycopg.Error as error:
            logger.error("failed     loop=supervisor error=%s", str(error).strip())
            return False
        finally:
            self._link.drop()
        if is_left:
            self._expect_suspects()
        return is_left

    def _start_children(self) -> None:
        if self._stop_started_at is not None:
            return
        now = time.monotonic()
        for place in [p for p, at in self._vacant.items() if at <= now]:
            del self._vacant[place]
            self._children[place] = self._start_child(place)

    def _start_child(self, place: int) -> Child:
        host = socket.gethostname()[:HOSTNAME_CHARACTERS_MAX]
        is_quarantine = place in self._quarantines
        shown = "alone" if is_quarantine else place
        name = f"{host}-{os.getpid()}.{shown}-{secrets.token_hex(3)}"
        slots = Slots(FORK, self._options.threads + self._options.async_slots)
        # It does not live long enough for a limit.
        options = self._options
        if is_quarantine:
            options = replace(options, limits=Limits())
        health_place = tally_place = None
        if self._health is not None:
            # Who asks after a worker's health asks for the processes that it keeps.
            if not is_quarantine:
                health_place = HealthPlace(self._health.board, place)
            if self._health.tallies is not None:
                tally_place = TallyPlace(self._health.tallies, place)
        child = Process(
            options,
            name,
            slots,
            health_place,
            self._turn,
            self._summons,
            declares=place not in self._has_declared and not is_quarantine,
            is_quarantine=is_quarantine,
            tally_place=tally_place,
        )
        process = FORK.Process(target=run_child, args=(child, self._health), name=name)
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal between the fork and the child's own handlers would be lost on ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        quiet = (
            contextlib.nullcontext() if self._health is None else self._health.quiet()
        )
        try:
            with quiet:
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        return Child(place, name, process, slots, time.monotonic())

    def _wait(self) -> None:
        """Sleep until a child dies, a signal comes, or something is due."""
        waits = [at - time.monotonic() for at in self._vacant.values()]
        rescue = self._rescuer.seconds_until_due()
        if rescue is not None:
            waits.append(rescue)
        if self._stop_started_at is not None:
            waits.append(self._kill_at() - time.monotonic())
        starts = [
            since
            for child in self._children.values()
            if not child.has_hung and (since := child.starts_since)
        ]
        waits += [since + START_SECONDS_MAX - time.monotonic() for since in starts]
        if self._options.threads == 1:
            waits.append(LOOK_SECONDS)
        sentinels = [child.process.sentinel for child in self._children.values()]
        if self._health is not None:
            waits.append(BEAT_SECONDS)
        timeout = max(min(waits), 0.0) if waits else None
        wait([*sentinels, self._pipe[0], self._summons.reader], timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe[0], 1024)

    def _kill_late(self) -> None:
        """
        Kill processes whose only thread's job does not end after its timeout.

        Such a process replaces itself; but not while the job keeps the interpreter's
        lock, as code in C may for as long as it likes.
        """
        if self._options.threads > 1:
            return
        seconds = HARD_GRACE_SECONDS + OWN_END_SECONDS
        for child in self._children.values():
            job_id = child.slots.late_job(0, seconds)
            if job_id is not None and not child.is_late:
                child.is_late = True
                logger.error(
                    "ignored    job=%d: it did not react to its timeout; its process "
                    "%d is killed",
                    job_id,
                    child.process.pid,
                )
                child.process.kill()

    def _kill_hanging(self) -> None:
        """Kill processes whose start does not end, so that others are tried."""
        until = time.monotonic() - START_SECONDS_MAX
        for child in self._children.values():
            since = child.starts_since
            if since is not None and since <= until and not child.has_hung:
                child.has_hung = True
                logger.error(
                    "hanging    worker=%s pid=%d: it has not started within %.0f s, so "
                    "it is killed and another one is tried",
                    child.name,
                    child.process.pid,
                    START_SECONDS_MAX,
                )
                child.process.kill()

    def _collect(self) -> None:
        for place, child in list(self._children.items()):
            if child.process.exitcode is None:
                continue
            child.process.join()
            del self._children[place]
            if self._health is not None and place not in self._quarantines:
                self._health.clear(place)
            self._after_exit(child, child.process.exitcode)

    def _after_exit(self, child: Child, status: int) -> None:
        # A job may end its process with any status: ours count when it says so, too.
        is_ours = child.slots.has_stopped
        if is_ours and status == EXIT_LEFT_BEHIND:
            self._left_behind = True
            # What it could neither settle nor hand back itself; a stop is no crash.
            self._rescuer.add(Lost(child.name, [], "Its worker stopped."))
        if not is_ours or status not in (EXIT_CLEAN, EXIT_LEFT_BEHIND):
            self._note_death(child, status)
        if is_ours and status == EXIT_CLEAN and self._options.drain:
            return  # Its place stays empty: nothing is due.
        if child.place in self._quarantines:
            # Whoever finds that jobs wait for it calls another one.
            at = self._quarantines[child.place] = self._restart_at(child)
            if not is_ours or status != EXIT_CLEAN:
                self._vacant[child.place] = at
            return
        self._vacant[child.place] = self._restart_at(child)

    def _note_death(self, child: Child, status: int) -> None:
        cause = f"signal {-status}" if status < 0 else f"exit status {status}"
        message = f"Its process {child.process.pid} ended with {cause} while it ran."
        is_recycled = child.slots.has_stopped and status == EXIT_RECYCLE
        if is_recycled:
            logger.info("recycled   worker=%s pid=%d", child.name, child.process.pid)
        else:
            logger.error(
                "died       worker=%s pid=%d cause=%r",
                child.name,
                child.process.pid,
                cause,
            )
        # A process that we ended ourselves crashed nobody's job.
        forced = self._is_killed or is_recycled
        running = [] if forced else child.slots.running()
        self._left_behind |= self._is_killed
        if child.is_late:
            pid = child.process.pid
            message = f"It did not react, so its process {pid} was killed."
        self._rescuer.add(Lost(child.name, running, message, is_late=child.is_late))

    def _restart_at(self, child: Child) -> float:
        now = time.monotonic()
        # A job that ends its process is no process that cannot start; how often it
        # may do so is limited by its crashes. Nor is one that has reached a limit.
        is_recycled = child.slots.has_stopped and child.process.exitcode == EXIT_RECYCLE
        is_old = now - child.started_at >= YOUNG_SECONDS and not child.has_hung
        if is_old or is_recycled:
            self._has_declared.add(child.place)
        if is_old or is_recycled or child.slots.running():
            self._young_deaths[child.place] = 0
            return now
        # To hang for a minute is no accident.
        self._young_deaths[child.place] += EARLY_DEATHS_MAX if child.has_hung else 1
        # The first early death is an accident; more of them are a pattern.
        deaths = self._young_deaths[child.place] - 1
        return now + (min(0.5 * 2**deaths, RESTART_SECONDS_MAX) if deaths else 0.0)

    def _on_signal(self, number: int, frame: Any) -> None:
        if number == signal.SIGQUIT:
            self._signals += 2
        elif number != signal.SIGHUP or not self._signals:
            # Both the kernel and the shell send a HUP when a terminal closes.
            self._signals += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe[1], b"!")

    def _follow_signals(self) -> None:
        if self._signals and self._stop_started_at is None:
            self._stop_started_at = time.monotonic()
            for child in self._children.values():
                child.process.terminate()
        late = self._stop_started_at is not None and time.monotonic() >= self._kill_at()
        if (self._signals > 1 or late) and not self._is_killed and self._children:
            self._is_killed = True
            logger.warning(
                "killed     processes=%d: %s",
                len(self._children),
                "the grace is over" if late else "told to leave at once",
            )
            for child in self._children.values():
                child.process.kill()

    def _kill_at(self) -> float:
        assert self._stop_started_at is not None
        if self._is_killed:
            return self._stop_started_at + 86_400.0
        grace = self._options.grace_seconds
        return self._stop_started_at + grace + KILL_AFTER_SECONDS

    def _rescue_the_rest(self) -> None:
        until = time.monotonic() + LAST_RESCUE_SECONDS
        while not self._rescuer.is_done and time.monotonic() < until:
            pause = self._rescuer.seconds_until_due() or 0.0
            wait([self._pipe[0]], min(pause, until - time.monotonic()))
            self._rescuer.run()


def run_child(process: Process, health: Health | None = None) -> None:
    """Be a worker process, which its parent has made; never returns."""
    # What is loaded by now stays. Without this the garbage collector walks over all of
    # it after every few hundred jobs, which takes as long as the jobs do.
    gc.freeze()
    if health is not None:
        health.leave_sockets()
    status = process.run()
    if process.options.settings.trace:
        from django_pgqueue.tasks import tracing

        tracing.flush()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Not sys.exit: a thread of a task that does not end must not hold the process.
    os._exit(status)

"""
Running: a pipeline job from its start to its end, with a row that says how far it is.

Spark works in a thread of its own, and another one beats: every two seconds it moves
the run's lease on, notes the progress and asks whether the run is to stop. The calling
thread watches both. A beat that fails is followed by the next one; a run that has lost
its row gives up, and so does one that could not move its lease on until that was over.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import psycopg

from django_pgqueue.exceptions import (
    PipelineBusy,
    PipelineStopped,
    SparkError,
    SparkOptionError,
)
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.redaction.values import redact
from django_pgqueue.spark.dsn import without_secrets
from django_pgqueue.spark.frames import error_text
from django_pgqueue.spark.run import Plan, Run, connect


class StopFlag:
    """Set by whoever wants a run to stop. Takes no lock, and cannot be waited for."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Let the run stop."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether the run is to stop."""
        return self._is_set


# What a run looks at.
Stoppable = StopFlag | Event


# Characters of an error that a run keeps; Java's traces have tens of thousands.
ERROR_CHARACTERS_MAX = 4_000

# What a stopped run may take to end, before its session is taken away from it; and
# then, before it is left behind.
STOP_SECONDS_MAX = 20.0

# What a process that has run a job ends with, but for 0: it has succeeded.
EXIT_FAILED, EXIT_BUSY, EXIT_STOPPED = 1, 4, 130

# Between two looks whether the run has ended, or was told to stop by a signal.
LOOK_SECONDS = 0.2

LOST = "Its lease ran out, and another run took its place."
AWAY = "Its lease ran out while it could not be moved on: the database was away."

# How long a beat waits for a lock on the run's row: it may be our own transaction's.
BEAT_LOCK_SECONDS_MAX = 1.0


# Locks: none. A beat that waits for longer is followed by another one; one whose
# process is frozen within keeps nobody from the run's row.
BEAT_LIMITS = """
SELECT set_config('lock_timeout', (%(lock)s * 1000)::int::text, true),
       set_config('statement_timeout', (%(statement)s * 1000)::int::text, true),
       set_config('idle_in_transaction_session_timeout',
                  (%(statement)s * 1000)::int::text, true)
"""


@dataclass(slots=True)
class Snapshot:
    """How far a run is."""

    phase: str = "running"
    rows_in: int = 0
    rows_out: int = 0
    tasks_done: int = 0
    tasks: int = 0
    rows_per_second: float = 0.0
    turns: int = 0
    ui_url: str | None = None
    notes: list[str] = field(default_factory=list)

    def stored(self) -> dict[str, Any]:
        """Return what the row keeps of it besides its rows."""
        return {
            "phase": self.phase,
            "tasks_done": self.tasks_done,
            "tasks": self.tasks,
            "rows_per_second": round(self.rows_per_second, 1),
            **({"turns": self.turns} if self.turns else {}),
            **({"notes": self.notes} if self.notes else {}),
        }


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: "succeeded", "failed", "cancelled" or "lost"; what it tells."""

    run: int
    state: str
    rows_in: int
    rows_out: int
    seconds: float
    error: str | None
    notes: Sequence[str] = ()

    @property
    def exit_status(self) -> int:
        """What a process ends with that has run it."""
        return {"succeeded": 0, "cancelled": EXIT_STOPPED}.get(self.state, EXIT_FAILED)


def run_job(
    plan: Plan,
    *,
    stop: Stoppable | None = None,
    tell: Callable[[Snapshot], None] = lambda snapshot: None,
    beat_seconds: float = pipelines.BEAT_SECONDS,
    lease_seconds: float = pipelines.LEASE_SECONDS,
) -> Ended:
    """
    Run a pipeline job to its end, whatever that is; the row says the same.

    Args:
        plan: What is run.
        stop: Set by whoever wants it to stop, such as the handler of a signal.
        tell: Called with the progress, several times a second.
        beat_seconds: Between two beats.
        lease_seconds: Without a beat, after which the run counts as dead.

    Raises:
        PipelineBusy: Another run is live that needs the same; nothing was done.
        SparkOptionError: The job has refused its options before it asked for Spark;
            the run has failed with that.
        psycopg.Error: The database cannot be used: nothing was done, or the end of the
            run could not be noted, and it is lost when its lease runs out.
    """
    places = () if plan.job.places is None else plan.job.places(plan.options)
    with connect(plan.dsn) as connection, connection.transaction():
        started = pipelines.start(
            connection.cursor(),
            plan.job.name,
            options=_kept(plan),
            by=plan.by,
            queue_job=plan.queue_job,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            places=places,
            lease_seconds=lease_seconds,
        )
    if isinstance(started, pipelines.Live):
        raise PipelineBusy(
            plan.job.name, started.id, started.hostname, started.pid, started.place
        )
    work = _Work(plan, started, lease_seconds)
    ended = work.watch(stop or StopFlag(), tell, beat_seconds)
    if ended.state == "failed" and work.refused is not None:
        raise work.refused
    return ended


def _kept(plan: Plan) -> Any:
    """Return the options as the run's row has them."""
    hidden = {name: PLACEHOLDER for name in plan.job.hides if plan.options[name]}
    return redact({**plan.options, **hidden}, plan.patterns)


class _Work:
    """One run, seen from the thread that watches it."""

    def __init__(
        self, plan: Plan, started: pipelines.Started, lease_seconds: float
    ) -> None:
        self._plan = plan
        self._run = Run(plan, started, lease_seconds, self._opened)
        self._lease_seconds = lease_seconds
        self._snapshot = Snapshot(notes=self._run.notes)
        # Of Spark's tasks; None: there is no session, or it is one of Spark Connect.
        self._tracker: Any = None
        self._error: BaseException | None = None
        # Why the job did not even ask for Spark.
        self.refused: SparkOptionError | None = None
        # How the run was lost; None: it was not.
        self._lost: str | None = None
        self._began = time.monotonic()
        self._read_since: float | None = None
        # Of the thread that beats: when the lease was moved on last, and when the beat
        # began that is under way.
        self._beaten_at = self._began
        self._beat_began: float | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._has_ended = threading.Event()

    def watch(
        self,
        stop: Stoppable,
        tell: Callable[[Snapshot], None],
        beat_seconds: float,
    ) -> Ended:
        """Start the work, beat until it ends, and note how."""
        thread = threading.Thread(target=self._work, name="pipeline", daemon=True)
        beats = threading.Thread(
            target=self._beats, args=(stop, beat_seconds), name="beats", daemon=True
        )
        thread.start()
        beats.start()
        stopped_at: float | None = None
        try:
            while thread.is_alive():
                thread.join(LOOK_SECONDS)
                now = time.monotonic()
                self._look()
                tell(self._snapshot)
                if self._is_overdue(now):
                    self._lost = self._lost or AWAY
                    stop.set()
                if stop.is_set():
                    stopped_at = stopped_at or now
                    if not self._cancel(now - stopped_at):
                        break
            self._look()
            tell(self._snapshot)
            if thread.is_alive():
                self._error = PipelineStopped("It did not end, and is left behind.")
        finally:
            self._has_ended.set()
        # A beat that is under way would put the row back behind its end.
        beats.join(BEAT_LOCK_SECONDS_MAX)
        return self._finish(stop.is_set())

    # The thread that works.

    def _work(self) -> None:
        run = self._run
        try:
            try:
                run.check()
                self._do(run)
            finally:
                self._tracker = None
                run.close()
        except BaseException as error:
            self._error = error
            if isinstance(error, SparkOptionError) and self._read_since is None:
                self.refused = error

    def _opened(self, session: Any) -> None:
        with suppress(Exception):  # Spark Connect has no such counters.
            self._snapshot.ui_url = session.sparkContext.uiWebUrl
            self._tracker = session.sparkContext.statusTracker()
        self._read_since = time.monotonic()

    def _do(self, run: Run) -> None:
        job = self._plan.job
        written = job.function(run, **self._plan.options)
        if written is not None and type(written) is not int:
            raise SparkError(
                f"The pipeline job {job.name} returned {written!r:.80}; it must return "
                f"how many rows it has written, or None."
            )
        run.check()
        if self._plan.read_options and not run.has_read:
            told = " and ".join(self._plan.read_options)
            run.note(f"{told} changed nothing: {job.name} reads no table by them.")
        if written is not None:
            run.rows_out = written

    # The thread that watches.

    def _look(self) -> None:
        snapshot = self._snapshot
        snapshot.rows_in, snapshot.rows_out = self._run.rows_in, self._run.rows_out
        snapshot.turns = self._run.turns
        seconds = time.monotonic() - (self._read_since or self._began)
        snapshot.rows_per_second = snapshot.rows_in / max(seconds, 0.001)
        if self._tracker is not None:
            with suppress(Exception):  # The session is being stopped.
                active = map(
                    self._tracker.getStageInfo, self._tracker.getActiveStageIds()
                )
                stages = [stage for stage in active if stage is not None]
                snapshot.tasks_done = sum(stage.numCompletedTasks for stage in stages)
                snapshot.tasks = sum(stage.numTasks for stage in stages)

    def _is_overdue(self, now: float) -> bool:
        """Whether a beat hangs for so long that the lease is over."""
        began = self._beat_began
        return began is not None and now - began > self._lease_seconds > 0

    def _cancel(self, seconds: float) -> bool:
        """Stop the work; False: it does not end, and is left behind."""
        is_patient = self._lost is None and seconds < STOP_SECONDS_MAX
        session = self._run.stop(is_patient=is_patient)
        if session is not None:
            with suppress(Exception):
                # Again and again: a job of Spark may begin after the one that ended.
                _cancel_all(session)
                if seconds > STOP_SECONDS_MAX:
                    session.stop()
        return seconds < 2 * STOP_SECONDS_MAX

    # The thread that beats.

    def _beats(self, stop: Stoppable, beat_seconds: float) -> None:
        """Beat until the run ends, or is to stop."""
        try:
            while not self._has_ended.is_set():
                if self._beat():
                    # The watching thread ends the work; it waits for no beat.
                    stop.set()
                    if self._lost is not None:
                        return
                self._has_ended.wait(beat_seconds)
        finally:
            if self._connection is not None:
                self._connection.close()

    def _beat(self) -> bool:
        """Move the lease on; True: the run is to stop."""
        began = self._beat_began = time.monotonic()
        try:
            stops = self._move_lease()
        except psycopg.errors.LockNotAvailable:
            # Whoever asked the run to stop has the row for a moment; or the run has,
            # and then nobody takes its place.
            if not self._run.is_held:
                return self._gives_up()
        except psycopg.Error:
            # The next beat has a connection of its own.
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            return self._gives_up()
        else:
            if stops is None:
                self._lost = LOST
            if stops is not False:
                return True
        finally:
            self._beat_began = None
        self._beaten_at = began
        return False

    def _gives_up(self) -> bool:
        """Whether the lease is over: then another run may have begun."""
        if time.monotonic() - self._beaten_at <= self._lease_seconds:
            return False
        self._lost = AWAY
        return True

    def _move_lease(self) -> bool | None:
        if self._connection is None:
            self._connection = connect(self._plan.dsn)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            limit = max(self._lease_seconds / 2, BEAT_LOCK_SECONDS_MAX)
            limits = {"lock": BEAT_LOCK_SECONDS_MAX, "statement": limit}
            cursor.execute(BEAT_LIMITS, limits)
            return pipelines.beat(
                cursor,
                self._run.id,
                lease_seconds=self._lease_seconds,
                **self._reached(),
            )

    def _reached(self) -> dict[str, Any]:
        """Return how far the run is, as its row has it."""
        snapshot = self._snapshot
        return {
            "rows_in": snapshot.rows_in,
            "rows_out": snapshot.rows_out,
            "progress": snapshot.stored(),
            "ui_url": snapshot.ui_url,
        }

    def _finish(self, is_stopped: bool) -> Ended:
        snapshot = self._snapshot
        error = None if self._error is None else self._error_text(self._error)
        state = "succeeded" if self._error is None else "failed"
        if self._lost is not None:
            state, error = "lost", self._lost
        elif self._error is not None and is_stopped:
            state, error = "cancelled", None
        snapshot.phase = state
        if self._lost is None:
            with connect(self._plan.dsn) as connection:
                cursor, reached = connection.cursor(), self._reached()
                is_ours = pipelines.finish(
                    cursor, self._run.id, state=state, error=error, **reached
                )
            if not is_ours:
                state, error = "lost", LOST
        return Ended(
            self._run.id,
            state,
            snapshot.rows_in,
            snapshot.rows_out,
            time.monotonic() - self._began,
            error,
            tuple(snapshot.notes),
        )

    def _error_text(self, error: BaseException) -> str:
        """Return what an error says, without secrets."""
        text = error_text(error)
        if isinstance(error, psycopg.Error):
            text = without_secrets(text, self._plan.dsn)
        text = redact_text(text.replace("\x00", "\\x00"), self._plan.patterns)
        if len(text) > ERROR_CHARACTERS_MAX:
            text = f"{text[:ERROR_CHARACTERS_MAX]} …"
        return text.encode(errors="backslashreplace").decode()


def _cancel_all(session: Any) -> None:
    """Cancel what a session does, in this process or on a server of Spark Connect."""
    context = getattr(session, "sparkContext", None)
    if context is None:
        session.interruptAll()
    else:
        context.cancelAllJobs()


def options_text(options: Mapping[str, Any]) -> str:
    """Return options as a person reads them: days=7 since=2d."""
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in options.items()
        if value is not None
    )

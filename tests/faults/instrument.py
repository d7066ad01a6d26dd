"""
Instrument: what a run adds to the processes that it starts.

Signals of the package become lines of the ledger. Where the run asks for it, points
between the hops of a job's life kill their process; the package knows nothing of it.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections

from django_pgqueue import signals
from tests.faults import ledger

# How often a process may pass its point before it dies there.
PASSES = (1, 6)

# Whoever found that every death has somebody looks again, since that one may leave.
DRAW_AGAIN_SECONDS = 0.5

_running = threading.local()


def delivery_of(job_id: int) -> int:
    """Return the number of the delivery that this thread runs."""
    job, delivery = _running.lease
    assert job == job_id, f"job {job_id} runs in the place of {job}"
    return int(delivery)


def _note_started(sender: Any, job: Any, **more: Any) -> None:
    _running.lease = (job.id, job.delivery)


def _note_outcome(kind: str, /, *, job: Any, **more: Any) -> None:
    ledger.write("tasks", "told", kind=kind, job=job.id, delivery=job.delivery)


def _note_stale(
    sender: Any, job_id: int, delivery: int, kind: str, **more: Any
) -> None:
    ledger.write("tasks", "stale", kind=kind, job=job_id, delivery=delivery)


def _note_worker(sender: Any, worker: str, **more: Any) -> None:
    ledger.write("workers", "worker", name=worker)
    name_connections()


def name_connections() -> None:
    """Give Django's connections of this process a name that tells whose they are."""
    options = connections.settings["default"].setdefault("OPTIONS", {})
    options["application_name"] = f"faults {os.getpid()}"


def died(folder: Path) -> int:
    """Return how many of the planned deaths of a run were died."""
    return len(list(folder.glob("died.*")))


class Points:
    """Where this process dies: one point, drawn when it first passes any."""

    def __init__(self, folder: Path, seed: int, wanted: dict[str, int]) -> None:
        self._folder = folder
        self._seed = seed
        self._wanted = wanted
        self._lock = threading.Lock()
        self._pid = 0
        self._point: str | None = None
        self._life = 0
        self._passes = 0
        self._drawn_at = 0.0

    def reach(self, point: str) -> None:
        """Die here, if this is the point and it was passed often enough."""
        if point not in self._wanted:
            # A process that passes none of these would take a death and never die it.
            return
        with self._lock:
            is_new = self._pid != os.getpid()
            if is_new or (self._point is None and self._may_draw_again()):
                self._draw()
            if point != self._point:
                return
            self._passes -= 1
            if self._passes > 0:
                return
            self._point = None  # One thread is enough.
            self._died(self._life).touch()
        ledger.write("faults", "fault", kind="kill", what=point, pids=[os.getpid()])
        os.kill(os.getpid(), signal.SIGKILL)

    def _may_draw_again(self) -> bool:
        return time.monotonic() >= self._drawn_at + DRAW_AGAIN_SECONDS

    def _draw(self) -> None:
        """Take one of the deaths that are still wanted."""
        self._pid, self._point = os.getpid(), None
        self._drawn_at = time.monotonic()
        order = [p for p, count in self._wanted.items() for _ in range(count)]
        random.Random(self._seed).shuffle(order)
        for life, point in enumerate(order):
            if self._take(life):
                self._life, self._point = life, point
                self._passes = random.Random(f"{self._seed}:{life}").randint(*PASSES)
                return

    def _take(self, life: int) -> bool:
        """Take a death, if nobody has, or who did has ended in another way."""
        turn = 0
        while True:
            path = self._folder / f"life.{life}.{turn}"
            try:
                with path.open("x") as file:
                    file.write(str(self._pid))
                return True
            except FileExistsError:
                taker = path.read_text()
            # Without a text: it is just being written.
            is_alive = not taker or Path(f"/proc/{taker}").exists()
            if is_alive or self._died(life).exists():
                return False
            turn += 1

    def _died(self, life: int) -> Path:
        return self._folder / f"died.{life}"


_points: Points | None = None


def pass_point(point: str) -> None:
    """Say that this process passes a point; it may not come out of it."""
    if _points is not None:
        _points.reach(point)


def _around(
    function: Callable[..., Any],
    before: str | None,
    after: str | None,
    *,
    always: bool = False,
) -> Callable[..., Any]:
    """Return *function* with points before it, and behind it where it did something."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            pass_point(before)
        result = function(*args, **kwargs)
        if after is not None and (result or always):
            pass_point(after)
        return result

    return wrapped


def _set_points() -> None:
    from django_pgqueue.queues import claim, lanes, suspects
    from django_pgqueue.schedules import issue, ticks
    from django_pgqueue.tasks import atomic
    from django_pgqueue.worker.chores import scheduler
    from django_pgqueue.worker.run import executor
    from django_pgqueue.worker.run.control import Control
    from django_pgqueue.worker.settle import settler

    for verb in ("claim", "claim_from_floors"):
        setattr(claim, verb, _around(getattr(claim, verb), None, "claimed"))
    suspects.claim_suspects = _around(suspects.claim_suspects, None, "claimed")
    executor.attempt = _around(executor.attempt, "starting", "performed")
    for kind, write in list(settler.KINDS.items()):
        settler.KINDS[kind] = _around(write, f"{kind}.before", f"{kind}.after")
    # An atomic job: its ack stands in its transaction; and that is committed.
    ack_within = _around(Control.ack_within, None, "atomic.acked", always=True)
    Control.ack_within = ack_within
    atomic._run_hooks = _around(atomic._run_hooks, "atomic.committed", None)
    lanes.promote = _around(lanes.promote, "promote.before", "promote.after")
    # A tick: each statement of its transaction, before its commit, and after it.
    ticks.advance = _around(ticks.advance, None, "tick.advanced")
    ticks.insert = _around(ticks.insert, None, "tick.inserted")
    issue.enqueue = _around(issue.enqueue, None, "tick.enqueued")
    scheduler.issue = _around(scheduler.issue, None, "tick.issued")
    scheduler.wake_for = _around(scheduler.wake_for, "tick.committed", None)


def _let_all_schedule() -> None:
    """Let every worker issue ticks, and not the leader alone."""
    from django_pgqueue.worker.chores.scheduler import Scheduler

    Scheduler.is_at_work = property(lambda self: True)


class FaultsConfig(AppConfig):
    """Notes what happens; children inherit it through the fork."""

    name = "tests.faults"
    label = "faults"

    def ready(self) -> None:
        """Listen, and set the points that the run asks for."""
        signals.job_started.connect(_note_started)
        for kind, signal_ in (
            ("ack", signals.job_succeeded),
            ("retry", signals.job_retried),
            ("dead", signals.job_dead),
        ):
            signal_.connect(partial(_note_outcome, kind), weak=False)
        signals.settle_stale.connect(_note_stale)
        signals.worker_started.connect(_note_worker)
        told = settings.FAULTS
        if told.get("all_schedule"):
            _let_all_schedule()
        if told["points"]:
            global _points  # noqa: PLW0603  # Of a process that serves one run.
            folder = Path(os.environ[ledger.FOLDER])
            _points = Points(folder, told["seed"], told["points"])
            _set_points()

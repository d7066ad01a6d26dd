"""
Inline: run jobs in this thread, connection and transaction, as a worker would.

For tests: PGQUEUE["MODE"] = "immediate", and what django_pgqueue.testing makes of it.
The rows, the statements, the outcomes and the signals are those of a worker. There is
no process to lose, so nothing here renews a lease, enforces a timeout or settles again.
"""

from __future__ import annotations

import functools
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from psycopg.pq import TransactionStatus

from django_pgqueue import telemetry
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres.apart import make_apart
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.postgres.server import installation
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.claim_one import claim_one
from django_pgqueue.queues.gather import gather
from django_pgqueue.queues.lanes import promote_lanes_of
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.accumulate import Accumulate
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.outcome import Cancelled, Performed
from django_pgqueue.tasks.perform import Guard, attempt, unguarded
from django_pgqueue.tasks.prepare import prepare, refuse
from django_pgqueue.tasks.raised import Cancel, RetryLater, Snooze
from django_pgqueue.tasks.settlement import (
    WRITES,
    ended,
    is_noted,
    kind_of,
    tell,
    write,
    write_last,
)

logger = logging.getLogger("django_pgqueue.inline")

LEASE = timedelta(minutes=5)

# A task that enqueues itself would run for ever.
INLINE_JOBS_MAX = 10_000

# Called before a job is claimed, while its row still is as it was enqueued.
before_claim: list[Callable[[], None]] = []

# Jobs that wait for the one that is running in this thread; None: none is running.
_waiting: ContextVar[deque[int] | None] = ContextVar("waiting", default=None)

# Those of them that are steps of a workflow: their ends let others start.
_steps: set[int] = set()

# Whether delay() raises what its job failed with.
_raises: ContextVar[bool] = ContextVar("raises", default=False)


@dataclass(frozen=True, slots=True)
class Run:
    """One delivery of a job that ran here, and how it ended."""

    job: Claimed
    performed: Performed
    # Of a task with accumulate: the other calls of the same run.
    others: tuple[Run, ...] = ()

    @property
    def failure(self) -> BaseException | None:
        """What the attempt failed with; None for Snooze, RetryLater and Cancel."""
        error = self.performed.error
        return None if isinstance(error, (Snooze, RetryLater, Cancel)) else error


class Control(JobControl):
    """What a task's context works on, where no worker holds the lease."""

    __slots__ = ("_job", "others", "worker")

    def __init__(self, job: Claimed, worker: str) -> None:
        super().__init__()
        self.others: list[tuple[Claimed, Performed]] = []
        self._job = job
        self.worker = worker

    def ack_within(self, cursor: Cursor, performed: Performed) -> bool | None:
        """Write the ack of an atomic task in the task's own transaction."""
        performed.emitted = self.emitted
        write_last(cursor, [(self._job, performed)], worker=self.worker)
        kind = kind_of(performed)
        if not _write(kind, self._job, performed, self.worker)[0]:
            raise LeaseLost(self._job.id, self._job.delivery)
        return True


def run_enqueued(ids: Sequence[int]) -> None:
    """
    Run jobs that were just stored, for PGQUEUE["MODE"] = "immediate".

    A job that a running job enqueues starts when that one has ended: depth does not
    grow, however long the chain. What is not due, or in a paused queue, stays stored.

    Raises:
        RuntimeError: One delay() led to more than INLINE_JOBS_MAX jobs.
    """
    waiting = _waiting.get()
    if waiting is not None:
        waiting.extend(ids)
        return
    with collecting() as waiting:
        waiting.extend(ids)
        run_waiting(waiting)


def run_steps(step: int) -> None:
    """Run the steps of a workflow that have started, likewise: of that of *step*."""
    from django_pgqueue.queues.workflows import started_beside

    with connections[get_settings().database].cursor() as cursor:
        started = started_beside(cursor, [step])
    new = [job_id for job_id in started if job_id not in _steps]
    _steps.discard(step)
    _steps.update(new)
    run_enqueued(new)


def run_waiting(waiting: deque[int]) -> None:
    """Run the jobs of *waiting*, also those that they add to it."""
    ran = 0
    while waiting:
        if ran >= INLINE_JOBS_MAX:
            raise RuntimeError(
                f"One delay() in immediate mode ran {INLINE_JOBS_MAX:,} jobs and there "
                f"are more: does a task enqueue itself?"
            )
        run = run_job(waiting.popleft(), worker="immediate")
        ran += run is not None
        if run is not None and run.job.id in _steps:
            run_steps(run.job.id)
        if run is not None and _raises.get() and run.failure is not None:
            raise run.failure


@contextmanager
def collecting() -> Iterator[deque[int]]:
    """Hold back the jobs that immediate mode would run; they come to the deque."""
    waiting: deque[int] = deque()
    token = _waiting.set(waiting)
    try:
        yield waiting
    finally:
        _waiting.reset(token)


@contextmanager
def raising(raise_errors: bool) -> Iterator[None]:
    """Decide for a block whether delay() raises what its job failed with."""
    token = _raises.set(raise_errors)
    try:
        yield
    finally:
        _raises.reset(token)


def run_job(job_id: int, *, worker: str) -> Run | None:
    """Claim one job, run it and settle it; None: it is not due, or not there."""
    job = claim_job(job_id, worker=worker)
    return None if job is None else run_claimed(job, worker=worker)


def claim_job(job_id: int, *, worker: str) -> Claimed | None:
    """Claim one job; None: it is not due, or not there."""
    about_to_claim()
    with connections[get_settings().database].cursor() as cursor:
        job = claim_one(cursor, job_id, worker=worker, lease=LEASE)
        if job is None and promote_lanes_of(cursor, [job_id]):
            # Its turn has come, then.
            job = claim_one(cursor, job_id, worker=worker, lease=LEASE)
        return job


def about_to_claim() -> None:
    """Call those who want to see rows as they were enqueued."""
    for look in before_claim:
        look()


def deliver(
    job: Claimed,
    control: Control,
    guard: Guard = unguarded,
    others: Callable[[Accumulate], list[Claimed]] | None = None,
) -> Performed:
    """
    Run a job, and say what becomes of it; nothing is settled but an atomic task.

    Args:
        job: As it was claimed.
        control: What the task's context works on.
        guard: Calls the task.
        others: Claims the other calls of the run, of a task with accumulate; what
            becomes of them is in ``control.others``. By default there are none.

    Raises:
        KeyboardInterrupt: Ctrl+C in a test run is meant for the test.
    """
    settings = get_settings()
    performed = refuse(job, settings)
    if performed is not None:
        return performed
    with connections[settings.database].cursor() as cursor:
        uuid = installation(cursor)
    with _as_without_transaction():
        prepared = prepare(job, settings)
        if isinstance(prepared, Performed):
            return prepared
        found: list[Claimed] = []
        if prepared.options.accumulate is not None and others is not None:
            found = others(prepared.options.accumulate)
        performed, ends = attempt(
            job,
            prepared,
            settings,
            installation=uuid,
            control=control,
            guard=guard,
            others=found,
            to=telemetry.TEST,
        )
        control.others = list(zip(found, ends, strict=True))
    if isinstance(performed.error, KeyboardInterrupt):
        raise performed.error
    return performed


def run_claimed(job: Claimed, *, worker: str) -> Run:
    """Run a job that *worker* has claimed, and settle it."""
    control = Control(job, worker)
    performed = deliver(job, control, others=functools.partial(_gather, job, worker))
    _store_last(job, performed, control)
    for other, end in control.others:
        settle_job(other, end, worker=worker)
    settle_job(job, performed, worker=worker, control=control)
    return Run(job, performed, tuple(Run(*other) for other in control.others))


def _gather(job: Claimed, worker: str, accumulate: Accumulate) -> list[Claimed]:
    """Claim the other calls of the run that *job* leads."""
    with connections[get_settings().database].cursor() as cursor:
        return gather(
            cursor,
            job,
            within=accumulate.window,
            worker=worker,
            limit=accumulate.size - 1,
            lease=LEASE,
        )


def _store_last(job: Claimed, performed: Performed, control: Control) -> None:
    """Write what the job has said, unless it is written, or rolled back."""
    if performed.settled:
        return
    if control.progress is not None:
        performed.progress = json.dumps(dict(control.progress))
    performed.emitted = control.emitted
    with connections[get_settings().database].cursor() as cursor:
        write_last(cursor, [(job, performed)], worker=control.worker)


@contextmanager
def _as_without_transaction() -> Iterator[None]:
    """Let a task run inside a test's transactions as it would outside of them."""
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(_savepoint(connection))
        yield


@contextmanager
def _savepoint(connection: Any) -> Iterator[None]:
    """
    Undo what breaks the transaction, and run what waits for its commit.

    A statement that fails breaks an open transaction; a worker has none. So there is a
    savepoint to go back to, which is used for that alone: what the task wrote before
    an error of another kind stays, as it does in a worker.
    """
    hooks = len(connection.run_on_commit)
    savepoint = connection.savepoint()
    yield
    if _is_broken(connection.connection):
        connection.savepoint_rollback(savepoint)
    else:
        connection.savepoint_commit(savepoint)
    connection.needs_rollback = False
    # One by one: a hook may register another.
    while len(connection.run_on_commit) > hooks:
        _, hook, is_robust = connection.run_on_commit.pop(hooks)
        try:
            hook()
        except Exception:
            if not is_robust:
                raise
            logger.exception("an on_commit hook failed")


def _is_broken(raw: Any) -> bool:
    # Another engine than psycopg, on another alias, has no broken transactions.
    info = getattr(raw, "info", None)
    return info is not None and info.transaction_status == TransactionStatus.INERROR


def settle_job(
    job: Claimed,
    performed: Performed,
    *,
    worker: str,
    control: Control | None = None,
) -> None:
    """
    Write what becomes of a job, and tell it; what a receiver raises comes out.

    Args:
        job: As it was claimed.
        performed: How it ended.
        worker: Who has its lease.
        control: What its context worked on. If the task has said there how it ends,
            that is written first, and then noted what came after it, as in a worker.
    """
    has_word = control is not None and control.has_word
    if performed.settled is False:
        _tell_stale(job, "ack")
    elif performed.settled:
        tell(job, performed, to=telemetry.TEST)
    elif control is not None and has_word:
        word = Performed(performed.outcome, control.word)
        word.leaves_no_trace = performed.leaves_no_trace
        _settle(job, word, worker)
        performed.outcome, performed.settled = word.outcome, True
    else:
        _settle(job, performed, worker)
        return
    if performed.settled and is_noted(performed, has_word=has_word):
        _write("note", job, performed, worker)


def _settle(job: Claimed, performed: Performed, worker: str) -> None:
    kind = kind_of(performed)
    is_written, holder = _write(kind, job, performed, worker)
    if holder is not None:
        performed.outcome = Cancelled()
    if is_written:
        tell(job, performed, holder=holder, to=telemetry.TEST)
    else:
        # The task itself has deleted its row, or let somebody else have it.
        _tell_stale(job, kind)


def _tell_stale(job: Claimed, kind: str) -> None:
    telemetry.stale(registry.tasks.get(job.task), job, kind=kind, to=telemetry.TEST)


def _write(
    kind: str, job: Claimed, performed: Performed, worker: str
) -> tuple[bool, int | None]:
    """Return whether the row was ours, and which job has taken its dedup key."""
    row = ended(job, performed, worker=worker, waited=performed.ran_seconds or 0.0)
    alias = get_settings().database

    @contextmanager
    def cursor() -> Iterator[Any]:
        with transaction.atomic(using=alias), connections[alias].cursor() as opened:
            yield opened

    def make_day() -> bool:
        made = make_apart(alias, ARCHIVE.make)
        # A test's clock holds in the test's connection alone.
        with cursor() as opened:
            return bool(ARCHIVE.make(opened) or made)

    written = write(
        WRITES[kind], [row], worker=worker, cursor=cursor, make_day=make_day
    )
    return bool(written), row.superseded_by

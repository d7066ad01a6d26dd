"""
What users' own test suites need, on their real database.

    from django_pgqueue.testing import capture, drain

    class CheckoutTests(TestCase):                 # a plain TestCase is enough
        def test_mail(self):
            with capture() as jobs:
                checkout(cart)
            self.assertEqual(["shop.tasks.send_receipt"], [job.task for job in jobs])
            drain()
            self.assertEqual(1, len(mail.outbox))

Everything runs in the test's own connection and thread, so that a TestCase rolls it
back. The statements are those of the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from django.db import DataError, IntegrityError, connections, transaction
from psycopg.pq import TransactionStatus

from django_pgqueue import signals
from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.models import Job
from django_pgqueue.postgres.server import installation
from django_pgqueue.queues import claim, settle
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.partitions import make_partitions
from django_pgqueue.tasks.outcome import Expired, GaveUp, Retried
from django_pgqueue.tasks.perform import (
    Performed,
    Prepared,
    ended,
    perform,
    prepare,
    refuse,
)
from django_pgqueue.tasks.registry import find_sender

logger = logging.getLogger("django_pgqueue.testing")

WORKER = "drain"
LEASE = timedelta(minutes=5)

# A task that enqueues itself would drain for ever.
DRAIN_JOBS_MAX = 10_000


@contextmanager
def capture() -> Iterator[list[Job]]:
    """
    Collect the jobs that are enqueued inside the block.

    Yields:
        A list that is filled when the block ends, in the order of the enqueues: a Job
        each, with id, task, queue, args, kwargs, priority, run_after, headers. What
        rolled back inside the block is not in it.
    """
    ids: list[int] = []
    jobs: list[Job] = []

    def note(job_id: int, **fields: Any) -> None:
        ids.append(job_id)

    signals.job_enqueued.connect(note, weak=False)
    try:
        yield jobs
    finally:
        signals.job_enqueued.disconnect(note)
    rows = Job.objects.using(get_settings().database).in_bulk(ids)
    jobs.extend(rows[job_id] for job_id in ids if job_id in rows)


def drain(queue: str | None = None) -> int:
    """
    Run every due job in this thread, also those that jobs enqueue; return how many.

    A job that fails is settled by its policy, as a worker does it: its next attempt
    is due later, and is not waited for. What a task registers with on_commit runs
    after it, although a TestCase never commits.

    Args:
        queue: Only this queue; None: all.

    Raises:
        RuntimeError: More than 10,000 jobs ran: a task enqueues itself.
    """
    settings = get_settings()
    connection = connections[settings.database]
    ran = 0
    while True:
        with connection.cursor() as cursor:
            names = [queue] if queue else _queue_names(cursor)
            jobs = claim.claim(
                cursor, queues=names, worker=WORKER, limit=1, lease=LEASE
            )
        if not jobs:
            return ran
        ran += 1
        if ran > DRAIN_JOBS_MAX:
            raise RuntimeError(
                f"drain() ran {DRAIN_JOBS_MAX:,} jobs and there are more: does "
                f"{jobs[0].task} enqueue itself?"
            )
        _run(connection, jobs[0], settings)


def _queue_names(cursor: Any) -> list[str]:
    return [known.name for known in claim.known_queues(cursor) if not known.is_paused]


def _run(connection: Any, job: Claimed, settings: Settings) -> None:
    performed = refuse(job, settings)
    if performed is None:
        with connection.cursor() as cursor:
            uuid = installation(cursor)
        with _as_without_transaction():
            prepared = prepare(job, settings)
            performed = (
                prepared
                if isinstance(prepared, Performed)
                else _perform(job, prepared, settings, uuid)
            )
    _settle(connection, job, performed)
    _tell(job, performed)


def _perform(
    job: Claimed, prepared: Prepared, settings: Settings, uuid: str
) -> Performed:
    signals.job_started.send(sender=prepared.task, job=job)
    performed = perform(job, prepared, settings, installation=uuid)
    if isinstance(performed.error, KeyboardInterrupt):
        # Ctrl+C in a test run is meant for the test.
        raise performed.error
    return performed


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


def _settle(connection: Any, job: Claimed, performed: Performed) -> None:
    row = ended(job, performed, worker=WORKER, waited=performed.ran_seconds or 0.0)
    outcome = performed.outcome
    write = settle.ack
    if isinstance(outcome, Retried):
        write = settle.retry
    elif isinstance(outcome, GaveUp):
        write = settle.dead_letter
    elif isinstance(outcome, Expired):
        write = settle.expire
    try:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            write(cursor, worker=WORKER, ended=[row])
    except (DataError, IntegrityError):
        # No partition for today: as in the worker's settler.
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            if not make_partitions(cursor):
                raise
            write(cursor, worker=WORKER, ended=[row])


def _tell(job: Claimed, performed: Performed) -> None:
    """Send the signals that a worker sends; a receiver's exception is the test's."""
    outcome, error = performed.outcome, performed.error
    if isinstance(outcome, Retried):
        signals.job_retried.send(
            sender=find_sender(job.task),
            job=job,
            error=error,
            delay_seconds=outcome.delay.total_seconds(),
        )
    elif isinstance(outcome, GaveUp):
        signals.job_dead.send(
            sender=find_sender(job.task), job=job, reason=outcome.reason, error=error
        )
    elif not isinstance(outcome, Expired):
        signals.job_succeeded.send(
            sender=find_sender(job.task),
            job=job,
            ran_seconds=performed.ran_seconds or 0.0,
        )

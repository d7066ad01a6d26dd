"""
Atomic: a task and its ack in one transaction, so that its writes happen exactly once.

    BEGIN                        READ COMMITTED, whatever the role's default is
      the task, with its middleware
      the fenced ack             no row: the lease was lost, so all of it rolls back
    COMMIT                       no answer: looked up, not assumed
    what the task registered with on_commit

Until the ack, no row of the queue is locked, so heartbeats and cancels go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from psycopg import IsolationLevel
from psycopg.errors import CheckViolation
from psycopg.pq import TransactionStatus

from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres import session
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.outcome import Retried

if TYPE_CHECKING:
    from django_pgqueue.tasks.outcome import Performed

logger = logging.getLogger("django_pgqueue.worker")

# When the database could not even begin: the task did not run, so it costs no attempt.
BEGIN_AGAIN = timedelta(seconds=5)

# How often the archive's partitions are looked at from here. An ack that finds none
# would break the task's transaction, so they are made ahead.
PARTITIONS_INTERVAL_SECONDS = 3_600.0

# By alias: when to look again, monotonic.
_partitions_due_at: dict[str, float] = {}


class _Stage:
    """How far a transaction has come."""

    __slots__ = ("at", "hooks", "performed")

    def __init__(self) -> None:
        self.at = "begin"  # Then "run", "ack", "commit".
        self.performed: Performed | None = None
        self.hooks: list[tuple[Any, Callable[[], Any], bool]] = []


def in_transaction(
    alias: str,
    call: Callable[[Callable[[], Any]], Any],
    task: Callable[[], Any],
    control: JobControl,
    *,
    returned: Callable[[Any], Performed],
    failed: Callable[[BaseException], Performed],
) -> Performed:
    """
    Run *task* and write its ack in one transaction; say what becomes of the job.

    Inside a transaction that is open already, a test's, that one commits or not; the
    ack is then the caller's.

    Args:
        alias: The jobs' database.
        call: Calls what it is given under the task's timeout. Neither the ack nor the
            commit is interrupted by it.
        task: The task with its middleware.
        control: Writes the ack, and finds out whether it was.
        returned: Says what follows a return value.
        failed: Says what follows an error.
    """
    from django.db import connections

    connection = connections[alias]
    stage = _Stage()
    try:
        if not connection.in_atomic_block:
            _make_partitions_ahead(connection)
        with read_committed(connection):
            _run(connection, stage, call, task, control, returned)
    except BaseException as error:
        if stage.at != "commit" or not control.is_applied():
            return _rolled_back(alias, stage, error, failed)
        logger.warning("committed  alias=%s although COMMIT got no answer", alias)
    performed = stage.performed
    assert performed is not None
    if performed.settled:
        control.committed()
    _run_hooks(stage.hooks, call, performed)
    return performed


def _run(
    connection: Any,
    stage: _Stage,
    call: Callable[[Callable[[], Any]], Any],
    task: Callable[[], Any],
    control: JobControl,
    returned: Callable[[Any], Performed],
) -> None:
    from django.db import transaction

    raw = connection.connection
    # Inside another transaction, that one commits, and runs what waits for it.
    watched = None if connection.in_atomic_block else session.watch(raw)
    with transaction.atomic(using=connection.alias):
        begun = 0 if watched is None else watched.begun
        stage.at = "run"
        value = call(task)
        _refuse_rollback(connection)
        if watched is not None:
            _refuse_commit(connection, raw, watched.begun - begun)
        stage.performed = returned(value)
        stage.at = "ack"
        with connection.cursor() as cursor:
            stage.performed.settled = control.ack_within(cursor, stage.performed)
        if watched is not None:
            # Run later, each in a try of its own: Django drops the rest when one
            # raises.
            stage.hooks, connection.run_on_commit = connection.run_on_commit, []
            stage.at = "commit"


def _rolled_back(
    alias: str,
    stage: _Stage,
    error: BaseException,
    failed: Callable[[BaseException], Performed],
) -> Performed:
    performed = failed(error)
    if stage.at == "begin":
        performed.outcome = Retried(BEGIN_AGAIN, gives_attempt_back=True)
        performed.ran_seconds = None
    elif stage.at == "ack" and isinstance(error, LeaseLost):
        performed.settled = False
    elif stage.at == "ack" and isinstance(error.__cause__, CheckViolation):
        # Somebody dropped the archive's partition of today. The next attempt makes it.
        _partitions_due_at.pop(alias, None)
        performed.outcome = Retried(timedelta(0), gives_attempt_back=True)
    return performed


def _refuse_rollback(connection: Any) -> None:
    """Raise unless the transaction can still be committed."""
    from django.db.transaction import TransactionManagementError

    if connection.closed_in_transaction or connection.connection is None:
        problem = "its connection was closed meanwhile"
    elif connection.needs_rollback or _status(connection) == TransactionStatus.INERROR:
        problem = (
            "its transaction can only be rolled back: set_rollback(True) was called, "
            "or a database error was caught outside of a transaction.atomic() of its "
            "own"
        )
    else:
        return
    raise TransactionManagementError(
        f"A task with atomic=True returned, but {problem}. Nothing was written."
    )


def _refuse_commit(connection: Any, raw: Any, begun: int) -> None:
    """
    Raise if the transaction is not the one that was opened for the task.

    Args:
        connection: Django's.
        raw: psycopg's, when the transaction was opened.
        begun: How many transactions have begun on it since.
    """
    from django.db.transaction import TransactionManagementError

    is_over = begun == 1 and _status(connection) == TransactionStatus.IDLE
    if (
        connection.connection is raw
        and not raw.autocommit
        and begun < 2
        and not is_over
    ):
        return
    raise TransactionManagementError(
        "A task with atomic=True has ended its transaction itself, by COMMIT or "
        "ROLLBACK, so what it wrote may happen more than once. Use "
        "transaction.atomic() inside of it, which is a savepoint."
    )


def _status(connection: Any) -> TransactionStatus:
    status: TransactionStatus = connection.connection.info.transaction_status
    return status


@contextmanager
def read_committed(connection: Any) -> Iterator[None]:
    """
    Begin transactions at READ COMMITTED, whatever the role or OPTIONS say.

    A transaction that is open already stays as it is.

    At a stricter level, the ack of a row that a heartbeat has renewed since the
    transaction began would fail with 40001.
    """
    if connection.in_atomic_block:
        yield
        return
    connection.ensure_connection()
    raw = connection.connection
    before = raw.isolation_level
    raw.isolation_level = IsolationLevel.READ_COMMITTED
    try:
        yield
    finally:
        if not raw.closed and raw.info.transaction_status == TransactionStatus.IDLE:
            raw.isolation_level = before


def _make_partitions_ahead(connection: Any) -> None:
    """See to the archive's partitions of this week, once an hour."""
    from django.db import DatabaseError, transaction

    now = time.monotonic()
    if now < _partitions_due_at.get(connection.alias, now):
        return
    try:
        with (
            transaction.atomic(using=connection.alias),
            connection.cursor() as cursor,
        ):
            ARCHIVE.make(cursor)
    except DatabaseError as error:
        # The leader makes them as well; today's may be there.
        logger.warning("partitions alias=%s error=%s", connection.alias, error)
    # Not before they are there: another thread must not overtake this one.
    _partitions_due_at[connection.alias] = now + PARTITIONS_INTERVAL_SECONDS


def _run_hooks(
    hooks: list[tuple[Any, Callable[[], Any], bool]],
    call: Callable[[Callable[[], Any]], Any],
    performed: Performed,
) -> None:
    """Run what waited for the commit; the job is done, whatever comes of it."""
    if not hooks:
        return

    def run() -> None:
        for _, hook, _ in hooks:
            try:
                hook()
            except Exception as error:
                logger.exception("an on_commit hook of an atomic task failed")
                performed.error = performed.error or error

    try:
        call(run)
    except BaseException as error:
        performed.error = performed.error or error

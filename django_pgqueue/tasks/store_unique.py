"""
Store unique: enqueue by a rule, again where the database says so, and tell what was.

Two transactions that wait for one another's keys are parted by PostgreSQL, which makes
one of them fail. Where that is the enqueue alone, it is run again here; where it is the
caller's transaction, only the caller can.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import OperationalError, transaction
from psycopg.pq import TransactionStatus

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    DuplicateJob,
    InvalidArgument,
    TransactionAborted,
)
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues.enqueue import Placement
from django_pgqueue.queues.enqueue_rows import Argument, Selected
from django_pgqueue.queues.unique import (
    Dedup,
    Stored,
    store_unique,
    store_unique_many,
    store_unique_selected,
)
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.unique import Rule, by_of

if TYPE_CHECKING:
    from django_pgqueue.tasks.declared import DeclaredTask

T = TypeVar("T")

# Deadlock, and serialization failure: the same again may well succeed.
AGAIN = frozenset({"40P01", "40001"})
TRIES_MAX = 6
# Before each next try a random share of twice as long.
PAUSE_SECONDS = 0.01

# Columns whose values the database writes in the same text as tasks/payload.py.
KEY_KINDS = frozenset({None, "plain", "integer", "uuid", "bytes", "date"})

Call = tuple[Sequence[Any], Mapping[str, Any]]


def dedup_of(
    task: DeclaredTask, rule: Rule, key: str | None, calls: Iterable[Call]
) -> Dedup:
    """
    Return what to ask for, for jobs with these arguments.

    Raises:
        InvalidArgument: A default value that counts cannot travel as JSON.
    """
    if key is not None:
        return rule.dedup(by=key)
    names = rule.names_in(task.parameters)
    if not names:
        return rule.dedup(by="{}")
    is_hidden = rule.is_hidden(get_settings().redact)
    bys = [
        by_of(task.name, task.parameters, names, args, kwargs, is_hidden=is_hidden)
        for args, kwargs in calls
    ]
    return rule.dedup(by=bys[0]) if len(bys) == 1 else rule.dedup(bys=bys)


def dedup_of_fields(
    task: DeclaredTask, rule: Rule, key: str | None, arguments: Sequence[Argument]
) -> Dedup:
    """
    Return what to ask for, for the rows of a query.

    Raises:
        InvalidArgument: What makes the key cannot be read from the rows as delay()
            would read it.
    """
    if key is not None:
        return rule.dedup(by=key)
    names = rule.names_in(task.parameters)
    if not names:
        return rule.dedup(by="{}")
    kinds = {argument.name: argument.kind for argument in arguments}
    for name, kind in kinds.items():
        problem = None
        if name in names and kind not in KEY_KINDS:
            problem = (
                f"is part of the dedup key and of the kind {kind}, whose text the "
                f"database writes otherwise than delay(): use bulk(), or key=…"
            )
        elif rule.by is None and name not in names:
            problem = (
                "is part of the dedup key, in the **parameter of the task: say by=…, "
                "or use bulk()"
            )
        if problem is not None:
            raise InvalidArgument(
                task=task.name, path=f"fields.{name}", problem=problem
            )
    defaults = task.parameters.defaults
    left_out = {n: defaults[n] for n in names if n not in kinds and n in defaults}
    return rule.dedup(
        names=names,
        defaults=payload.encode_at(task.name, "by", left_out),
        is_hidden=rule.is_hidden(get_settings().redact),
    )


def store_one(
    connection: Any, placement: Placement, dedup: Dedup, *, args: str, kwargs: str
) -> Stored:
    """
    Store one job by its rule, or return the one that stands for it.

    Raises:
        DuplicateJob: Its key is taken, and the rule says that this is an error.
        TransactionAborted: The caller's transaction has failed.
    """

    def write() -> Stored:
        with connection.cursor() as cursor:
            return store_unique(
                cursor,
                placement,
                dedup,
                args=args,
                kwargs=kwargs,
                locks=is_open(connection),
            )

    stored = _again(connection, placement, write)
    _refuse(placement, dedup, [stored])
    return stored


def store_many(
    connection: Any, placement: Placement, dedup: Dedup, items: Sequence[Items]
) -> list[Stored]:
    """Store one job per item by the rule, all or nothing; raises as store_one()."""
    locks = is_open(connection)

    def write() -> list[Stored]:
        with _all_or_nothing(connection, dedup), connection.cursor() as cursor:
            stored = store_unique_many(cursor, placement, dedup, items, locks=locks)
            _refuse(placement, dedup, stored)
            return stored

    return _again(connection, placement, write)


def store_selected(
    connection: Any, placement: Placement, dedup: Dedup, **query: Any
) -> Selected:
    """Store one job per row by the rule, all or nothing; raises as store_one()."""
    locks = is_open(connection)

    def write() -> Selected:
        with _all_or_nothing(connection, dedup), connection.cursor() as cursor:
            selected = store_unique_selected(
                cursor, placement, dedup, locks=locks, **query
            )
            conflicts = [
                Stored(job_id, conflict)
                for conflict, job_id in selected.first_ids.items()
            ]
            _refuse(placement, dedup, conflicts)
            return selected

    return _again(connection, placement, write)


def is_open(connection: Any) -> bool:
    """Whether what is written on *connection* is committed later, by the caller."""
    return bool(connection.in_atomic_block or not connection.get_autocommit())


def _all_or_nothing(connection: Any, dedup: Dedup) -> Any:
    """Return a transaction; a refusal takes back what it wrote, and nothing else."""
    return transaction.atomic(
        using=connection.alias, savepoint=dedup.conflict == "error"
    )


def _refuse(placement: Placement, dedup: Dedup, stored: Iterable[Stored]) -> None:
    if dedup.conflict != "error":
        return
    for job_id, conflict in stored:
        if conflict is not None:
            raise DuplicateJob(task=placement.task, job_id=job_id)


def _again(connection: Any, placement: Placement, write: Callable[[], T]) -> T:
    """Do *write*, and again where the database asks for it and nothing is open."""
    tries = 0
    while True:
        tries += 1
        try:
            return write()
        except OperationalError as error:
            sqlstate = getattr(error.__cause__, "sqlstate", None)
            if sqlstate not in AGAIN:
                raise
            raw = connection.connection
            is_idle = (
                raw is not None
                and raw.info.transaction_status == TransactionStatus.IDLE
            )
            if not is_idle or tries >= TRIES_MAX:
                raise TransactionAborted(
                    task=placement.task, sqlstate=sqlstate
                ) from error
        time.sleep(random.uniform(0, PAUSE_SECONDS * 2**tries))

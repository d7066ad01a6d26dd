"""
Real rows, any column overridable.

A timedelta for a time column counts from the database's clock: ``visible_at=
timedelta(hours=1)`` is scheduled for an hour from now, ``-timedelta(hours=1)`` has
been due that long. Rows are written through Django's connection, so they belong to
the test's transaction where it has one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from django.db import connections, models, router
from django.db.models import Value

from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.models.columns import CLOCK

Row = TypeVar("Row", bound=models.Model)

NEXT_ID = "SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id'))"

LEASE = timedelta(seconds=60)


def make_job(*, using: str | None = None, **columns: Any) -> Job:
    """Insert a live job, due since now unless *columns* say otherwise."""
    return _make(Job, using, {"task": "tests.noop", **columns})


def make_jobs(count: int, *, using: str | None = None, **columns: Any) -> list[int]:
    """Insert *count* equal live jobs and return their ids, oldest first."""
    columns = {"task": "tests.noop", **columns}
    rows = [Job(**_from_now(Job, columns)) for _ in range(count)]
    manager = Job.objects.using(using or router.db_for_write(Job))
    return [row.pk for row in manager.bulk_create(rows, batch_size=1_000)]


def make_leased_job(
    worker: str = "worker", *, using: str | None = None, **columns: Any
) -> Job:
    """Insert a job that *worker* claimed a moment ago and holds for LEASE."""
    return make_job(
        using=using,
        **{
            "leased_by": worker,
            "leased_at": timedelta(0),
            "visible_at": LEASE,
            "attempt": 1,
            "deliveries": 1,
            **columns,
        },
    )


def make_archived_job(*, using: str | None = None, **columns: Any) -> ArchivedJob:
    """Insert a job that succeeded now, unless *columns* say otherwise."""
    defaults = {
        "task": "tests.noop",
        "state": "succeeded",
        "attempt": 1,
        "deliveries": 1,
        "started_at": timedelta(0),
        "finished_at": timedelta(0),
        "worker": "worker",
    }
    return _make(ArchivedJob, using, {**defaults, **columns})


def make_dead_letter(*, using: str | None = None, **columns: Any) -> DeadLetter:
    """Insert a job that used its attempts up, unless *columns* say otherwise."""
    defaults = {
        "task": "tests.noop",
        "reason": "exhausted",
        "attempt": 5,
        "deliveries": 5,
        "started_at": timedelta(0),
        "finished_at": timedelta(0),
        "worker": "worker",
    }
    return _make(DeadLetter, using, {**defaults, **columns})


def _make(model: type[Row], using: str | None, columns: dict[str, Any]) -> Row:
    using = using or router.db_for_write(model)
    if model is not Job and "id" not in columns:
        with connections[using].cursor() as cursor:
            cursor.execute(NEXT_ID)
            columns = {"id": cursor.fetchone()[0], **columns}
    row = model(**_from_now(model, columns))
    row.save(using=using, force_insert=True)
    # Defaults and triggers of the database have filled in the rest.
    row.refresh_from_db(using=using)
    return row


def _from_now(model: type[models.Model], columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _clock(value)
        if isinstance(value, timedelta)
        and isinstance(model._meta.get_field(name), models.DateTimeField)
        else value
        for name, value in columns.items()
    }


def _clock(delta: timedelta) -> Any:
    return models.ExpressionWrapper(
        CLOCK + Value(delta), output_field=models.DateTimeField()
    )

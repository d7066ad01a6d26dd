"""
JobField: a column on a user's model that remembers a job.

A job moves between three tables, so no foreign key can follow it. The column is a
bigint without a constraint, and ``.job`` finds the row wherever it is.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import models
from django.db.models.query_utils import DeferredAttribute


class JobReference(int):
    """A job's id as an int, that can find its row."""

    @property
    def job(self) -> models.Model | None:
        """
        Return the Job, ArchivedJob or DeadLetter with this id, or None.

        Looks in the order in which a job moves, then once more in the queue, since a
        redrive moves a dead letter back. None: purged, or its transaction has not
        committed (or rolled back).
        """
        for name in ("Job", "ArchivedJob", "DeadLetter", "Job"):
            model = apps.get_model("pgqueue", name)
            rows = model._default_manager.using(_alias())
            row: models.Model | None = rows.filter(pk=int(self)).first()
            if row is not None:
                return row
        return None


class JobDescriptor(DeferredAttribute):
    """Turns what is assigned (an id, a result, a job's row) into a JobReference."""

    def __set__(self, instance: models.Model, value: Any) -> None:
        # An expression such as F("other") is the database's to resolve.
        if not hasattr(value, "resolve_expression"):
            value = self.field.to_python(value)
        instance.__dict__[self.field.attname] = value


class JobField(models.BigIntegerField):  # type: ignore[type-arg]
    """
    A bigint column that holds the id of a job.

        class Order(models.Model):
            receipt = JobField(null=True)

        order.receipt = send_receipt.delay(order_id=order.pk)
        order.receipt.job          # a Job, an ArchivedJob, a DeadLetter or None

    Accepts an int, a JobResult and any row with an integer ``id``.
    """

    description = "The id of a django_pgqueue job"
    descriptor_class = JobDescriptor

    def to_python(self, value: Any) -> JobReference | None:
        """Return *value* as a JobReference; None stays None."""
        if value is None or isinstance(value, JobReference):
            return value
        number = super().to_python(getattr(value, "id", value))
        return None if number is None else JobReference(number)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Wrap the id that the database returned."""
        return None if value is None else JobReference(value)

    def get_prep_value(self, value: Any) -> Any:
        """Return a plain int, also for a JobResult used in a filter."""
        return super().get_prep_value(
            getattr(value, "id", value) if not isinstance(value, int) else int(value)
        )


def _alias() -> str:
    from django_pgqueue.conf import get_settings

    return get_settings().database

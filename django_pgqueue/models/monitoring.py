"""Monitoring: alerts, and counts of what ended by span of time."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Alert(models.Model):
    """
    A row exists from the look that found it until some days after its end.

    Rows are written by pgqueue_watch() alone, which says each of them once.
    """

    # The kind, a colon and the subject.
    name = models.CharField(_("name"), max_length=300, primary_key=True)
    kind = models.CharField(_("kind"), max_length=20)
    # Whose: a queue, a task, a schedule, or a topic and a group.
    subject = models.CharField(_("subject"), max_length=275)
    # Of jobs, dead letters or partitions; counted up to a bound.
    count = models.IntegerField(_("count"))
    detail = models.TextField(_("detail"))
    began_at = models.DateTimeField(_("began at"))
    # When it was last said, and with which count: that it began, grew or ended.
    said_at = models.DateTimeField(_("said at"))
    said_count = models.IntegerField(_("said count"))
    ended_at = models.DateTimeField(_("ended at"), null=True)

    class Meta:
        db_table = "pgqueue_alert"
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        default_permissions = ()
        indexes: ClassVar = [
            # Serves queues/watch.py: what was said since a moment.
            models.Index(fields=["said_at"], name="pgqueue_alert_said"),
            models.Index(
                fields=["began_at"],
                name="pgqueue_alert_standing",
                condition=Q(ended_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.name


def _count(name: Any) -> models.BigIntegerField[int, int]:
    return models.BigIntegerField(name)


class CountArray(models.Field):  # type: ignore[type-arg]
    """A list of counts; see TextArray for why it is no ArrayField."""

    def db_type(self, connection: Any) -> str:
        """Return its type in the database."""
        return "bigint[]"


class TaskSpan(models.Model):
    """
    What ended in a span of time, counted by the workers that have settled it.

    Each count stands in three rows, of spans of 60, 600 and 3,600 seconds, each kept as
    long as charts of its kind go back: so a week is read from few rows, and nothing has
    to be summed up later. A crash of a worker loses what it counted in its last
    seconds.
    """

    pk = models.CompositePrimaryKey("seconds", "since", "queue", "task")
    seconds = models.IntegerField(_("seconds"))  # How long the span is.
    since = models.DateTimeField(_("since"))
    # "(others)" in both: those beyond what a worker counts apart.
    queue = models.CharField(_("queue"), max_length=63)
    task = models.CharField(_("task"), max_length=255)

    succeeded = _count(_("succeeded"))
    failed = _count(_("failed"))  # Attempts; the job may be tried again.
    dead = _count(_("dead"))
    cancelled = _count(_("cancelled"))
    expired = _count(_("expired"))

    # Of attempts: from when the job was due to its claim; of those that ran, from start
    # to end. The sums, and how many were about how long.
    wait_seconds = models.FloatField(_("wait seconds"))
    run_seconds = models.FloatField(_("run seconds"))
    waits = CountArray(_("waits"))
    runs = CountArray(_("runs"))

    class Meta:
        db_table = "pgqueue_task_span"
        verbose_name = _("span of a task")
        verbose_name_plural = _("spans of tasks")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.task} in {self.queue}, {self.seconds} s from {self.since}"

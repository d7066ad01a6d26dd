"""What one task did in one queue within one hour."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK


def _count(name: Any) -> models.BigIntegerField[int, int]:
    return models.BigIntegerField(name, db_default=0)


def _seconds(name: Any) -> models.FloatField[float | None, float | None]:
    return models.FloatField(name, null=True, blank=True)


class TaskHour(models.Model):
    """
    The jobs of a task and a queue that ended within an hour, with all they took.

    Written by the pipeline job `metrics`. A job counts in the hour (UTC) in which it
    ended, with all of its deliveries: so an hour that is over stays as it is. Times
    are NULL where nothing was measured.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    hour = models.DateTimeField(_("hour"))
    queue = models.CharField(_("queue"), max_length=63)
    task = models.CharField(_("task"), max_length=255)

    started = _count(_("started"))  # Deliveries.
    succeeded = _count(_("succeeded"))
    failed = _count(_("failed"))  # Attempts.
    retried = _count(_("retried"))  # Attempts after the first.
    dead = _count(_("dead"))
    cancelled = _count(_("cancelled"))
    expired = _count(_("expired"))
    crashed = _count(_("crashed"))  # Deliveries.

    wait_p50 = _seconds(_("wait p50"))
    wait_p95 = _seconds(_("wait p95"))
    wait_p99 = _seconds(_("wait p99"))
    oldest_wait = _seconds(_("oldest wait"))
    run_p50 = _seconds(_("run p50"))
    run_p95 = _seconds(_("run p95"))
    run_p99 = _seconds(_("run p99"))
    worker_seconds = models.FloatField(_("worker seconds"), db_default=0)

    computed_at = models.DateTimeField(_("computed at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_task_hour"
        verbose_name = _("hour of a task")
        verbose_name_plural = _("metrics")
        default_permissions = ("view",)
        constraints = [
            # Serves the charts too: all of a span of hours.
            models.UniqueConstraint(
                name="pgqueue_task_hour_key", fields=["hour", "queue", "task"]
            ),
        ]
        indexes = [
            # Serves the chart of one task.
            models.Index(fields=["task", "hour"], name="pgqueue_task_hour_task"),
        ]

    def __str__(self) -> str:
        return f"{self.task} in {self.queue}, {self.hour:%Y-%m-%d %H:00}"

"""What became of the jobs of one task and queue that were enqueued within one hour."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK


def _count(name: Any) -> models.BigIntegerField[int, int]:
    return models.BigIntegerField(name)


class EnqueuedHour(models.Model):
    """
    The jobs of a task and a queue that were enqueued within an hour (UTC), by place.

    Written by the pipeline job `conservation`, from one snapshot. No job goes away
    before its retention, so an hour that is over has as many as it had, wherever they
    are by now.
    """

    pk = models.CompositePrimaryKey("hour", "queue", "task")
    hour = models.DateTimeField(_("hour"))
    queue = models.CharField(_("queue"), max_length=63)
    task = models.CharField(_("task"), max_length=255)

    # The most that a run has seen.
    enqueued = _count(_("enqueued"))
    # What the latest run has seen: in the queue, of whatever state; in the archive or
    # its export; among the dead letters.
    waiting = _count(_("waiting"))
    archived = _count(_("archived"))
    dead = _count(_("dead"))

    computed_at = models.DateTimeField(_("computed at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_enqueued_hour"
        verbose_name = _("hour of enqueued jobs")
        verbose_name_plural = _("hours of enqueued jobs")
        default_permissions = ()
        indexes = [
            # Serves the doctor: hours that lack jobs.
            models.Index(
                fields=["hour"],
                name="pgqueue_enqueued_hour_missing",
                condition=Q(
                    enqueued__gt=F("waiting") + F("archived") + F("dead"),
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task} in {self.queue}, {self.hour:%Y-%m-%d %H:00}"

    @property
    def missing(self) -> int:
        """How many jobs are nowhere any more."""
        return self.enqueued - self.waiting - self.archived - self.dead

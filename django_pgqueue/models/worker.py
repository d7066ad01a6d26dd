"""A worker process that is running, or ran until a moment ago."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_LIST


class Worker(models.Model):
    """
    A row exists from the start of a worker process until its clean stop.

    One that was killed keeps its row, with an old heartbeat, until it is purged. No
    job depends on these rows: a lease carries its own end.
    """

    # Unique per process start: host, process id and a random part.
    name = models.CharField(_("name"), max_length=100, primary_key=True)
    hostname = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    # Empty: all queues.
    queues: models.JSONField[Any, Any] = models.JSONField(
        _("queues"), db_default=JSON_LIST
    )
    threads = models.IntegerField(_("threads"))
    # How many coroutines it runs at once; 0: none of its tasks is async.
    async_slots = models.IntegerField(_("async slots"), db_default=0)
    version = models.CharField(_("version"), max_length=50)
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    heartbeat_at = models.DateTimeField(_("heartbeat at"), db_default=CLOCK)
    # While this is in the future, this worker does the chores of all.
    leader_until = models.DateTimeField(_("leader until"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_worker"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name

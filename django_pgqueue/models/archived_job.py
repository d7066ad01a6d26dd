"""A job that ended and needs nobody any more."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import JobColumns


class ArchivedState(models.TextChoices):
    """How an archived job ended."""

    SUCCEEDED = "succeeded", _("succeeded")
    CANCELLED = "cancelled", _("cancelled")
    EXPIRED = "expired", _("expired")


class ArchivedJob(JobColumns):
    """
    A row exists from the settle of a job until its day is older than the retention.

    The table is partitioned by the day (UTC) of finished_at, so that retention drops
    whole days. The primary key in the database is (id, finished_at), because a
    partitioned table needs its partition column there; ids are unique all the same,
    since only one settle of a job can win.
    """

    id = models.BigIntegerField(_("id"), primary_key=True)
    state = models.CharField(_("state"), max_length=9, choices=ArchivedState.choices)
    result: models.JSONField[Any, Any] = models.JSONField(
        _("result"), null=True, blank=True
    )
    # NULL: it never started (expired or cancelled before).
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"))
    # The worker that settled it; its row in pgqueue_worker may be long gone.
    worker = models.CharField(_("worker"), max_length=100, null=True, blank=True)

    class Meta:
        db_table = "pgqueue_archived_job"
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
        default_permissions = ("view",)
        indexes = [
            # Serves the dropping of results past RESULT_TTL_SECONDS.
            models.Index(
                fields=["finished_at"],
                name="pgqueue_archived_job_result",
                condition=models.Q(result__isnull=False),
            ),
        ]

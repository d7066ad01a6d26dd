"""Erasures: the receipts of what was erased for somebody."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_LIST, JSON_OBJECT


class Erasure(models.Model):
    """
    A receipt: what the pipeline job `erase` has deleted, and where.

    It does not say whose rows they were: a hash with the project's SECRET_KEY lets who
    knows the value show that it was his.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    run_id = models.BigIntegerField(_("run"))
    # NULL: nobody was named.
    asked_by = models.CharField(_("asked by"), max_length=150, null=True, blank=True)
    # The argument, such as kwargs.customer_id, or payload.customer_id of messages; and
    # the task, or "" for all.
    path = models.CharField(_("path"), max_length=200)
    task = models.CharField(_("task"), max_length=255, blank=True)
    value_hash = models.CharField(_("hash of the value"), max_length=64)
    # Rows that are gone from the archive, and dead letters.
    archive_rows = models.BigIntegerField(_("rows of the archive"), db_default=0)
    dead_letter_rows = models.BigIntegerField(_("dead letters"), db_default=0)
    # {"orders": {"rows": 3, "first_id": 7, "last_id": 19}}: messages that are gone from
    # the log, by topic, and the first and the last of them.
    messages: models.JSONField[Any, Any] = models.JSONField(
        _("messages"), db_default=JSON_OBJECT
    )
    # [{"target": "/srv/export", "day": "2026-11-21", "rows": 3, "files": 1}]: rows that
    # are gone, and the files that were rewritten for it.
    exports: models.JSONField[Any, Any] = models.JSONField(
        _("exports"), db_default=JSON_LIST
    )
    # The same of files of ingest, with their topic; of a Delta table, of all its days.
    ingested: models.JSONField[Any, Any] = models.JSONField(
        _("files of ingest"), db_default=JSON_LIST
    )
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    # NULL: the run has not come to its end; another one erases the rest.
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_erasure"
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.path} {self.started_at:%Y-%m-%d}"

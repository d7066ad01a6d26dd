"""One day of the archive, as it was exported to one place."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_LIST


class ExportState(models.TextChoices):
    """How far the export of a day is."""

    # Nothing of this run can be seen at the target yet.
    WRITING = "writing", _("writing")
    # It is being put where readers look: files that are not listed may be there.
    PUBLISHING = "publishing", _("publishing")
    EXPORTED = "exported", _("exported")
    # The archive has other rows of the day since: it is exported anew.
    STALE = "stale", _("stale")


class Export(models.Model):
    """
    The manifest of a day: what of it is where, compared with the archive.

    It is the truth about the files: those that it lists are the day, each written once
    under a name of its own, and deleted when the manifest has listed others instead.
    Written by the pipeline job `export`. Retention drops a day of the archive when the
    row for the target of PGQUEUE["EXPORT"] is exported and says what the day has.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    target = models.CharField(_("target"), max_length=900)
    day = models.DateField(_("day"))
    format = models.CharField(_("format"), max_length=7)
    state = models.CharField(
        _("state"), max_length=10, choices=ExportState.choices, db_default="writing"
    )
    # NULL: it was never exported; as the rest down to exported_at.
    rows = models.BigIntegerField(_("rows"), null=True, blank=True)
    # Of what identifies each row, in any order; the same in PostgreSQL and in Spark.
    checksum = models.CharField(_("checksum"), max_length=40, null=True, blank=True)
    # Of all columns, in any order; Spark's.
    content = models.CharField(_("content"), max_length=40, null=True, blank=True)
    # [{"path": "day=…/queue=…/part-….parquet", "bytes": 1234}], below the target.
    files: models.JSONField[Any, Any] = models.JSONField(
        _("files"), db_default=JSON_LIST
    )
    # Paths below the target that these files have replaced, and that are to be deleted.
    replaced: models.JSONField[Any, Any] = models.JSONField(
        _("replaced"), db_default=JSON_LIST
    )
    # When a run has last seen that the files are there; NULL: not yet.
    checked_at = models.DateTimeField(_("checked at"), null=True, blank=True)
    # Of a Delta table.
    version = models.BigIntegerField(_("version"), null=True, blank=True)
    exported_at = models.DateTimeField(_("exported at"), null=True, blank=True)

    # The latest run that took it up, whatever became of it.
    run_id = models.BigIntegerField(_("run"))
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    error = models.TextField(_("error"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_export"
        verbose_name = _("export")
        verbose_name_plural = _("exports")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                name="pgqueue_export_key", fields=["target", "day"]
            ),
            models.CheckConstraint(
                name="pgqueue_export_state", condition=Q(state__in=ExportState.values)
            ),
            models.CheckConstraint(
                name="pgqueue_export_exported_is_counted",
                condition=~Q(state="exported")
                | Q(
                    rows__isnull=False,
                    checksum__isnull=False,
                    exported_at__isnull=False,
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.day} to {self.target}"

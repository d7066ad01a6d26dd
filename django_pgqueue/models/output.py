"""What tasks have emitted while they ran."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK


class Output(models.Model):
    """A value that ctx.emit() was given; rows are added, and deleted when old."""

    pk = models.CompositePrimaryKey("job_id", "sequence")
    job_id = models.BigIntegerField(_("job"))
    # The delivery and the place in it: queues/output.py.
    sequence = models.BigIntegerField(_("sequence"))
    attempt = models.IntegerField(_("attempt"))
    value: models.JSONField[Any, Any] = models.JSONField(_("value"))
    emitted_at = models.DateTimeField(_("emitted at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_output"
        verbose_name = _("output")
        verbose_name_plural = _("outputs")
        default_permissions = ()
        indexes: ClassVar = [
            # Serves the retention.
            models.Index(fields=["emitted_at"], name="pgqueue_output_old"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.sequence}"

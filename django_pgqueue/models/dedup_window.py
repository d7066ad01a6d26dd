"""Periods in which a dedup key has had its jobs."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class DedupWindow(models.Model):
    """
    A row exists from the first job of a period until the period is over and purged.

    So a period outlives its jobs: what was enqueued within it is known when they have
    long been done.
    """

    key = models.CharField(_("dedup key"), max_length=255, primary_key=True)
    # The period's end, by the database's clock.
    until = models.DateTimeField(_("until"))
    jobs = models.IntegerField(_("jobs"))
    # The latest of them, which callers are told of that come too late.
    job_id = models.BigIntegerField(_("job"))

    class Meta:
        db_table = "pgqueue_dedup_window"
        verbose_name = _("dedup window")
        verbose_name_plural = _("dedup windows")
        default_permissions = ("view",)
        indexes = [
            # Serves the purge.
            models.Index(fields=["until"], name="pgqueue_dedup_window_until"),
        ]

    def __str__(self) -> str:
        return self.key

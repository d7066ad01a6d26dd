"""The time up to which the database's clock is believed."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Clock(models.Model):
    """
    One row: a clock that goes with the database's, but never jumps ahead.

    What cannot be undone goes by it: a day is closed, and old rows are removed.
    """

    id = models.SmallIntegerField(_("id"), primary_key=True, db_default=1)
    trusted_at = models.DateTimeField(_("trusted up to"))

    class Meta:
        db_table = "pgqueue_clock"
        verbose_name = _("trusted clock")
        verbose_name_plural = _("trusted clock")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.trusted_at)

"""Permit: a place that a claim has taken in a queue with a limit."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class Permit(models.Model):
    """
    A job that was claimed in a queue which lets so many run at a time.

    It says which rows to look at, and no more: a place is taken while the job is leased
    with this delivery. So none is lost with a process, and none is free too early.
    """

    job_id = models.BigIntegerField(_("job"), primary_key=True)
    queue = models.CharField(_("queue"), max_length=63)
    delivery = models.IntegerField(_("delivery"))

    class Meta:
        db_table = "pgqueue_permit"
        verbose_name = _("permit")
        verbose_name_plural = _("permits")
        default_permissions = ()
        indexes: ClassVar = [
            models.Index(fields=["queue"], name="pgqueue_permit_queue")
        ]

    def __str__(self) -> str:
        return f"{self.queue}: {self.job_id}"

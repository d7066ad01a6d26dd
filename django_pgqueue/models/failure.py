"""Errors of the same kind, and when they happened."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_LIST


class Failure(models.Model):
    """
    All errors with one fingerprint: class, message without its numbers, and place.

    Written by the pipeline job `failures`. Counts only grow while their hours are kept,
    also when the jobs are purged or redriven; dead_letters alone is what was there at
    the latest run.
    """

    # As redaction/fingerprint.py makes it: 32 hexadecimal digits.
    fingerprint = models.CharField(_("fingerprint"), max_length=32, primary_key=True)
    error_class = models.CharField(_("class"), max_length=255)
    message = models.CharField(_("message"), max_length=500)
    place = models.CharField(_("place"), max_length=255)
    count = models.BigIntegerField(_("errors"), db_default=0)
    jobs = models.BigIntegerField(_("jobs"), db_default=0)
    dead_letters = models.BigIntegerField(_("dead letters"), db_default=0)
    # At most twenty names.
    tasks: models.JSONField[Any, Any] = models.JSONField(
        _("tasks"), db_default=JSON_LIST
    )
    first_seen = models.DateTimeField(_("first seen"))
    last_seen = models.DateTimeField(_("last seen"))
    # The latest one, without secrets.
    sample_job_id = models.BigIntegerField(_("job of the sample"))
    sample_message = models.TextField(_("sample"))
    sample_traceback = models.TextField(_("traceback of the sample"))
    computed_at = models.DateTimeField(_("computed at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_failure"
        verbose_name = _("failure")
        verbose_name_plural = _("failures")
        default_permissions = ("view",)
        indexes = [
            # Serves the admin's list: what fails now comes first.
            models.Index(fields=["-last_seen"], name="pgqueue_failure_last_seen"),
        ]

    def __str__(self) -> str:
        return ": ".join(filter(None, [self.error_class, self.message]))


class FailureHour(models.Model):
    """What happened of one fingerprint within an hour (UTC)."""

    id = models.BigAutoField(_("id"), primary_key=True)
    # Of a Failure. No foreign key: both are written in one transaction.
    fingerprint = models.CharField(_("fingerprint"), max_length=32)
    hour = models.DateTimeField(_("hour"))
    count = models.BigIntegerField(_("errors"))
    # Jobs of whose errors of the kind the first happened in this hour.
    jobs = models.BigIntegerField(_("jobs"), db_default=0)
    # Those that gave up in this hour, and are there.
    dead_letters = models.BigIntegerField(_("dead letters"), db_default=0)

    class Meta:
        db_table = "pgqueue_failure_hour"
        verbose_name = _("hour of a failure")
        verbose_name_plural = _("hours of failures")
        default_permissions = ("view",)
        constraints = [
            # Serves the trend of one failure too.
            models.UniqueConstraint(
                name="pgqueue_failure_hour_key", fields=["fingerprint", "hour"]
            ),
        ]
        indexes = [
            # Serves the deletion of old hours.
            models.Index(fields=["hour"], name="pgqueue_failure_hour_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.fingerprint}, {self.hour:%Y-%m-%d %H:00}"

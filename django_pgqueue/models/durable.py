"""What a task has done within one job, and what it waits for."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK


class DurableStep(models.Model):
    """
    What ctx.step(), ctx.sleep() or ctx.wait_for() has come to in a job.

    A row exists from its first call until its job has been over for some days. The next
    attempt of the job reads it instead of doing it again.
    """

    pk = models.CompositePrimaryKey("job_id", "place")
    job_id = models.BigIntegerField(_("job"))
    # The how manieth call it is in its task.
    place = models.IntegerField(_("place"))
    name = models.CharField(_("name"), max_length=255)
    kind = models.CharField(_("kind"), max_length=5)  # "step", "sleep" or "wait".
    result: models.JSONField[Any, Any] = models.JSONField(
        _("result"), null=True, blank=True
    )
    # Of a wait: for which signal.
    key = models.CharField(_("key"), max_length=255, db_default="")
    # Of a sleep or a wait: until when. NULL: without end.
    until = models.DateTimeField(_("until"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)
    done_at = models.DateTimeField(_("done at"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_durable_step"
        verbose_name = _("durable step")
        verbose_name_plural = _("durable steps")
        default_permissions = ()
        indexes: ClassVar = [
            # Serves signal(): who waits for it.
            models.Index(
                fields=["name", "key"],
                name="pgqueue_durable_step_wait",
                condition=models.Q(kind="wait", done_at__isnull=True),
            ),
            # Serves the retention.
            models.Index(fields=["created_at"], name="pgqueue_durable_step_old"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.name}"


class Signal(models.Model):
    """Something that has happened, for jobs that wait for it, or will within days."""

    name = models.CharField(_("name"), max_length=255)
    key = models.CharField(_("key"), max_length=255, db_default="")
    payload: models.JSONField[Any, Any] = models.JSONField(
        _("payload"), null=True, blank=True
    )
    sent_at = models.DateTimeField(_("sent at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_signal"
        verbose_name = _("signal")
        verbose_name_plural = _("signals")
        default_permissions = ()
        indexes: ClassVar = [
            models.Index(fields=["name", "key", "id"], name="pgqueue_signal_name"),
            models.Index(fields=["sent_at"], name="pgqueue_signal_old"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.key}".strip()

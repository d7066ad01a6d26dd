"""A job that gave up."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import JobColumns


class Reason(models.TextChoices):
    """Why a job became a dead letter."""

    REJECTED = "rejected", _("rejected by the task")
    EXHAUSTED = "exhausted", _("attempts used up")
    TIMEOUT = "timeout", _("ran longer than its timeout")
    LEASE_EXPIRED = "lease_expired", _("lease ran out too often")
    WORKER_LOST = "worker_lost", _("its process died too often")
    UNKNOWN_TASK = "unknown_task", _("no such task")
    UNDECODABLE = "undecodable", _("arguments cannot be read")
    UNPERMITTED = "unpermitted", _("not permitted")


class DeadLetter(JobColumns):
    """
    A row exists from the moment a job gave up until it is redriven or purged.

    It keeps the id, the arguments and the errors of every attempt, so that a redrive
    is the same job again and log lines join up.
    """

    id = models.BigIntegerField(_("id"), primary_key=True)
    reason = models.CharField(_("reason"), max_length=13, choices=Reason.choices)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"))
    # As that of the job: a redrive takes it again.
    queued_key = models.CharField(
        _("queued key"), max_length=255, null=True, blank=True
    )
    worker = models.CharField(_("worker"), max_length=100, null=True, blank=True)

    class Meta:
        db_table = "pgqueue_dead_letter"
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        default_permissions = ("view",)
        indexes = [
            # Serves the admin's list and the purge by age.
            models.Index(fields=["finished_at"], name="pgqueue_dead_letter_finished"),
            # Serves redrive by queue or task.
            models.Index(
                fields=["queue", "task", "id"], name="pgqueue_dead_letter_queue"
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="pgqueue_dead_letter_reason",
                condition=Q(reason__in=Reason.values),
            ),
        ]

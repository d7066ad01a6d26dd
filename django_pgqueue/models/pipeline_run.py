"""One run of a pipeline job."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_OBJECT, TextArray


class RunState(models.TextChoices):
    """What has become of a run."""

    RUNNING = "running", _("running")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    LOST = "lost", _("lost")


class PipelineRun(models.Model):
    """
    A row exists from the start of a run; each job keeps its latest thousand.

    A running one is alive until lease_until, which its process moves on every two
    seconds. Past that the process has died, though nobody has said so yet: the next
    run that needs a place of it marks it as lost.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    job = models.CharField(_("pipeline job"), max_length=100)
    # What no other live run of the job may have; none: it has the whole job.
    places: Any = TextArray(_("places"), db_default="{}")
    state = models.CharField(
        _("state"), max_length=9, choices=RunState.choices, db_default="running"
    )
    options: models.JSONField[Any, Any] = models.JSONField(
        _("options"), db_default=JSON_OBJECT
    )
    # A user, a queue's job or an account of the host; NULL: nobody said.
    asked_by = models.CharField(_("asked by"), max_length=150, null=True, blank=True)
    # The queue's job that runs it; NULL: none does.
    queue_job_id = models.BigIntegerField(_("job"), null=True, blank=True)
    hostname = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    lease_until = models.DateTimeField(_("lease until"))
    rows_in = models.BigIntegerField(_("rows in"), db_default=0)
    rows_out = models.BigIntegerField(_("rows out"), db_default=0)
    # What it does now: phase, tasks_done, tasks, rows_per_second.
    progress: models.JSONField[Any, Any] = models.JSONField(
        _("progress"), db_default=JSON_OBJECT
    )
    error = models.TextField(_("error"), null=True, blank=True)
    ui_url = models.CharField(
        _("address of Spark's UI"), max_length=500, null=True, blank=True
    )
    cancel_requested_at = models.DateTimeField(
        _("cancel requested at"), null=True, blank=True
    )
    cancel_requested_by = models.CharField(
        _("cancel requested by"), max_length=150, null=True, blank=True
    )

    class Meta:
        db_table = "pgqueue_pipeline_run"
        verbose_name = _("pipeline run")
        verbose_name_plural = _("pipeline runs")
        default_permissions = ("view",)
        indexes = [
            # Serves those that ask for live runs.
            models.Index(
                name="pgqueue_pipeline_run_live",
                fields=["job"],
                condition=Q(state="running"),
            ),
            # Serves the latest run of a job, and the deletion of its oldest ones.
            models.Index(fields=["job", "-id"], name="pgqueue_pipeline_run_job"),
        ]
        constraints = [
            models.CheckConstraint(
                name="pgqueue_pipeline_run_state",
                condition=Q(state__in=RunState.values),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job} #{self.pk}"

"""The Spark pipeline: runs, exports, erasures, failures, and reports by the hour."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import (
    CLOCK,
    JSON_LIST,
    JSON_OBJECT,
    JsonField,
    TextArray,
)


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
    options: JsonField = models.JSONField(_("options"), db_default=JSON_OBJECT)
    # A user, a queue's job or an account of the host; NULL: nobody said.
    asked_by = models.CharField(_("asked by"), max_length=150, null=True)
    # The queue's job that runs it; NULL: none does.
    queue_job_id = models.BigIntegerField(_("job"), null=True)
    hostname = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    finished_at = models.DateTimeField(_("finished at"), null=True)
    lease_until = models.DateTimeField(_("lease until"))
    rows_in = models.BigIntegerField(_("rows in"), db_default=0)
    rows_out = models.BigIntegerField(_("rows out"), db_default=0)
    # What it does now: phase, tasks_done, tasks, rows_per_second.
    progress: JsonField = models.JSONField(_("progress"), db_default=JSON_OBJECT)
    error = models.TextField(_("error"), null=True)
    ui_url = models.CharField(_("address of Spark's UI"), max_length=500, null=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)
    cancel_requested_by = models.CharField(
        _("cancel requested by"), max_length=150, null=True
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


class ExportState(models.TextChoices):
    """How far the export of a day is."""

    # A run has it, and has not said yet what is in the table.
    WRITING = "writing", _("writing")
    EXPORTED = "exported", _("exported")
    # The archive has other rows of the day since: it is exported anew.
    STALE = "stale", _("stale")


class Export(models.Model):
    """
    A day of the archive that is in a Delta table: how many rows, and their checksum.

    Written by the pipeline job `export`. Retention drops a day of the archive when the
    row for the target of PGQUEUE["EXPORT"] is exported and says what the day has.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    target = models.CharField(_("target"), max_length=900)
    day = models.DateField(_("day"))
    state = models.CharField(
        _("state"), max_length=8, choices=ExportState.choices, db_default="writing"
    )
    # NULL: it was never exported; as the rest down to exported_at.
    rows = models.BigIntegerField(_("rows"), null=True)
    # Of what identifies each row, in any order, by PostgreSQL.
    checksum = models.CharField(_("checksum"), max_length=40, null=True)
    # When a run has last seen that the files are there; NULL: not yet.
    checked_at = models.DateTimeField(_("checked at"), null=True)
    # Of the table, when it was written.
    version = models.BigIntegerField(_("version"), null=True)
    exported_at = models.DateTimeField(_("exported at"), null=True)

    # The latest run that took it up, whatever became of it.
    run_id = models.BigIntegerField(_("run"))
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    error = models.TextField(_("error"), null=True)

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


class Erasure(models.Model):
    """
    A receipt: what the pipeline job `erase` has deleted, and where.

    It does not say whose rows they were: a hash with the project's SECRET_KEY lets who
    knows the value show that it was his.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    run_id = models.BigIntegerField(_("run"))
    # NULL: nobody was named.
    asked_by = models.CharField(_("asked by"), max_length=150, null=True)
    # The argument, such as kwargs.customer_id, or payload.customer_id of messages; and
    # the task, or "" for all.
    path = models.CharField(_("path"), max_length=200)
    task = models.CharField(_("task"), max_length=255)
    value_hash = models.CharField(_("hash of the value"), max_length=64)
    # Rows that are gone from the archive, and dead letters.
    archive_rows = models.BigIntegerField(_("rows of the archive"), db_default=0)
    dead_letter_rows = models.BigIntegerField(_("dead letters"), db_default=0)
    # {"orders": {"rows": 3, "first_id": 7, "last_id": 19}}: messages that are gone from
    # the log, by topic, and the first and the last of them.
    messages: JsonField = models.JSONField(_("messages"), db_default=JSON_OBJECT)
    # [{"target": "/srv/export", "day": "2026-11-21", "version": 7, "rows": 3, "files":
    # 1}]: rows that are gone by a commit, and the files that were rewritten for it.
    exports: JsonField = models.JSONField(_("exports"), db_default=JSON_LIST)
    # The same of tables of ingest.
    ingested: JsonField = models.JSONField(_("files of ingest"), db_default=JSON_LIST)
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    # NULL: the run has not come to its end; another one erases the rest.
    finished_at = models.DateTimeField(_("finished at"), null=True)

    class Meta:
        db_table = "pgqueue_erasure"
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.path} {self.started_at:%Y-%m-%d}"


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
    tasks: JsonField = models.JSONField(_("tasks"), db_default=JSON_LIST)
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


def _count(name: Any) -> models.BigIntegerField[int, int]:
    return models.BigIntegerField(name, db_default=0)


def _seconds(name: Any) -> models.FloatField[float | None, float | None]:
    return models.FloatField(name, null=True)


class TaskHour(models.Model):
    """
    The jobs of a task and a queue that ended within an hour, with all they took.

    Written by the pipeline job `metrics`. A job counts in the hour (UTC) in which it
    ended, with all of its deliveries: so an hour that is over stays as it is. Times
    are NULL where nothing was measured.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    hour = models.DateTimeField(_("hour"))
    queue = models.CharField(_("queue"), max_length=63)
    task = models.CharField(_("task"), max_length=255)

    started = _count(_("started"))  # Deliveries.
    succeeded = _count(_("succeeded"))
    failed = _count(_("failed"))  # Attempts.
    retried = _count(_("retried"))  # Attempts after the first.
    dead = _count(_("dead"))
    cancelled = _count(_("cancelled"))
    expired = _count(_("expired"))
    crashed = _count(_("crashed"))  # Deliveries.

    wait_p50 = _seconds(_("wait p50"))
    wait_p95 = _seconds(_("wait p95"))
    wait_p99 = _seconds(_("wait p99"))
    oldest_wait = _seconds(_("oldest wait"))
    run_p50 = _seconds(_("run p50"))
    run_p95 = _seconds(_("run p95"))
    run_p99 = _seconds(_("run p99"))
    worker_seconds = models.FloatField(_("worker seconds"), db_default=0)

    computed_at = models.DateTimeField(_("computed at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_task_hour"
        verbose_name = _("hour of a task")
        verbose_name_plural = _("metrics")
        default_permissions = ("view",)
        constraints = [
            # Serves the charts too: all of a span of hours.
            models.UniqueConstraint(
                name="pgqueue_task_hour_key", fields=["hour", "queue", "task"]
            ),
        ]
        indexes = [
            # Serves the chart of one task.
            models.Index(fields=["task", "hour"], name="pgqueue_task_hour_task"),
        ]

    def __str__(self) -> str:
        return f"{self.task} in {self.queue}, {self.hour:%Y-%m-%d %H:00}"


class EnqueuedHour(models.Model):
    """
    The jobs of a task and a queue that were enqueued within an hour (UTC), by place.

    Written by the pipeline job `conservation`, from one snapshot. No job goes away
    before its retention, so an hour that is over has as many as it had, wherever they
    are by now.
    """

    pk = models.CompositePrimaryKey("hour", "queue", "task")
    hour = models.DateTimeField(_("hour"))
    queue = models.CharField(_("queue"), max_length=63)
    task = models.CharField(_("task"), max_length=255)

    # The most that a run has seen.
    enqueued = models.BigIntegerField(_("enqueued"))
    # What the latest run has seen: in the queue, of whatever state; in the archive or
    # its export; among the dead letters.
    waiting = models.BigIntegerField(_("waiting"))
    archived = models.BigIntegerField(_("archived"))
    dead = models.BigIntegerField(_("dead"))

    computed_at = models.DateTimeField(_("computed at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_enqueued_hour"
        verbose_name = _("hour of enqueued jobs")
        verbose_name_plural = _("hours of enqueued jobs")
        default_permissions = ()
        indexes = [
            # Serves the doctor: hours that lack jobs.
            models.Index(
                fields=["hour"],
                name="pgqueue_enqueued_hour_missing",
                condition=Q(
                    enqueued__gt=F("waiting") + F("archived") + F("dead"),
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task} in {self.queue}, {self.hour:%Y-%m-%d %H:00}"

    @property
    def missing(self) -> int:
        """How many jobs are nowhere any more."""
        return self.enqueued - self.waiting - self.archived - self.dead

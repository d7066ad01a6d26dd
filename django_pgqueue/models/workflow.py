"""Workflows and their steps, durable steps, signals, and output of jobs."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JsonField
from django_pgqueue.models.columns import IdArray as IdArray  # noqa: PLC0414 - 0015 asks here.


class WorkflowState(models.TextChoices):
    """Where a workflow is."""

    RUNNING = "running", _("running")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    COMPENSATING = "compensating", _("compensating")
    COMPENSATED = "compensated", _("compensated")


class WorkflowKind(models.TextChoices):
    """What was said: chain() and its kin, batch(), flow(), or saga()."""

    CANVAS = "canvas", _("canvas")
    BATCH = "batch", _("batch")
    FLOW = "flow", _("flow")
    SAGA = "saga", _("saga")


class Workflow(models.Model):
    """
    A row exists from when it was stored until it has been over for as long as the
    archive is kept.

    Its numbers are of steps with a task; they change in the transaction that ends the
    step's job.
    """

    name = models.CharField(_("name"), max_length=255)
    # Of those of a kind with the same name and key only the first was stored.
    key = models.CharField(_("key"), max_length=255, null=True)
    kind = models.CharField(_("kind"), max_length=6, choices=WorkflowKind.choices)
    state = models.CharField(
        _("state"),
        max_length=12,
        choices=WorkflowState.choices,
        db_default=WorkflowState.RUNNING,
    )
    steps = models.IntegerField(_("steps"))
    # Those whose jobs are in the queue, and how others ended. Expired is cancelled.
    active = models.IntegerField(_("active"), db_default=0)
    succeeded = models.IntegerField(_("succeeded"), db_default=0)
    skipped = models.IntegerField(_("skipped"), db_default=0)
    dead = models.IntegerField(_("dead"), db_default=0)
    cancelled = models.IntegerField(_("cancelled"), db_default=0)
    # The steps whose results are the result: a list of them, if is_list.
    ends = IdArray(_("ends"), null=True)
    is_list = models.BooleanField(_("is list"), db_default=False)
    # Steps may be added from outside; it does not end before.
    is_open = models.BooleanField(_("is open"), db_default=False)

    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)
    finished_at = models.DateTimeField(_("finished at"), null=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)
    # When it is cancelled, if it has not ended by then.
    deadline_at = models.DateTimeField(_("deadline at"), null=True)
    is_overdue = models.BooleanField(_("is overdue"), db_default=False)
    # Whose results it began with.
    restarted_from = models.BigIntegerField(_("restarted from"), null=True)
    # Of a saga: by which steps it was stored; NULL: by a release that did not say so.
    version = models.CharField(_("version"), max_length=12, null=True)
    # Of a batch: the one that it is in, whose numbers count its steps as well.
    parent_id = models.BigIntegerField(_("part of"), null=True)

    class Meta:
        db_table = "pgqueue_workflow"
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        default_permissions = ("view",)
        indexes: ClassVar = [
            # Serves the retention.
            models.Index(
                fields=["finished_at"],
                name="pgqueue_workflow_finished",
                condition=models.Q(finished_at__isnull=False),
            ),
            # Serves the deadlines.
            models.Index(
                fields=["deadline_at"],
                name="pgqueue_workflow_deadline",
                condition=models.Q(state="running", deadline_at__isnull=False),
            ),
            # Serves the doctor: few are, and each of them may need somebody.
            models.Index(
                fields=["id"],
                name="pgqueue_workflow_undoing",
                condition=models.Q(state="compensating"),
            ),
            # Serves whoever asks how many sagas under way are of which version.
            models.Index(
                fields=["name", "version"],
                name="pgqueue_workflow_version",
                condition=models.Q(finished_at__isnull=True, version__isnull=False),
            ),
            # Serves the cancel of a batch, and its page.
            models.Index(
                fields=["parent_id", "id"],
                name="pgqueue_workflow_parent",
                condition=models.Q(parent_id__isnull=False),
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name", "key", "kind"], name="pgqueue_workflow_key"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


class StepState(models.TextChoices):
    """Where a step is."""

    WAITING = "waiting", _("waiting")
    STARTED = "started", _("started")
    SUCCEEDED = "succeeded", _("succeeded")
    DEAD = "dead", _("dead")
    CANCELLED = "cancelled", _("cancelled")
    EXPIRED = "expired", _("expired")
    SKIPPED = "skipped", _("skipped")


class Step(models.Model):
    """
    One step of a workflow, for as long as that exists.

    Its id is that of its job, which is stored when its turn has come.
    """

    id = models.BigIntegerField(_("id"), primary_key=True)
    workflow_id = models.BigIntegerField(_("workflow"))
    name = models.CharField(_("name"), max_length=255)
    # "step", or what starts when these have ended: "on_success", "on_error",
    # "on_complete", "compensation".
    kind = models.CharField(_("kind"), max_length=12)
    # NULL: it has no job, and gathers the results of those before it.
    task = models.CharField(_("task"), max_length=255, null=True)
    # What its job will be: queue, arguments, times from its start on, and so on.
    job: JsonField = models.JSONField(_("job"), null=True)
    after = IdArray(_("after"))
    next = IdArray(_("next"))
    # How many of those before it have not succeeded.
    waits = models.IntegerField(_("waits"))
    # What comes first among its arguments: "result", "results", "failure"; NULL: none.
    takes = models.CharField(_("takes"), max_length=10, null=True)
    # Which arguments, by place or name, are the results of which steps.
    fills: JsonField = models.JSONField(_("fills"), null=True)
    # Comparisons of results; where one does not hold, the step is skipped.
    condition: JsonField = models.JSONField(_("condition"), null=True)
    # Of a compensation: the step that it undoes.
    compensates = models.BigIntegerField(_("compensates"), null=True)

    state = models.CharField(_("state"), max_length=9, choices=StepState.choices)
    result: JsonField = models.JSONField(_("result"), null=True)
    # Of one that is dead: the reason, and the type and message of its last error.
    error: JsonField = models.JSONField(_("error"), null=True)
    started_at = models.DateTimeField(_("started at"), null=True)
    finished_at = models.DateTimeField(_("finished at"), null=True)

    class Meta:
        db_table = "pgqueue_step"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        default_permissions = ()
        indexes: ClassVar = [
            models.Index(fields=["workflow_id", "id"], name="pgqueue_step_workflow"),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


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
    result: JsonField = models.JSONField(_("result"), null=True)
    # Of a wait: for which signal.
    key = models.CharField(_("key"), max_length=255, db_default="")
    # Of a sleep or a wait: until when. NULL: without end.
    until = models.DateTimeField(_("until"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)
    done_at = models.DateTimeField(_("done at"), null=True)

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
    payload: JsonField = models.JSONField(_("payload"), null=True)
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


class Output(models.Model):
    """A value that ctx.emit() was given; rows are added, and deleted when old."""

    pk = models.CompositePrimaryKey("job_id", "sequence")
    job_id = models.BigIntegerField(_("job"))
    # The delivery and the place in it: queues/output.py.
    sequence = models.BigIntegerField(_("sequence"))
    attempt = models.IntegerField(_("attempt"))
    value: JsonField = models.JSONField(_("value"))
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

"""Jobs and where they end: the queue, the archive, and the dead letters."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext_lazy as _

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.live_states import REST, TESTS
from django_pgqueue.models.columns import CLOCK, JobColumns, JsonField, LaneHash


class LiveState(models.TextChoices):
    """What a job in the queue is doing; live_states.py says when."""

    SCHEDULED = "scheduled", _("scheduled")
    READY = "ready", _("ready")
    RUNNING = "running", _("running")
    RETRYING = "retrying", _("retrying")
    PARKED = "parked", _("parked")


# The tests of live_states.py as Django's lookups: where one holds, and where it fails.
LOOKUPS: dict[str, tuple[tuple[str, Any], tuple[str, Any]]] = {
    "IS NULL": (("isnull", True), ("isnull", False)),
    "IS NOT NULL": (("isnull", False), ("isnull", True)),
    "<= statement_timestamp()": (("lte", Now()), ("gt", Now())),
    "> 0": (("gt", 0), ("lte", 0)),
}


def live_state() -> Case:
    """Return the state of a row of pgqueue_job, by the database's clock."""
    cases = []
    for state, column, test in TESTS:
        lookup, value = LOOKUPS[test][0]
        cases.append(When(**{f"{column}__{lookup}": value}, then=Value(state)))
    return Case(*cases, default=Value(REST), output_field=models.CharField())


class JobQuerySet(models.QuerySet["Job"]):
    """The live jobs, by the state that people are shown."""

    def in_state(self, wanted: str) -> JobQuerySet:
        """Jobs whose state is *wanted*, one of LiveState."""
        rows = self
        for state, column, test in TESTS:
            holds, fails = LOOKUPS[test]
            lookup, value = holds if state == wanted else fails
            rows = rows.filter(**{f"{column}__{lookup}": value})
            if state == wanted:
                break
        return rows

    def due(self) -> JobQuerySet:
        """Jobs a worker could claim now, those of dead workers included."""
        return self.in_state(LiveState.READY)

    def running(self) -> JobQuerySet:
        """Jobs under a lease that has not run out."""
        return self.in_state(LiveState.RUNNING)

    def scheduled(self) -> JobQuerySet:
        """Jobs never tried that wait for their time."""
        return self.in_state(LiveState.SCHEDULED)

    def retrying(self) -> JobQuerySet:
        """Jobs that failed and wait for their back-off to end."""
        return self.in_state(LiveState.RETRYING)

    def parked(self) -> JobQuerySet:
        """Jobs that wait for something that is not time."""
        return self.in_state(LiveState.PARKED)


class Job(JobColumns):
    """
    A row exists from enqueue until its work is settled; then it moves on.

    So this table stays as small as the backlog. What happened afterwards is in the
    archive (succeeded, cancelled, expired) or among the dead letters (gave up).

    Database defaults throughout: ``INSERT INTO pgqueue_job (task) VALUES (…)`` is a
    valid enqueue from psql, a trigger or another language.
    """

    id = models.BigAutoField(_("id"), primary_key=True)

    # Not claimed before: start time, end of back-off or end of lease. NULL: parked.
    visible_at = models.DateTimeField(_("visible at"), null=True, db_default=CLOCK)
    # Of a job that is parked in a lane: the lane may let it through from then on. NULL:
    # it was let through, or is in none.
    lane_due_at = models.DateTimeField(_("due in its lane at"), null=True)
    # The number of the promotion that let it through, from a sequence. NULL: it has
    # waited in its lane since it was stored; 0: it came into it otherwise.
    promotion = models.BigIntegerField(_("promotion"), null=True)
    # The worker's name, as in pgqueue_worker; NULL: nobody.
    leased_by = models.CharField(_("leased by"), max_length=100, null=True)
    leased_at = models.DateTimeField(_("leased at"), null=True)
    # True: its process died while it ran, so it runs alone in its next one.
    runs_alone = models.BooleanField(_("runs alone"), db_default=False)
    # The dedup key of a job that has it only while it waits: its claim empties
    # dedup_key, and what puts the job back takes the key again where it is free.
    queued_key = models.CharField(_("queued key"), max_length=255, null=True)
    # Set by cancel(); a running task sees it through its context.
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        db_table = "pgqueue_job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("view",)
        # One list for the whole package; the other models have "view" alone.
        permissions = [
            ("view_payload", _("Can see arguments, results and tracebacks")),
            ("view_mail_body", _("Can see bodies and files of mails")),
            ("retry", _("Can retry jobs and redrive dead letters")),
            ("edit", _("Can edit the arguments of a job")),
            ("send", _("Can send and publish messages")),
            ("cancel", _("Can cancel jobs")),
            ("purge", _("Can delete finished jobs and dead letters")),
            ("pause", _("Can pause and resume queues and schedules")),
            ("run_schedule", _("Can run a schedule now")),
            ("seek", _("Can move the position of a consumer group")),
            ("run_pipeline", _("Can run and stop pipeline jobs")),
        ]
        indexes = [
            # Serves CLAIM in queues/claim.py: the same columns in the same order.
            models.Index(
                fields=["queue", "-priority", "visible_at"], name="pgqueue_job_claim"
            ),
            # Serves queues/gather.py: calls of a key that nobody has taken.
            models.Index(
                fields=["accumulate_key", "task", "queue", "visible_at"],
                name="pgqueue_job_accumulate",
                condition=Q(accumulate_key__isnull=False, leased_by__isnull=True),
            ),
            # Serves sql/promote.sql: the parked jobs of a lane, the oldest and the
            # newest; and how many of its jobs are visible or leased.
            models.Index(
                fields=["lane", "id"],
                name="pgqueue_job_lane_parked",
                condition=Q(visible_at__isnull=True, lane__isnull=False),
            ),
            models.Index(
                F("lane"),
                Coalesce("promotion", 0),
                name="pgqueue_job_lane_visible",
                condition=Q(visible_at__isnull=False, lane__isnull=False),
            ),
            # Of a limit, those that have been due for longest.
            models.Index(
                fields=["lane", "lane_due_at"],
                name="pgqueue_job_lane_due",
                condition=Q(visible_at__isnull=True, lane_capacity__isnull=False),
            ),
            # The same of those that came back, which a floor does not know of.
            models.Index(
                fields=["lane", "id", "promotion"],
                name="pgqueue_job_lane_back",
                condition=Q(
                    visible_at__isnull=True,
                    lane__isnull=False,
                    promotion__isnull=False,
                ),
            ),
            models.Index(
                fields=["lane", "lane_due_at", "id"],
                name="pgqueue_job_lane_back_due",
                condition=Q(
                    visible_at__isnull=True,
                    lane_capacity__isnull=False,
                    promotion__isnull=False,
                ),
            ),
            # Serves queues/fair.py: of a queue, the lanes that take turns, and of each
            # those that have been due for longest.
            models.Index(
                fields=["queue", "lane", "lane_due_at"],
                name="pgqueue_job_fair",
                condition=Q(visible_at__isnull=True, lane_policy="fair"),
            ),
            # Serves sql/pull_heads.sql: of a pull queue, the lanes and their messages.
            models.Index(
                F("queue"),
                LaneHash("lane", Value(0)),
                F("lane"),
                F("id"),
                name="pgqueue_job_pull",
                condition=Q(visible_at__isnull=True, task=PULL_TASK),
            ),
            # Serves queues/lanes.py: lanes with jobs that have become due. After fair
            # ones, claims look themselves.
            models.Index(
                fields=["lane_due_at", "id"],
                name="pgqueue_job_lane_intake",
                condition=Q(lane_due_at__isnull=False) & ~Q(lane_policy="fair"),
            ),
            # Serves queues/suspects.py: the few jobs that run alone.
            models.Index(
                fields=["visible_at"],
                name="pgqueue_job_alone",
                condition=Q(runs_alone=True),
            ),
            # Serves BUSY in schedules/ticks.py: whether a schedule has a live job.
            models.Index(
                fields=["schedule_id"],
                name="pgqueue_job_schedule",
                condition=Q(schedule_id__isnull=False),
            ),
        ]
        # What a row must satisfy besides: sql/check_job.sql.
        constraints = [
            models.UniqueConstraint(
                name="pgqueue_job_dedup_key",
                fields=["dedup_key"],
                condition=Q(dedup_key__isnull=False),
            ),
        ]


class ArchivedState(models.TextChoices):
    """How an archived job ended."""

    SUCCEEDED = "succeeded", _("succeeded")
    CANCELLED = "cancelled", _("cancelled")
    EXPIRED = "expired", _("expired")


class ArchivedJob(JobColumns):
    """
    A row exists from the settle of a job until its day is older than the retention.

    The table is partitioned by the day (UTC) of finished_at, so that retention drops
    whole days. The primary key in the database is (id, finished_at), because a
    partitioned table needs its partition column there; ids are unique all the same,
    since only one settle of a job can win.
    """

    id = models.BigIntegerField(_("id"), primary_key=True)
    state = models.CharField(_("state"), max_length=9, choices=ArchivedState.choices)
    result: JsonField = models.JSONField(_("result"), null=True)
    # NULL: it never started (expired or cancelled before).
    started_at = models.DateTimeField(_("started at"), null=True)
    finished_at = models.DateTimeField(_("finished at"))
    # The worker that settled it; its row in pgqueue_worker may be long gone.
    worker = models.CharField(_("worker"), max_length=100, null=True)

    class Meta:
        db_table = "pgqueue_archived_job"
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
        default_permissions = ("view",)
        indexes = [
            # Serves the dropping of results past RESULT_TTL_SECONDS.
            models.Index(
                fields=["finished_at"],
                name="pgqueue_archived_job_result",
                condition=models.Q(result__isnull=False),
            ),
        ]


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
    started_at = models.DateTimeField(_("started at"), null=True)
    finished_at = models.DateTimeField(_("finished at"))
    # As that of the job: a redrive takes it again.
    queued_key = models.CharField(_("queued key"), max_length=255, null=True)
    worker = models.CharField(_("worker"), max_length=100, null=True)

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

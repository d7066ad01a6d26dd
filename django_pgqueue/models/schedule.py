"""A schedule, and each tick of it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_LIST, JSON_OBJECT, JsonField


class ScheduleSource(models.TextChoices):
    """Who made a schedule."""

    CODE = "code", _("code")
    USER = "user", _("user")


class Overlap(models.TextChoices):
    """What a tick does while a job of an earlier one is not done."""

    SKIP = "skip", _("skip")
    QUEUE = "queue", _("queue")


class TickOutcome(models.TextChoices):
    """What has become of a tick."""

    ENQUEUED = "enqueued", _("enqueued")
    PUBLISHED = "published", _("published")
    OVERLAP = "overlap", _("skipped: the one before was not done")
    DUPLICATE = "duplicate", _("skipped: its dedup key is held")
    MISSED = "missed", _("missed")


class Schedule(models.Model):
    """
    When a task is enqueued, or a message published, by itself.

    Declared by code with @cron or @every, or made by a user. The columns are what
    holds; what the code says of its own ones is kept in `declared`, so that somebody
    may change one here and take that back.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    name = models.CharField(_("name"), max_length=255, unique=True)
    source = models.CharField(
        _("source"), max_length=4, choices=ScheduleSource.choices, db_default="user"
    )
    task = models.CharField(_("task"), max_length=255)
    args: JsonField = models.JSONField(_("positional arguments"), db_default=JSON_LIST)
    kwargs: JsonField = models.JSONField(_("keyword arguments"), db_default=JSON_OBJECT)
    # Instead of a task, of which the name is empty then: what is published.
    message_name = models.CharField(_("message"), max_length=255, null=True)
    message_key = models.CharField(_("key"), max_length=1_000, null=True)
    message_payload: JsonField = models.JSONField(_("payload"), null=True)
    # NULL: as the task says.
    queue = models.CharField(_("queue"), max_length=63, null=True)
    priority = models.SmallIntegerField(_("priority"), null=True)

    # One of the two.
    expression = models.CharField(_("cron expression"), max_length=255, null=True)
    every_seconds = models.IntegerField(_("every, in seconds"), null=True)
    tz = models.CharField(_("time zone"), max_length=100, db_default="UTC")
    # "skip", "one" or "all(N)": timetable/catch_up.py.
    catch_up = models.CharField(_("catch up"), max_length=10, db_default="one")
    overlap = models.CharField(
        _("overlap"), max_length=5, choices=Overlap.choices, db_default="skip"
    )
    jitter_seconds = models.IntegerField(_("jitter, in seconds"), db_default=0)

    # What the code says, by the names of the columns above; NULL: made by a user.
    declared: JsonField = models.JSONField(_("declared"), null=True)
    last_declared_at = models.DateTimeField(_("last declared at"), null=True)
    # The code that was last migrated does not declare it any more: it has no ticks.
    withdrawn_at = models.DateTimeField(_("withdrawn at"), null=True)
    overridden_at = models.DateTimeField(_("overridden at"), null=True)
    overridden_by = models.CharField(_("overridden by"), max_length=150, null=True)
    paused_at = models.DateTimeField(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True)
    pause_reason = models.TextField(_("pause reason"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)
    created_by = models.CharField(_("created by"), max_length=150, null=True)

    # Raised by whatever changes the row, ticks aside: a scheduler that has read an
    # earlier one does nothing.
    revision = models.IntegerField(_("revision"), db_default=0)
    # No tick is due before: when it was made, resumed, or got another timetable.
    ticks_from = models.DateTimeField(_("ticks from"), db_default=CLOCK)
    # The due time of the latest tick that was dealt with; never moves back.
    last_tick = models.DateTimeField(_("last tick"), null=True)
    # The first one after it; NULL: to be reckoned, or there is none.
    next_tick = models.DateTimeField(_("next tick"), null=True)
    # Why there is no next tick, where the row cannot be read.
    error = models.TextField(_("error"), null=True)

    class Meta:
        db_table = "pgqueue_schedule"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        default_permissions = ("add", "change", "delete", "view")
        indexes = [
            # Serves DUE in schedules/ticks.py.
            models.Index(
                fields=["next_tick"],
                name="pgqueue_schedule_next",
                condition=Q(paused_at__isnull=True, withdrawn_at__isnull=True),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="pgqueue_schedule_timetable",
                condition=Q(expression__isnull=False, every_seconds__isnull=True)
                | Q(expression__isnull=True, every_seconds__gte=1),
            ),
            models.CheckConstraint(
                name="pgqueue_schedule_source",
                condition=Q(source="code", declared__isnull=False)
                | Q(source="user", declared__isnull=True),
            ),
            models.CheckConstraint(
                name="pgqueue_schedule_overlap",
                condition=Q(overlap__in=Overlap.values),
            ),
            models.CheckConstraint(
                name="pgqueue_schedule_jitter", condition=Q(jitter_seconds__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Tick(models.Model):
    """
    One due moment of a schedule, with the job or the message that came of it.

    Inserted in the transaction that enqueues or publishes it, and unique: however many
    schedulers there are, one of them gets it.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    schedule_id = models.BigIntegerField(_("schedule"))
    due_at = models.DateTimeField(_("due at"))
    ticked_at = models.DateTimeField(_("ticked at"), db_default=CLOCK)
    outcome = models.CharField(
        _("outcome"), max_length=9, choices=TickOutcome.choices, db_default="enqueued"
    )
    # NULL: none came of it.
    job_id = models.BigIntegerField(_("job"), null=True)
    message_id = models.BigIntegerField(_("message"), null=True)
    # How many ticks before this one were due and dropped; at most 1,000 are counted.
    missed = models.SmallIntegerField(_("missed before"), db_default=0)
    # Who asked for it by hand; NULL: the time did.
    asked_by = models.CharField(_("asked by"), max_length=150, null=True)

    class Meta:
        db_table = "pgqueue_tick"
        verbose_name = _("tick")
        verbose_name_plural = _("ticks")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                name="pgqueue_tick_key", fields=["schedule_id", "due_at"]
            ),
            models.CheckConstraint(
                name="pgqueue_tick_outcome",
                condition=Q(outcome__in=TickOutcome.values),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.due_at:%Y-%m-%d %H:%M:%S}"

"""Consumer groups, and their position in each partition of a topic's log."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK


class OnError(models.TextChoices):
    """What a group does about a message that its handler cannot take."""

    RETRY = "retry", _("retry for ever")
    SKIP = "skip", _("retry, then to the dead letters")
    HALT = "halt", _("retry, then halt the partition")


class ConsumerGroup(models.Model):
    """
    Reads a topic's log in order, by partition.

    Declared with @consume. Its readers are workers; each partition is read by one of
    them at a time.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    topic_id = models.IntegerField(_("topic id"))
    topic = models.CharField(_("topic"), max_length=63)
    name = models.CharField(_("name"), max_length=63)
    task = models.CharField(_("task"), max_length=255)
    # Workers that serve this queue read; its dead letters stand there.
    queue = models.CharField(_("queue"), max_length=63, db_default="default")
    batch = models.IntegerField(_("messages per batch"), db_default=500)
    lease_seconds = models.FloatField(_("lease, in seconds"), db_default=60.0)
    is_atomic = models.BooleanField(_("atomic"), db_default=False)
    payload_filter: models.JSONField[Any, Any] = models.JSONField(
        _("where"), null=True, blank=True
    )
    on_error = models.CharField(
        _("on error"), max_length=5, choices=OnError.choices, db_default="skip"
    )
    max_attempts = models.SmallIntegerField(_("maximum attempts"), db_default=5)
    # "latest", "earliest" or a time in ISO 8601: where it began.
    start = models.CharField(_("start"), max_length=40, db_default="latest")

    # It has positions of several generations of partitions, and reads those by id.
    is_merging = models.BooleanField(_("merging"), db_default=False)

    paused_at = models.DateTimeField(_("paused at"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True, blank=True)
    pause_reason = models.TextField(_("pause reason"), null=True, blank=True)
    last_declared_at = models.DateTimeField(
        _("last declared at"), null=True, blank=True
    )
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_consumer_group"
        verbose_name = _("consumer group")
        verbose_name_plural = _("consumer groups")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["topic_id", "name"], name="pgqueue_consumer_group_name"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


class Position(models.Model):
    """
    Up to where a group has read one partition, and who reads it now.

    The lease says who; the fence is raised by every claim and every seek, and a
    reader whose fence is older writes nothing.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    group_id = models.BigIntegerField(_("group"))
    partition = models.SmallIntegerField(_("partition"))
    # The id of the last message that is done; those after it are to be read.
    position = models.BigIntegerField(_("position"), db_default=0)
    moved_at = models.DateTimeField(_("moved at"), null=True, blank=True)

    fence = models.BigIntegerField(_("fence"), db_default=0)
    leased_by = models.CharField(_("leased by"), max_length=100, null=True, blank=True)
    leased_until = models.DateTimeField(_("leased until"), null=True, blank=True)
    # Claimed in this order, so that all partitions get their turn.
    last_read_at = models.DateTimeField(_("last read at"), db_default=CLOCK)

    # Failures of what comes next, since the position last moved.
    failures = models.SmallIntegerField(_("failures"), db_default=0)
    # Not read before this: the end of a back-off.
    retry_at = models.DateTimeField(_("retry at"), null=True, blank=True)
    # Messages are handed over one by one up to this id, to find the one that fails.
    single_to = models.BigIntegerField(_("one by one up to"), null=True, blank=True)
    # Entries like those of a job's errors.
    errors: models.JSONField[Any, Any] = models.JSONField(
        _("errors"), null=True, blank=True
    )
    # Nothing is read until somebody resumes or seeks.
    halted_at = models.DateTimeField(_("halted at"), null=True, blank=True)
    # "error" or "retention".
    halted_for = models.CharField(_("halted for"), max_length=9, null=True, blank=True)

    class Meta:
        db_table = "pgqueue_position"
        verbose_name = _("position")
        verbose_name_plural = _("positions")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["group_id", "partition"], name="pgqueue_position_partition"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group_id}/{self.partition}"

"""Subscriptions and consumer groups: who gets the messages of a topic."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import (
    CLOCK,
    JSON_OBJECT,
    IdArray,
    JsonField,
    TextArray,
)


class SubscriptionSource(models.TextChoices):
    """Who made a subscription."""

    CODE = "code", _("code")
    USER = "user", _("user")


class Subscription(models.Model):
    """
    Routes the messages that a pattern selects to a queue: a job for each.

    Declared by the receiver, with @subscribe; the publisher knows nothing of it. What
    publish() needs of the receiver's options stands here.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    source = models.CharField(
        _("source"),
        max_length=4,
        choices=SubscriptionSource.choices,
        db_default="user",
    )
    pattern = models.CharField(_("pattern"), max_length=255)
    # The one topic that the pattern can match; NULL: any.
    topic = models.CharField(_("topic"), max_length=63, null=True)
    # The pattern as a regular expression, for queries of yours; NULL: every name of the
    # topic. Nothing of ours reads it.
    regex = models.CharField(_("regular expression"), max_length=2_000, null=True)
    # Only messages whose payload contains this; NULL: all.
    payload_filter: JsonField = models.JSONField(_("where"), null=True)
    task = models.CharField(_("task"), max_length=255)
    queue = models.CharField(_("queue"), max_length=63, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    max_attempts = models.SmallIntegerField(_("maximum attempts"), db_default=5)
    # Added to those of the message: tags.
    headers: JsonField = models.JSONField(_("headers"), db_default=JSON_OBJECT)

    # What of a message makes the lane of its job: "key", "name", or "payload." and a
    # field. NULL: it has none; empty: that of the task. The others as of a job.
    lane_by = TextArray(_("lane by"), null=True)
    lane_capacity = models.IntegerField(_("lane capacity"), null=True)
    lane_spacing = models.FloatField(_("lane spacing"), null=True)
    lane_burst = models.IntegerField(_("lane burst"), null=True)
    lane_policy = models.CharField(_("lane policy"), max_length=20, null=True)

    # How many jobs of its task may wait in its queue, and what is done beyond that;
    # NULL: any number.
    backlog_max = models.IntegerField(_("backlog maximum"), null=True)
    backlog_on_full = models.CharField(_("when it is full"), max_length=11, null=True)
    # What the leader has counted; since when there are too many, and since when it
    # makes no jobs for that.
    backlog = models.IntegerField(_("backlog"), null=True)
    backlog_at = models.DateTimeField(_("counted at"), null=True)
    full_at = models.DateTimeField(_("full since"), null=True)
    held_at = models.DateTimeField(_("held since"), null=True)

    # Messages of this epoch and later ones have their job; see LogState.
    since_epoch = models.BigIntegerField(_("since epoch"), db_default=0)
    # "latest", "earliest" or a time in ISO 8601: which messages it began with.
    start = models.CharField(_("start"), max_length=40, db_default="latest")
    # The id up to which messages of older epochs have their job; NULL: all have.
    backfill_position = models.BigIntegerField(_("back-filled up to"), null=True)
    # Epochs where messages without a job begin and end, by turns; the last one may have
    # no end yet. NULL: those before since_epoch.
    missed = IdArray(_("missed epochs"), null=True)
    # The transaction that subscribed: one that began before it may still publish
    # messages of an older epoch. An xid8.
    backfill_xid = models.BigIntegerField(_("subscribing transaction"), null=True)

    # What retention has last removed before it had its job: how much, which, of when.
    lost: JsonField = models.JSONField(_("lost"), null=True)

    disabled_at = models.DateTimeField(_("disabled at"), null=True)
    disabled_by = models.CharField(_("disabled by"), max_length=150, null=True)
    disabled_reason = models.TextField(_("reason"), null=True)
    # Of those that code declares.
    last_declared_at = models.DateTimeField(_("last declared at"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_subscription"
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "pattern", "task"], name="pgqueue_subscription_route"
            ),
        ]
        # By the patterns that select a name; and by topic, those of long names.
        indexes = [
            models.Index(
                fields=["pattern"],
                name="pgqueue_subscription_routes",
                condition=models.Q(disabled_at__isnull=True),
            ),
            models.Index(
                fields=["topic"],
                name="pgqueue_subscription_topic",
                condition=models.Q(disabled_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pattern} → {self.queue}"


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
    payload_filter: JsonField = models.JSONField(_("where"), null=True)
    on_error = models.CharField(
        _("on error"), max_length=5, choices=OnError.choices, db_default="skip"
    )
    max_attempts = models.SmallIntegerField(_("maximum attempts"), db_default=5)
    # "latest", "earliest" or a time in ISO 8601: where it began.
    start = models.CharField(_("start"), max_length=40, db_default="latest")

    # It has positions of several generations of partitions, and reads those by id.
    is_merging = models.BooleanField(_("merging"), db_default=False)

    paused_at = models.DateTimeField(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True)
    pause_reason = models.TextField(_("pause reason"), null=True)
    last_declared_at = models.DateTimeField(_("last declared at"), null=True)
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
    moved_at = models.DateTimeField(_("moved at"), null=True)

    fence = models.BigIntegerField(_("fence"), db_default=0)
    leased_by = models.CharField(_("leased by"), max_length=100, null=True)
    leased_until = models.DateTimeField(_("leased until"), null=True)
    # Claimed in this order, so that all partitions get their turn.
    last_read_at = models.DateTimeField(_("last read at"), db_default=CLOCK)

    # Failures of what comes next, since the position last moved.
    failures = models.SmallIntegerField(_("failures"), db_default=0)
    # Not read before this: the end of a back-off.
    retry_at = models.DateTimeField(_("retry at"), null=True)
    # Messages are handed over one by one up to this id, to find the one that fails.
    single_to = models.BigIntegerField(_("one by one up to"), null=True)
    # Entries like those of a job's errors.
    errors: JsonField = models.JSONField(_("errors"), null=True)
    # Nothing is read until somebody resumes or seeks.
    halted_at = models.DateTimeField(_("halted at"), null=True)
    # "error" or "retention".
    halted_for = models.CharField(_("halted for"), max_length=9, null=True)

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

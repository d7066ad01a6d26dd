"""Subscriptions: which messages become jobs, of which task and in which queue."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_OBJECT, IdArray, TextArray


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
    topic = models.CharField(_("topic"), max_length=63, null=True, blank=True)
    # The pattern as a regular expression, for queries of yours; NULL: every name of the
    # topic. Nothing of ours reads it.
    regex = models.CharField(_("regular expression"), max_length=2_000, null=True)
    # Only messages whose payload contains this; NULL: all.
    payload_filter: models.JSONField[Any, Any] = models.JSONField(
        _("where"), null=True, blank=True
    )
    task = models.CharField(_("task"), max_length=255)
    queue = models.CharField(_("queue"), max_length=63, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    max_attempts = models.SmallIntegerField(_("maximum attempts"), db_default=5)
    # Added to those of the message: tags.
    headers: models.JSONField[Any, Any] = models.JSONField(
        _("headers"), db_default=JSON_OBJECT
    )

    # What of a message makes the lane of its job: "key", "name", or "payload." and a
    # field. NULL: it has none; empty: that of the task. The others as of a job.
    lane_by = TextArray(_("lane by"), null=True, blank=True)
    lane_capacity = models.IntegerField(_("lane capacity"), null=True, blank=True)
    lane_spacing = models.FloatField(_("lane spacing"), null=True, blank=True)
    lane_burst = models.IntegerField(_("lane burst"), null=True, blank=True)
    lane_policy = models.CharField(
        _("lane policy"), max_length=20, null=True, blank=True
    )

    # How many jobs of its task may wait in its queue, and what is done beyond that;
    # NULL: any number.
    backlog_max = models.IntegerField(_("backlog maximum"), null=True, blank=True)
    backlog_on_full = models.CharField(
        _("when it is full"), max_length=11, null=True, blank=True
    )
    # What the leader has counted; since when there are too many, and since when it
    # makes no jobs for that.
    backlog = models.IntegerField(_("backlog"), null=True, blank=True)
    backlog_at = models.DateTimeField(_("counted at"), null=True, blank=True)
    full_at = models.DateTimeField(_("full since"), null=True, blank=True)
    held_at = models.DateTimeField(_("held since"), null=True, blank=True)

    # Messages of this epoch and later ones have their job; see LogState.
    since_epoch = models.BigIntegerField(_("since epoch"), db_default=0)
    # "latest", "earliest" or a time in ISO 8601: which messages it began with.
    start = models.CharField(_("start"), max_length=40, db_default="latest")
    # The id up to which messages of older epochs have their job; NULL: all have.
    backfill_position = models.BigIntegerField(
        _("back-filled up to"), null=True, blank=True
    )
    # Epochs where messages without a job begin and end, by turns; the last one may have
    # no end yet. NULL: those before since_epoch.
    missed = IdArray(_("missed epochs"), null=True, blank=True)
    # The transaction that subscribed: one that began before it may still publish
    # messages of an older epoch. An xid8.
    backfill_xid = models.BigIntegerField(
        _("subscribing transaction"), null=True, blank=True
    )

    # What retention has last removed before it had its job: how much, which, of when.
    lost: models.JSONField[Any, Any] = models.JSONField(
        _("lost"), null=True, blank=True
    )

    disabled_at = models.DateTimeField(_("disabled at"), null=True, blank=True)
    disabled_by = models.CharField(
        _("disabled by"), max_length=150, null=True, blank=True
    )
    disabled_reason = models.TextField(_("reason"), null=True, blank=True)
    # Of those that code declares.
    last_declared_at = models.DateTimeField(
        _("last declared at"), null=True, blank=True
    )
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

"""Topics: the log, what is published later, and what has come in from outside."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.bounds import EXTERNAL_ID_CHARACTERS_MAX, SOURCE_CHARACTERS_MAX
from django_pgqueue.models.columns import CLOCK, JSON_OBJECT, JsonField


class Topic(models.Model):
    """
    Where messages are published.

    A row is made when code that declares the topic is migrated, or by its first
    message. Its id stands in every message, and in the key of the advisory lock that
    a publishing transaction holds.
    """

    id = models.AutoField(_("id"), primary_key=True)
    name = models.CharField(_("name"), max_length=63, unique=True)
    partitions = models.SmallIntegerField(_("partitions"), db_default=16)
    # The number of the first of them: each change of their count begins new ones.
    first_partition = models.SmallIntegerField(_("first partition"), db_default=0)
    # NULL: as PGQUEUE["RETENTION"]["log"] says.
    retain = models.DurationField(_("retention"), null=True)
    # How many bytes of messages it may have; NULL: any number.
    retain_bytes = models.BigIntegerField(_("bytes kept"), null=True)
    # How many it had, by the leader's last estimate; NULL: there was none.
    log_bytes = models.BigIntegerField(_("bytes"), null=True)
    log_bytes_at = models.DateTimeField(_("measured at"), null=True)
    # For how long after that its messages wait for the pipeline job ingest; NULL: as
    # PGQUEUE["RETENTION"]["wait_for_ingest"] says.
    wait_for_ingest = models.DurationField(_("wait for ingest"), null=True)
    # The class that payloads are checked against, for people; NULL: none.
    schema = models.CharField(_("schema"), max_length=255, null=True)
    # Retention has removed messages up to this id, or is about to.
    removed_to = models.BigIntegerField(_("removed up to"), db_default=0)
    # What the code last said: {"partitions": …, "retain": seconds, …}; NULL: nothing.
    declared: JsonField = models.JSONField(_("declared"), null=True)
    last_declared_at = models.DateTimeField(_("last declared at"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_topic"
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class Generation(models.Model):
    """
    The partitions that a topic had before their count was changed.

    Those that it has now stand in its own row. A transaction that does not see the
    change still publishes into the former ones.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    topic_id = models.IntegerField(_("topic"))
    first_partition = models.SmallIntegerField(_("first partition"))
    partitions = models.SmallIntegerField(_("partitions"))
    ended_at = models.DateTimeField(_("ended at"), db_default=CLOCK)
    # Of the transaction that has changed the count, as pg_current_xact_id() gives it.
    ended_by = models.BigIntegerField(_("ended by the transaction"))
    # No message of it has a higher id; NULL: somebody may still publish one.
    last_id = models.BigIntegerField(_("last id"), null=True)

    class Meta:
        db_table = "pgqueue_generation"
        verbose_name = _("generation of partitions")
        verbose_name_plural = _("generations of partitions")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["topic_id", "first_partition"],
                name="pgqueue_generation_first",
            ),
        ]

    def __str__(self) -> str:
        last = self.first_partition + self.partitions - 1
        return f"{self.first_partition} to {last}"


class Message(models.Model):
    """
    What was published; it stays for as long as its topic keeps its day.

    The table is partitioned by the day (UTC) of published_at, so that retention drops
    whole days. The primary key in the database is (id, published_at), because a
    partitioned table needs its partition column there; ids are unique all the same,
    since they come from one sequence, over all topics.
    """

    id = models.BigIntegerField(_("id"), primary_key=True)
    published_at = models.DateTimeField(_("published at"), db_default=CLOCK)
    # Of LogState, as the statement that has published saw it.
    epoch = models.BigIntegerField(_("epoch"), db_default=0)
    topic_id = models.IntegerField(_("topic"))
    # The topic's first one, and hash(key) modulo their count; without a key, any.
    partition = models.SmallIntegerField(_("partition"))
    name = models.CharField(_("name"), max_length=255)
    key = models.CharField(_("key"), max_length=1_000, null=True)
    payload: JsonField = models.JSONField(_("payload"))
    # Trace context, request id; keys that begin with "pgqueue." are ours.
    headers: JsonField = models.JSONField(_("headers"), db_default=JSON_OBJECT)

    class Meta:
        db_table = "pgqueue_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        default_permissions = ("view",)
        indexes = [
            # Serves the readers of a topic's log: ids after a position.
            models.Index(
                fields=["topic_id", "partition", "id"], name="pgqueue_message_log"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


class LogDay(models.Model):
    """
    A day of the log that is over, and the highest id that can be in it.

    A reader whose position is at or after that id need not look into the day.
    """

    day = models.DateField(_("day"), primary_key=True)
    last_id = models.BigIntegerField(_("last id"))
    # Bytes by the id of each topic, estimated once; NULL: not yet.
    topic_bytes: JsonField = models.JSONField(_("bytes of topics"), null=True)

    class Meta:
        db_table = "pgqueue_log_day"
        verbose_name = _("day of the log")
        verbose_name_plural = _("days of the log")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.day)


class LogState(models.Model):
    """
    One row: the epoch, which every new subscription raises.

    A message stores the epoch that its publishing statement saw, together with the
    subscriptions that it saw: what an older epoch has, a subscription did not get.
    """

    id = models.SmallIntegerField(_("id"), primary_key=True, db_default=1)
    epoch = models.BigIntegerField(_("epoch"), db_default=0)

    class Meta:
        db_table = "pgqueue_log_state"
        verbose_name = _("state of the log")
        verbose_name_plural = _("state of the log")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.epoch)


class InboxEntry(models.Model):
    """
    A message from outside, by who has sent it and what that one calls it.

    A row is stored in the transaction of what the message has led to, and stays until
    its retention has passed: a second one finds it.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    source = models.CharField(_("source"), max_length=SOURCE_CHARACTERS_MAX)
    external_id = models.CharField(
        _("external id"), max_length=EXTERNAL_ID_CHARACTERS_MAX
    )
    received_at = models.DateTimeField(_("received at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_inbox"
        verbose_name = _("inbox entry")
        verbose_name_plural = _("inbox")
        default_permissions = ("view",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["source", "external_id"], name="pgqueue_inbox_once"
            ),
            models.CheckConstraint(
                condition=~Q(source="") & ~Q(external_id=""),
                name="pgqueue_inbox_named",
            ),
        ]
        indexes: ClassVar = [
            # Serves the retention.
            models.Index(fields=["received_at"], name="pgqueue_inbox_old"),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.external_id}"

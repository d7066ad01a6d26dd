"""
The columns that a job keeps wherever its row is: queue, archive or dead letters.

A job moves between three tables. What describes it has the same name and type in all
of them, so that a move is a plain INSERT … SELECT and a query over all three a UNION.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from django.db import models
from django.db.models import Func, Value
from django.utils.translation import gettext_lazy as _

# Type checkers want to know what a JSONField is set to and gives.
JsonField: TypeAlias = "models.JSONField[Any, Any]"

JSON_LIST = Value([], models.JSONField())
JSON_OBJECT = Value({}, models.JSONField())

# Each column default is the database's clock at that very moment, not the start of
# the transaction: rows of one transaction keep their order.
CLOCK = Func(
    function="clock_timestamp",
    template="%(function)s()",
    output_field=models.DateTimeField(),
)


class LaneHash(Func):
    """
    A number that a lane's name is hashed to, of all that eight bytes hold.

    Where a place among lanes is drawn by lot, it is one of these.
    """

    function = "hashtextextended"
    output_field = models.BigIntegerField()


class TextArray(models.Field):  # type: ignore[type-arg]
    """A list of texts. From 6.1 on, ArrayField asks for an app more to be installed."""

    def db_type(self, connection: Any) -> str:
        """Return its type in the database."""
        return "text[]"


class IdArray(models.Field):  # type: ignore[type-arg]
    """A list of ids; see TextArray for why it is no ArrayField."""

    def db_type(self, connection: Any) -> str:
        """Return its type in the database."""
        return "bigint[]"


class JobColumns(models.Model):
    """What a job is, alike in the queue, the archive and the dead letters."""

    queue = models.CharField(_("queue"), max_length=63, db_default="default")
    task = models.CharField(_("task"), max_length=255)
    args: JsonField = models.JSONField(_("positional arguments"), db_default=JSON_LIST)
    kwargs: JsonField = models.JSONField(_("keyword arguments"), db_default=JSON_OBJECT)
    # Trace context, tags, request id; keys that begin with "pgqueue." are ours.
    headers: JsonField = models.JSONField(_("headers"), db_default=JSON_OBJECT)
    priority = models.SmallIntegerField(_("priority"), db_default=0)  # Higher first.

    # The time the caller asked for; NULL: at once. Apart from visible_at, so that
    # parking a job does not lose it.
    run_after = models.DateTimeField(_("run after"), null=True)
    enqueued_at = models.DateTimeField(_("enqueued at"), db_default=CLOCK)
    expires_at = models.DateTimeField(_("expires at"), null=True)

    # Counts towards dead-lettering; raised by the claim, given back by a crash.
    attempt = models.SmallIntegerField(_("attempt"), db_default=0)
    max_attempts = models.SmallIntegerField(_("maximum attempts"), db_default=5)
    # Deliveries that ended without a settle: process death or lapsed lease.
    crashes = models.SmallIntegerField(_("crashes"), db_default=0)
    # Raised by every claim, never reset, not even by redrive: the fencing token.
    deliveries = models.IntegerField(_("deliveries"), db_default=0)

    dedup_key = models.CharField(_("dedup key"), max_length=255, null=True)
    # Of a task with accumulate: calls of one key are run together. NULL: of others.
    accumulate_key = models.CharField(_("accumulate key"), max_length=255, null=True)
    lane = models.CharField(_("lane"), max_length=255, null=True)
    lane_capacity = models.IntegerField(_("lane capacity"), null=True)
    # Of a rate: seconds from one job to the next, and how many may be ahead of that.
    lane_spacing = models.FloatField(_("lane spacing"), null=True)
    lane_burst = models.IntegerField(_("lane burst"), null=True)
    # Of a group, what a job of it that fails does to the others: "skip" or
    # "dead-letter"; NULL: they wait. "fair": its lane takes turns with others.
    lane_policy = models.CharField(_("lane policy"), max_length=20, null=True)

    # One entry per failed attempt or crash: kind, type, message, traceback, at, ….
    errors: JsonField = models.JSONField(_("errors"), db_default=JSON_LIST)
    # What the task last reported about itself.
    progress: JsonField = models.JSONField(_("progress"), null=True)

    workflow_id = models.BigIntegerField(_("workflow"), null=True)
    parent_id = models.BigIntegerField(_("parent job"), null=True)
    message_id = models.BigIntegerField(_("message"), null=True)
    schedule_id = models.BigIntegerField(_("schedule"), null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"

"""Messages that are published later."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Func
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_OBJECT

# Below zero, since those of messages in a log are above it.
NEXT_ID = Func(
    function="nextval",
    template="-%(function)s('pgqueue_scheduled_message_id_seq')",
    output_field=models.BigIntegerField(),
)


class ScheduledMessage(models.Model):
    """
    What publish(run_after=…) was given, until its moment.

    Then the leader moves it into its topic's log, where it has another id, and this row
    is gone; so it is if somebody has cancelled it.
    """

    id = models.BigIntegerField(_("id"), primary_key=True, db_default=NEXT_ID)
    topic = models.CharField(_("topic"), max_length=63)
    name = models.CharField(_("name"), max_length=255)
    key = models.CharField(_("key"), max_length=1_000, null=True, blank=True)
    payload: models.JSONField[Any, Any] = models.JSONField(_("payload"))
    headers: models.JSONField[Any, Any] = models.JSONField(
        _("headers"), db_default=JSON_OBJECT
    )
    # The moment that the caller has asked for.
    run_after = models.DateTimeField(_("run after"))
    # When the leader publishes it: at that moment, and later if that failed.
    due_at = models.DateTimeField(_("due at"))
    # How often that has failed, and with what the last time.
    failures = models.SmallIntegerField(_("failures"), db_default=0)
    error = models.TextField(_("error"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)

    class Meta:
        db_table = "pgqueue_scheduled_message"
        verbose_name = _("scheduled message")
        verbose_name_plural = _("scheduled messages")
        default_permissions = ("view",)
        indexes: ClassVar = [
            # Serves the leader, and lists: of one moment, in the order of publish().
            models.Index(fields=["due_at", "-id"], name="pgqueue_scheduled_due"),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"

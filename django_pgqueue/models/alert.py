"""An alert: something that the watch has found wrong, and said."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Alert(models.Model):
    """
    A row exists from the look that found it until some days after its end.

    Rows are written by pgqueue_watch() alone, which says each of them once.
    """

    # The kind, a colon and the subject.
    name = models.CharField(_("name"), max_length=300, primary_key=True)
    kind = models.CharField(_("kind"), max_length=20)
    # Whose: a queue, a task, a schedule, or a topic and a group.
    subject = models.CharField(_("subject"), max_length=275)
    # Of jobs, dead letters or partitions; counted up to a bound.
    count = models.IntegerField(_("count"))
    detail = models.TextField(_("detail"))
    began_at = models.DateTimeField(_("began at"))
    # When it was last said, and with which count: that it began, grew or ended.
    said_at = models.DateTimeField(_("said at"))
    said_count = models.IntegerField(_("said count"))
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_alert"
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        default_permissions = ()
        indexes: ClassVar = [
            # Serves queues/watch.py: what was said since a moment.
            models.Index(fields=["said_at"], name="pgqueue_alert_said"),
            models.Index(
                fields=["began_at"],
                name="pgqueue_alert_standing",
                condition=Q(ended_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.name

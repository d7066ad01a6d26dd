"""What has come in from outside, so that it is processed once."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.bounds import EXTERNAL_ID_CHARACTERS_MAX, SOURCE_CHARACTERS_MAX
from django_pgqueue.models.columns import CLOCK


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

"""Lane: what is to be known of a lane besides what its jobs say."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Lane(models.Model):
    """
    Of a lane that has a rate, or about which an operator has said something.

    All others have no row here: a lane is made by its first job and gone with its last.
    """

    name = models.CharField(_("name"), max_length=255, primary_key=True)

    # Of a rate, as the promotion has last seen it; spacing NULL: it has none. When it
    # could let burst jobs through at once, and how many were through and not claimed.
    spacing = models.FloatField(_("spacing"), null=True, blank=True)
    burst = models.IntegerField(_("burst"), null=True, blank=True)
    full_at = models.DateTimeField(_("full at"), null=True, blank=True)
    unclaimed = models.IntegerField(_("unclaimed"), db_default=0)

    # What an operator says: this capacity in place of what jobs say; NULL: theirs.
    capacity = models.IntegerField(_("capacity"), null=True, blank=True)
    # While it is paused, nothing is let through; paused_until NULL: until it is ended.
    paused_at = models.DateTimeField(_("paused at"), null=True, blank=True)
    paused_until = models.DateTimeField(_("paused until"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True, blank=True)
    pause_reason = models.TextField(_("reason"), null=True, blank=True)

    # Of a fair lane, how many jobs it has in a turn; NULL: one.
    weight = models.IntegerField(_("weight"), null=True, blank=True)
    # Of a task, whose lane has its name: how often in a row its circuit breaker has
    # opened; 0: it is closed. While it is open the lane is paused. Then one job at a
    # time is let through, the probe, until it is closed.
    breaker_trips = models.IntegerField(_("breaker trips"), db_default=0)
    probe_id = models.BigIntegerField(_("probe"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_lane"
        verbose_name = _("lane")
        verbose_name_plural = _("lanes")
        default_permissions = ("view",)
        indexes: ClassVar = [
            # Of millions with a rate, those of which an operator has said something.
            models.Index(
                fields=["name"],
                name="pgqueue_lane_controls",
                condition=Q(paused_at__isnull=False)
                | Q(capacity__isnull=False)
                | Q(weight__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.name

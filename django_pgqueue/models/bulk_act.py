"""One act on everything that a filter means."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_OBJECT, JsonField


class BulkVerb(models.TextChoices):
    """What is done to each row."""

    REDRIVE = "redrive", _("redrive")
    RETRY = "retry", _("retry now")
    SET_ASIDE = "set_aside", _("set aside")
    CANCEL = "cancel", _("cancel")
    PURGE = "purge", _("delete")
    # Of messages, and not of rows of a list: topics/replay.py.
    REPLAY = "replay", _("replay")


class BulkState(models.TextChoices):
    """What has become of an act."""

    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    STOPPED = "stopped", _("stopped")
    FAILED = "failed", _("failed")


OPEN = ("waiting", "running")


class BulkAct(models.Model):
    """
    A row exists from the confirmation until a month after the end.

    Whoever leads the workers does a chunk at a time; how far it is and what was done
    are written in the transaction of the chunk.
    """

    id = models.BigAutoField(_("id"), primary_key=True)
    verb = models.CharField(_("verb"), max_length=9, choices=BulkVerb.choices)
    # In the words of operators/filters.py; of a replay, in those of topics/replay.py.
    filters: JsonField = models.JSONField(_("filters"), db_default=JSON_OBJECT)
    state = models.CharField(
        _("state"), max_length=7, choices=BulkState.choices, db_default="waiting"
    )
    asked_by = models.CharField(_("asked by"), max_length=150)
    reason = models.TextField(_("reason"), db_default="")
    per_second = models.IntegerField(_("at most per second"), null=True)
    # How many matched when it was confirmed, and whether there were more.
    counted = models.IntegerField(_("counted"))
    is_more = models.BooleanField(_("more than counted"), db_default=False)
    # The highest id that is meant, and the one up to which it has come.
    top = models.BigIntegerField(_("highest id"))
    position = models.BigIntegerField(_("position"), db_default=0)
    done = models.IntegerField(_("done"), db_default=0)
    # Found, and left: locked, changed meanwhile, or its key is taken.
    passed = models.IntegerField(_("passed over"), db_default=0)
    # When they were counted: what gives up later is not meant.
    shown_at = models.DateTimeField(_("counted at"), db_default=CLOCK)
    created_at = models.DateTimeField(_("asked at"), db_default=CLOCK)
    started_at = models.DateTimeField(_("started at"), null=True)
    # When the next chunk is due; who waited longest is next.
    next_at = models.DateTimeField(_("next chunk"), db_default=CLOCK)
    # Chunks in a row that the database did not do.
    tries = models.SmallIntegerField(_("failed tries"), db_default=0)
    ended_at = models.DateTimeField(_("ended at"), null=True)
    stopped_by = models.CharField(_("stopped by"), max_length=150, db_default="")
    error = models.TextField(_("error"), db_default="")

    class Meta:
        db_table = "pgqueue_bulk_act"
        verbose_name = _("bulk act")
        verbose_name_plural = _("bulk acts")
        default_permissions = ("view",)
        indexes = [
            # Serves whoever does the next chunk.
            models.Index(
                fields=["next_at", "id"],
                name="pgqueue_bulk_act_open",
                condition=Q(state__in=OPEN),
            ),
            # Serves the purge.
            models.Index(fields=["ended_at"], name="pgqueue_bulk_act_ended"),
        ]
        constraints = [
            models.CheckConstraint(
                name="pgqueue_bulk_act_state",
                condition=Q(state__in=BulkState.values),
            ),
            models.CheckConstraint(
                name="pgqueue_bulk_act_verb",
                condition=Q(verb__in=BulkVerb.values),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_verb_display()} #{self.pk}"

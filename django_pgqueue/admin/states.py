"""
States as people see them: derived from a row, never stored, shown as badges.

The words are those of queues/find.py, and a test holds the two together.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _


class LiveState(models.TextChoices):
    """What a job in the queue is doing."""

    SCHEDULED = "scheduled", _("scheduled")
    READY = "ready", _("ready")
    RUNNING = "running", _("running")
    RETRYING = "retrying", _("retrying")
    PARKED = "parked", _("parked")


# What each state means, for whoever points at a badge.
MEANINGS = {
    "scheduled": _("Waits for its time; never tried."),
    "ready": _("Due: the next free worker takes it."),
    "alone": _(
        "Its process died while it ran, so it runs in a process of its own: one such "
        "job at a time."
    ),
    "running": _("Leased by a worker."),
    "retrying": _("Failed, and waits for its next attempt."),
    "parked": _("Waits for something that is not time."),
    "succeeded": _("The task returned."),
    "cancelled": _("Taken back before it was done."),
    "expired": _("Its time had passed before it ran."),
    "failed": _("It ended with an error."),
    "lost": _("Its process ended without a word."),
    "active": _("It has ticks."),
    "paused": _("Somebody has paused it: it has no ticks until it is resumed."),
    "withdrawn": _("The code that was deployed last does not declare it: it rests."),
    "faulty": _("It cannot be read, so it has no ticks."),
    "overdue": _("A tick is due, and no worker issues it."),
    "stale": _("Code has declared it, and for a week no more."),
    "group-beyond": _(
        "What is published lies before its positions. See manage.py pgqueue doctor."
    ),
    "group-halted": _("Nothing is read until somebody reads on, or seeks."),
    "group-paused": _("Somebody has paused it: nobody reads until it is resumed."),
    "group-reading": _("A worker reads it now."),
    "group-retrying": _("A message failed, and waits for its next attempt."),
    "group-held-back": _("Waits for a transaction that publishes to its topic."),
    "group-waiting": _("There is something to read: the next free worker does."),
    "group-unserved": _(
        "There is something to read, and no living worker serves its queue."
    ),
    "group-idle": _("Everything is read."),
}


def live_state() -> Case:
    """Return the state of a row of pgqueue_job, by the database's clock."""
    return Case(
        When(visible_at__isnull=True, then=Value(LiveState.PARKED.value)),
        # A lease that has run out is due like any other.
        When(visible_at__lte=Now(), then=Value(LiveState.READY.value)),
        When(Q(leased_by__isnull=False), then=Value(LiveState.RUNNING.value)),
        When(attempt__gt=0, then=Value(LiveState.RETRYING.value)),
        default=Value(LiveState.SCHEDULED.value),
        output_field=models.CharField(max_length=9),
    )


def badge(state: str, label: object = None, meaning: str | None = None) -> SafeString:
    """
    Return *state* as a badge; its colour is that of admin.css for the word.

    Args:
        state: The word.
        label: What is shown instead.
        meaning: The word of MEANINGS that explains it, if that is another one.
    """
    return format_html(
        '<span class="pgqueue-badge pgqueue-{}" title="{}">{}</span>',
        state,
        MEANINGS.get(meaning or state, ""),
        state if label is None else label,
    )

"""Cells: the small things that pages show: names, badges, notes, differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.operators.pausable import Pausable

Text = str | Promise

# What each state means, for whoever points at a badge.
MEANINGS = {
    "pull": _("Clients receive its messages; no worker claims from it."),
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
    "lane-paused": _("Somebody has paused it: it lets no job through."),
    "lane-open": _("It lets jobs through as it has room."),
    "workflow-running": _("Steps of it are in their queues, or run."),
    "workflow-succeeded": _("All of its steps have succeeded."),
    "workflow-failed": _("A step of it is dead, and nothing more can run."),
    "workflow-compensating": _("What the saga has done is undone, step by step."),
    "workflow-stuck": _("A compensation is dead, and holds the others up."),
    "workflow-compensated": _("All that the saga had done is undone."),
    "workflow-cancelled": _("A step was cancelled, or has expired, or all were."),
    "step-waiting": _("Its turn has not come: it has no job yet."),
    "step-started": _("Its job is in its queue, or runs."),
    "step-succeeded": _("The task returned."),
    "step-dead": _("Its job gave up: it is a dead letter."),
    "step-cancelled": _("Taken back before it was done."),
    "step-skipped": _("Its condition was not met."),
    "step-unneeded": _("It never starts: the workflow has ended without it."),
    "step-expired": _("Its time had passed before it ran."),
    "subscription-held": _("As many jobs wait as may: later messages stay in the log."),
    "subscription-full": _("As many jobs wait as may."),
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


def narrowed(text: object, **query: Any) -> SafeString:
    """Return *text* as a link within its list, narrowed by *query*."""
    return format_html(
        '<a class="pgqueue-name" href="?{}">{}</a>', urlencode(query), text
    )


def name(text: str | None) -> str:
    """Return *text* as a cell that cannot spread over the page; nothing stays ""."""
    return format_html('<span class="pgqueue-name">{}</span>', text) if text else ""


def url_on(site: AdminSite, model: type[Model], view: str, *args: object) -> str:
    """Return the URL of a *view* of *model*, such as "changelist", on *site*."""
    return reverse(
        f"admin:pgqueue_{model._meta.model_name}_{view}",
        args=args,
        current_app=site.name,
    )


def link_on(
    site: AdminSite,
    model: type[Model],
    text: object,
    key: int | str | None = None,
    /,
    **query: Any,
) -> str:
    """
    Return *text* as a link; as it is where *site* has no pages of *model*.

    Args:
        site: The project's own may not have all of the pages.
        model: Whose page it is.
        text: What is shown.
        key: Of a row, whose page is linked; None: the list.
        query: What the list is narrowed to.
    """
    if not site.is_registered(model):
        return str(text)
    place = ["changelist"] if key is None else ["change", quote(key)]
    asked = f"?{urlencode(query)}" if query else ""
    url = url_on(site, model, *place)
    return format_html('<a href="{}{}">{}</a>', url, asked, text)


@dataclass(frozen=True, slots=True)
class Difference:
    """What code declares of a row, and what the row has."""

    label: Text
    declared: Text
    here: Text
    # Not for those who may not see payloads.
    is_hidden: bool = False


def resting(shown: SafeString, row: Any, kind: Pausable) -> SafeString:
    """Return the state of a row with when, by whom and why it is paused, if it is."""
    at, by, reason = (getattr(row, name) for name in kind.columns)
    if at is None:
        return shown
    if kind.can_end and row.paused_until is not None:
        until = moments.short(row.paused_until, row.clock)
        shown = format_html(
            '{} <span class="quiet">{} {}</span>', shown, _("ends"), until
        )
    return format_html(
        '{}<br><span class="quiet pgqueue-text">{} {} {}: {}</span>',
        shown,
        moments.short(at, row.clock),
        _("by"),
        by or "?",
        reason or "?",
    )

"""What people have asked to be done to everything that a filter means."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import ActingAdmin, column
from django_pgqueue.admin.acts import Act, Confirm, Work, may
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.chart import Progress
from django_pgqueue.admin.keyset_list import FilterForm, choice_field, said, text_field
from django_pgqueue.models import BulkAct
from django_pgqueue.models.bulk_act import OPEN, BulkState, BulkVerb
from django_pgqueue.operators import human
from django_pgqueue.operators.bulk_acts import permission_of
from django_pgqueue.operators.filters import equal, id_or, part_of
from django_pgqueue.operators.workers import latest, leads
from django_pgqueue.tasks import operate

# A page with an open act is renewed so often.
LIVE_SECONDS = 2

# Workers that are looked at for the one that leads.
WORKERS_MAX = 100


class BulkActFilters(FilterForm):
    """Who asked, or an id; what was done, and what became of it."""

    has_ids = True
    meanings = {
        "q": id_or(part_of("asked_by")),
        "verb": equal("verb"),
        "state": equal("state"),
    }

    q = text_field(_("Id or who asked"), characters=150)
    verb = choice_field(_("Act"), BulkVerb.choices)
    state = choice_field(_("State"), BulkState.choices)


def _may_stop(request: HttpRequest, row: Any) -> bool:
    return may(request, permission_of(row.verb))


def _stop(work: Work) -> list[list[int]]:
    """Stop those that the user might have asked for."""
    done = []
    for key, row in work.rows.items():
        if not _may_stop(work.request, row):
            problem = _("%(act)s was not stopped: you may not do what it does.")
            work.problems.append(problem % {"act": row})
        elif operate.stop_act(key, by=work.by):
            done.append(key)
    return [done]


STOP = Act(
    name="stop",
    permissions=(),
    label=_("Stop"),
    help=_("It ends between two chunks; what is done stays done."),
    run=_stop,
    done=_("%(count)d stopped."),
    entry=_("Stopped."),
    left=_("%(count)d had ended."),
    form=Confirm,
    warning=_(
        "It ends between two chunks. What is done stays done, and the rest is left as "
        "it is; it cannot be gone on with, but asked for anew."
    ),
    offered=lambda row: row.state in OPEN,
    is_grave=True,
)


@admin.register(BulkAct)
class BulkActAdmin(ActingAdmin):
    """Each bulk act, the latest first."""

    filter_form = BulkActFilters
    acts = (STOP,)
    named_by = ("verb", "state")
    list_display = (
        *("id", "act", "what", "state_badge", "progress_bar", "asked_by", "reason"),
        "created_at",
    )
    list_reads = (
        *("verb", "filters", "state", "asked_by", "reason", "counted", "is_more"),
        *("top", "position", "done", "passed", "created_at"),
    )

    is_live = True

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Say so where nobody does what is asked for."""
        is_open = self.get_queryset(request).filter(state__in=OPEN).exists()
        return {
            "no_leader": is_open and _has_no_leader(),
            "live_seconds": LIVE_SECONDS if is_open else None,
        }

    def permitted_acts(self, request: HttpRequest) -> dict[str, Act]:
        """Leave out what stops an act where the user may do none."""
        is_any = any(may(request, permission_of(each)) for each in BulkVerb)
        return super().permitted_acts(request) if is_any else {}

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[str, Act]]:
        """Offer to stop what the user might have asked for."""
        return super().buttons(request, row) if _may_stop(request, row) else []

    act = column(_("act"), lambda row: row.get_verb_display())
    what = column(_("of"), lambda row: name(said(row.filters)))

    @admin.display(description=_("state"))
    def state_badge(self, row: Any) -> SafeString:
        """Show the state as a badge."""
        return badge(BADGES[row.state], BulkState(row.state).label, row.state)

    @admin.display(description=_("progress"))
    def progress_bar(self, row: Any) -> str:
        """Show how many are done, of how many."""
        bar = progress(row)
        return format_html(
            '<progress value="{}" max="{}"></progress>'
            '<br><span class="pgqueue-text">{}</span>',
            str(bar.done),
            str(bar.total),
            bar.text,
        )

    heading = state_badge

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add how far it is, and what renews the page while it is open."""
        is_open = row.state in OPEN
        may_see = payload.may_see(request)
        return {
            "progress": progress(row),
            "no_leader": is_open and _has_no_leader(),
            "has_error": bool(row.error),
            "error": payload.without_secrets(row.error) if may_see else "",
            "live_seconds": LIVE_SECONDS if is_open else None,
        }

    fields = (
        *("act", "of", "asked_by", "reason", "per_second", "counted", "done_count"),
        *("passed_count", "created_at", "started_at", "failed_tries", "next_try"),
        *("ended_at", "stopped_by"),
    )
    of = column(_("of"), lambda row: said(row.filters))
    counted = column(
        _("counted"), lambda row: human.count(row.counted, is_more=row.is_more)
    )
    done_count = column(_("done"), lambda row: f"{row.done:,}")
    passed_count = column(_("left alone"), lambda row: f"{row.passed:,}")
    failed_tries = column(_("failed tries in a row"), lambda row: row.tries or None)
    next_try = column(
        _("next try"),
        lambda row: (
            moments.full(row.next_at, row.clock)
            if row.tries and row.state in OPEN
            else None
        ),
    )


# The colours of admin.css.
BADGES = {
    BulkState.WAITING: "scheduled",
    BulkState.RUNNING: "running",
    BulkState.DONE: "succeeded",
    BulkState.STOPPED: "cancelled",
    BulkState.FAILED: "failed",
}


def progress(row: Any) -> Progress:
    """Return how far an act is: by rows, or by ids where not all were counted."""
    came = row.done + row.passed
    done, total = came, max(row.counted, came, 1)
    text = f"{row.done:,} / {row.counted:,}"
    if row.is_more:
        # A replay begins within the log.
        first = row.filters.get("after", 0)
        done, total = min(row.position, row.top) - first, max(row.top - first, 1)
        text += "+"
    elif row.state == BulkState.DONE:
        done = total
    return Progress(done, total, text)


def _has_no_leader() -> bool:
    """Return whether no worker does chores."""
    return not any(leads(worker) for worker in latest(WORKERS_MAX))

"""The jobs that wait, run or are parked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, retry
from django_pgqueue.admin.filter_form import JobFilterForm, choice_field
from django_pgqueue.admin.job_columns import JobAdminColumns
from django_pgqueue.admin.names import name
from django_pgqueue.admin.read_only import Fact
from django_pgqueue.admin.states import LiveState, badge, live_state
from django_pgqueue.models import Job

# The states in which a job waits for a time, which "retry now" can bring forward.
WAITING = (LiveState.SCHEDULED, LiveState.RETRYING)


class JobFilters(JobFilterForm):
    """A state besides what every list can be narrowed to."""

    state = choice_field(_("State"), LiveState.choices)


@admin.register(Job)
class JobAdmin(JobAdminColumns):
    """What is in the queue now."""

    filter_form = JobFilters
    actions = ("retry_selected",)
    list_display = (
        "number",
        "state",
        "task_name",
        "queue_name",
        "urgency",
        "attempts",
        "due",
        "worker",
        "enqueued",
    )
    list_reads = (
        "task",
        "queue",
        "priority",
        "attempt",
        "max_attempts",
        "visible_at",
        "leased_by",
        "enqueued_at",
    )
    payload_columns = ("args", "kwargs", "headers", "progress")

    def list_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Add the state."""
        listed: QuerySet[Any] = super().list_rows(rows).annotate(state=live_state())
        return listed

    def detail_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the state."""
        rows = super().detail_rows(request)
        shown: QuerySet[Any] = rows.annotate(state=live_state())
        return shown

    @admin.display(description=_("state"))
    def state(self, job: Any) -> str:
        """Show the state as a badge."""
        return badge(job.state, LiveState(job.state).label)

    @admin.display(description=_("due"))
    def due(self, job: Any) -> str:
        """Show when it becomes due; of a running job, nothing."""
        if job.state == LiveState.RUNNING:
            return ""
        return moments.short(job.visible_at, job.clock)

    @admin.display(description=_("worker"))
    def worker(self, job: Any) -> str:
        """Show who holds the lease."""
        return name(job.leased_by)

    @admin.action(permissions=["retry"], description=_("Retry now"))
    def retry_selected(self, request: HttpRequest, ids: Sequence[int]) -> None:
        """Make those that wait for a time due now."""
        retry.retry_now(self, request, ids)

    def act_names(self) -> dict[str, Any]:
        """Name what can be done with one job."""
        return {"retry": retry.retry_now}

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[str, str, str]]:
        """Offer to bring a waiting job forward."""
        if row.state not in WAITING or not self.has_retry_permission(request):
            return []
        return [
            (
                self.act_url(request, "retry", row),
                str(_("Retry now")),
                str(_("Make it due at once, instead of waiting for its time.")),
            )
        ]

    def heading(self, row: Any) -> str:
        """Show the state beside the title."""
        return self.state(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say where the job stands, and what it waits for."""
        due_label = _("Due")
        if row.state == LiveState.RUNNING:
            due_label = _("Lease ends")
        elif row.leased_by:
            due_label = _("Lease ended")
        return [
            *self.facts_of_place(row),
            (due_label, moments.full(row.visible_at, row.clock)),
            (_("Worker"), row.leased_by),
            (_("Leased"), moments.full(row.leased_at, row.clock)),
            *self.facts_of_times(row),
            (_("Runs alone"), _("yes: its process died") if row.runs_alone else None),
            (_("Cancel asked"), moments.full(row.cancel_requested_at, row.clock)),
            *self.facts_of_links(row),
        ]

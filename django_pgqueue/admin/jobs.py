"""The jobs that wait, run or are parked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import job_acts, moments
from django_pgqueue.admin.edit import EditableAdmin
from django_pgqueue.admin.filter_form import JobFilterForm, choice_field
from django_pgqueue.admin.names import name
from django_pgqueue.admin.read_only import Fact
from django_pgqueue.admin.states import badge
from django_pgqueue.models import Job
from django_pgqueue.models.job import LiveState, live_state


class JobFilters(JobFilterForm):
    """A state besides what every list can be narrowed to."""

    state = choice_field(_("State"), LiveState.choices)


@admin.register(Job)
class JobAdmin(EditableAdmin):
    """What is in the queue now."""

    filter_form = JobFilters
    computed: ClassVar[Mapping[str, Any]] = {
        **EditableAdmin.computed,
        "state": live_state(),
    }
    acts = (job_acts.RETRY, job_acts.CANCEL)
    list_display = (
        "number",
        "state",
        "task_name",
        "queue_name",
        "attempts",
        "due",
        "worker",
        "tags",
    )
    list_reads = (
        "task",
        "queue",
        "attempt",
        "max_attempts",
        "visible_at",
        "leased_by",
        "leased_at",
        "cancel_requested_at",
        "runs_alone",
    )

    @admin.display(description=_("state"))
    def state(self, job: Any) -> str:
        """Show the state as a badge."""
        label = LiveState(job.state).label
        if job.state == LiveState.RUNNING and job.cancel_requested_at:
            label = _("running, asked to stop")
        if job.state == LiveState.READY and job.runs_alone:
            return badge(job.state, _("waits to run alone"), "alone")
        return badge(job.state, label)

    @admin.display(description=_("due / started"))
    def due(self, job: Any) -> str:
        """Show when it becomes due or became due; of a running job, its start."""
        if job.state == LiveState.RUNNING:
            return moments.short(job.leased_at, job.clock)
        return moments.short(job.visible_at, job.clock)

    @admin.display(description=_("worker"))
    def worker(self, job: Any) -> str:
        """Show who holds the lease."""
        return name(job.leased_by)

    def is_editable(self, row: Any) -> bool:
        """What runs was read already."""
        return bool(row.state != LiveState.RUNNING)

    def heading(self, row: Any) -> str:
        """Show the state beside the title."""
        return self.state(row)

    def stands(self, row: Any) -> SafeString:
        """Say what the job does now, or waits for."""
        if row.state == LiveState.RUNNING:
            return format_html(
                gettext("{} attempt {} on worker {}, for {}"),
                self.state(row),
                str(row.attempt),
                name(row.leased_by),
                moments.since(row.leased_at, row.clock),
            )
        return format_html(
            "{} {}", self.state(row), moments.short(row.visible_at, row.clock)
        )

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

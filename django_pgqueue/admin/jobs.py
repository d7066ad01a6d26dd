"""Jobs in the queue and in the archive: their state, and how they ended."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import mail, moments, payload
from django_pgqueue.admin.acting import Fact, column
from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.grouped import GroupedAdmin, GroupedFilterForm
from django_pgqueue.admin.job_columns import EDIT, JobAdminColumns
from django_pgqueue.admin.keyset_list import JobFilterForm, age, age_field, choice_field
from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, Job, Worker
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.models.job import ArchivedState, LiveState, live_state
from django_pgqueue.operators.bulk_acts import VERBS, WAITING
from django_pgqueue.operators.filters import JOBS
from django_pgqueue.operators.lanes import why_it_waits
from django_pgqueue.operators.paging import floor_of
from django_pgqueue.tasks import database, operate


class ArchiveFilters(JobFilterForm):
    """A state and an age besides what every list can be narrowed to."""

    meanings = {**JOBS, "age": age}

    state = choice_field(_("State"), ArchivedState.choices)
    age = age_field(_("Ended"))


@admin.register(ArchivedJob)
class ArchivedJobAdmin(JobAdminColumns):
    """
    What has ended, by id.

    By id and not by time of finishing: the days of the archive are tables with the
    primary key as their only index, since every index is paid for by every ack.
    """

    filter_form = ArchiveFilters
    acts = (mail.RESEND,)
    named_by = ("task", "queue", "state")
    list_display = (
        *("id", "outcome", "task", "queue_name", "attempts", "finished_at"),
        *("ran", "worker", "tags"),
    )
    fields = (
        *JobAdminColumns.fields_of_place,
        *("started_at", "finished_at", "ran", "worker"),
        *(*JobAdminColumns.fields_of_times, *JobAdminColumns.fields_of_links),
    )
    list_reads = (
        *("state", "task", "queue", "attempt", "max_attempts", "started_at"),
        *("finished_at", "worker"),
    )
    payload_columns = ("args", "kwargs", "result", "headers", "progress")

    outcome = column(_("state"), lambda row: badge(row.state, row.get_state_display()))
    ran = column(_("ran"), lambda row: moments.length(row.started_at, row.finished_at))
    heading = outcome

    def stands(self, row: Any) -> SafeString:
        """Say how and when the job ended."""
        finished = moments.short(row.finished_at, row.clock)
        return format_html("{} {}", self.outcome(row), finished)


class JobFilters(GroupedFilterForm):
    """A state besides what every list can be narrowed to."""

    state = choice_field(_("State"), LiveState.choices)


def _cancel(work: Work) -> list[list[int]]:
    answer = operate.cancel(work.rows, by=work.by)
    return [answer.cancelled, answer.requested]


RETRY = Act(
    name="retry",
    permissions=("retry",),
    label=_("Retry now"),
    help=_("Make it due at once, instead of waiting for its time."),
    run=lambda work: [operate.retry(work.rows)],
    done=_("%(count)d due now."),
    entry=_("Made due at once."),
    left=_("%(count)d not waiting for a time: due, running, parked or ended."),
    offered=lambda row: row.state in WAITING,
)

CANCEL = Act(
    name="cancel",
    permissions=("cancel",),
    label=_("Cancel"),
    help=_("What waits never runs; what runs is asked to stop."),
    run=_cancel,
    outcomes=[
        Outcome(
            _("%(count)d cancelled."),
            _("Cancelled."),
        ),
        Outcome(
            _("%(count)d running, asked to stop."),
            _("Asked to stop."),
        ),
    ],
    left=_("%(count)d left: ended, or being moved just now."),
    form=Confirm,
    warning=VERBS[BulkVerb.CANCEL].warning,
    offered=lambda row: row.cancel_requested_at is None,
    is_grave=True,
)


@admin.register(Job)
class JobAdmin(GroupedAdmin):
    """What is in the queue now."""

    filter_form = JobFilters
    computed = {
        **GroupedAdmin.computed,
        "state": live_state(),
    }
    acts = (RETRY, EDIT, CANCEL)
    bulk_verbs = (BulkVerb.RETRY, BulkVerb.CANCEL)
    failed_state = LiveState.RETRYING
    groups_title = _("Jobs that wait for their next attempt, by error")
    groups_tool = _("Group what retries by error")
    grouped_rows = _("jobs that wait for their next attempt")
    list_display = (
        *("id", "state", "task", "queue_name", "last_error", "attempts"),
        *("due", "worker", "tags"),
    )
    fields = (
        *(*JobAdminColumns.fields_of_place, "due_at", "holder", "held_since"),
        *(*JobAdminColumns.fields_of_times, "alone", "cancel_requested_at"),
        *JobAdminColumns.fields_of_links,
    )
    list_reads = (
        *("task", "queue", "attempt", "max_attempts", "visible_at", "leased_by"),
        *("leased_at", "cancel_requested_at", "runs_alone"),
    )

    def failed_rows(self) -> QuerySet[Any]:
        """Those that wait for their next attempt, among the newest jobs."""
        rows = Job.objects.using(get_settings().database)
        failed = rows.annotate(state=live_state()).filter(state=self.failed_state)
        return failed.filter(id__gte=floor_of(rows.all()) or 0)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """Show the state as a badge."""
        label = LiveState(row.state).label
        if row.state == LiveState.RUNNING and row.cancel_requested_at:
            label = _("running, asked to stop")
        if row.state == LiveState.READY and row.runs_alone:
            return badge(row.state, _("waits to run alone"), "alone")
        return badge(row.state, label)

    @admin.display(description=_("due / started"))
    def due(self, job: Any) -> str:
        """Show when it becomes due or became due; of a running job, its start."""
        if job.state == LiveState.RUNNING:
            return moments.short(job.leased_at, job.clock)
        return moments.short(job.visible_at, job.clock)

    @admin.display(description=_("worker"))
    def worker(self, job: Any) -> SafeString | str:
        """Lead from a running job to what its worker runs, the longest first."""
        if job.state != LiveState.RUNNING or job.task == PULL_TASK:
            return name(job.leased_by)
        return self.link(Worker, name(job.leased_by), job.leased_by)

    heading = state

    def stands(self, row: Any) -> SafeString:
        """Say what the job does now, or waits for."""
        if row.state == LiveState.RUNNING:
            is_message = row.task == PULL_TASK
            return format_html(
                gettext("{} attempt {} by receiver {}, for {}")
                if is_message
                else gettext("{} attempt {} on worker {}, for {}"),
                self.state(row),
                str(row.attempt),
                self.worker(row),
                moments.since(row.leased_at, row.clock),
            )
        if row.state == LiveState.PARKED:
            return format_html("{} {}", self.state(row), self._why(row))
        return format_html(
            "{} {}", self.state(row), moments.short(row.visible_at, row.clock)
        )

    def _why(self, row: Any) -> str:
        """Say why a parked job waits, without the name of a lane that is hidden."""
        if row.lane is None:
            return ""
        with database.cursor() as cursor:
            is_named = row.lane is not payload.HIDDEN
            return why_it_waits(cursor, row.pk, is_named=is_named) or ""

    def facts(self, row: Any) -> list[Fact]:
        """Call what holds a job as it is: a worker, or the receiver of a message."""
        labels = {"Due": _due_label(row)}
        if row.task == PULL_TASK:
            labels |= {"Worker": _("Receiver"), "Leased": _("Received")}
        shown = super().facts(row)
        return [(labels.get(str(label), label), value) for label, value in shown]

    due_at = column(_("due"), lambda row: moments.full(row.visible_at, row.clock))
    holder = column(_("worker"), lambda row: row.leased_by)
    held_since = column(_("leased"), lambda row: moments.full(row.leased_at, row.clock))
    alone = column(
        _("runs alone"),
        lambda row: _("yes: its process died") if row.runs_alone else None,
    )


def _due_label(row: Any) -> Any:
    if row.state == LiveState.RUNNING:
        return _("Lease ends")
    return _("Lease ended") if row.leased_by else _("Due")

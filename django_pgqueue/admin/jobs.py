"""Jobs in the queue and in the archive: their state, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import mail, moments, payload
from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.grouped import GroupedAdmin, GroupedFilterForm
from django_pgqueue.admin.job_columns import JobAdminColumns
from django_pgqueue.admin.keyset_list import (
    JobFilterForm,
    age,
    age_field,
    choice_field,
)
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, Job, Worker
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.models.job import ArchivedState, LiveState, live_state
from django_pgqueue.operators.bulk_acts import VERBS, WAITING
from django_pgqueue.operators.filters import JOBS, Meaning
from django_pgqueue.operators.lanes import why_it_waits
from django_pgqueue.operators.paging import floor_of
from django_pgqueue.tasks import database, operate


class ArchiveFilters(JobFilterForm):
    """A state and an age besides what every list can be narrowed to."""

    meanings: ClassVar[Mapping[str, Meaning]] = {**JOBS, "age": age}

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
        *("number", "outcome", "task_name", "queue_name", "attempts", "finished"),
        *("ran", "worker_name", "tags"),
    )
    list_reads = (
        *("state", "task", "queue", "attempt", "max_attempts", "started_at"),
        *("finished_at", "worker"),
    )
    payload_columns = ("args", "kwargs", "result", "headers", "progress")

    outcome = column(_("state"), lambda row: badge(row.state, row.get_state_display()))
    finished = column(
        _("finished"), lambda row: moments.short(row.finished_at, row.clock)
    )
    ran = column(_("ran"), lambda row: moments.length(row.started_at, row.finished_at))
    worker_name = column(_("worker"), lambda row: name(row.worker))

    def heading(self, row: ArchivedJob) -> Any:
        """Show the state beside the title."""
        return self.outcome(row)

    def stands(self, row: ArchivedJob) -> SafeString:
        """Say how and when the job ended."""
        return format_html("{} {}", self.outcome(row), self.finished(row))

    def facts(self, row: Any) -> list[Fact]:
        """Say how the job ended."""
        return [
            *self.facts_of_place(row),
            (_("Started"), moments.full(row.started_at, row.clock)),
            (_("Finished"), moments.full(row.finished_at, row.clock)),
            (_("Ran"), self.ran(row)),
            (_("Worker"), row.worker),
            *self.facts_of_times(row),
            *self.facts_of_links(row),
        ]


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
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d job is due now.", "%(count)d jobs are due now.", "count"
            ),
            _("Made due at once."),
        )
    ],
    left=ngettext_lazy(
        "%(count)d was not waiting for a time: due, running, parked or ended.",
        "%(count)d were not waiting for a time: due, running, parked or ended.",
        "count",
    ),
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
            ngettext_lazy(
                "%(count)d job was cancelled.",
                "%(count)d jobs were cancelled.",
                "count",
            ),
            _("Cancelled."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d is running and was asked to stop.",
                "%(count)d are running and were asked to stop.",
                "count",
            ),
            _("Asked to stop."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had ended, or is being moved just now.",
        "%(count)d had ended, or are being moved just now.",
        "count",
    ),
    form=Confirm,
    warning=VERBS[BulkVerb.CANCEL].warning,
    offered=lambda row: row.cancel_requested_at is None,
    is_grave=True,
)


@admin.register(Job)
class JobAdmin(GroupedAdmin):
    """What is in the queue now."""

    filter_form = JobFilters
    computed: ClassVar[Mapping[str, Any]] = {
        **GroupedAdmin.computed,
        "state": live_state(),
    }
    acts = (RETRY, CANCEL)
    bulk_verbs = (BulkVerb.RETRY, BulkVerb.CANCEL)
    failed_state = LiveState.RETRYING
    groups_title = _("Jobs that wait for their next attempt, by error")
    groups_tool = _("Group what retries by error")
    grouped_rows = _("jobs that wait for their next attempt")
    list_display = (
        *("number", "state", "task_name", "queue_name", "last_error", "attempts"),
        *("due", "worker", "tags"),
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
    def worker(self, job: Any) -> SafeString | str:
        """Lead from a running job to what its worker runs, the longest first."""
        if job.state != LiveState.RUNNING or job.task == PULL_TASK:
            return name(job.leased_by)
        return self.link(Worker, name(job.leased_by), job.leased_by)

    def is_editable(self, row: Any) -> bool:
        """What runs was read already."""
        return bool(row.state != LiveState.RUNNING)

    def heading(self, row: Any) -> str:
        """Show the state beside the title."""
        return self.state(row)

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
        """Say where the job stands, and what it waits for."""
        is_message, due_label = row.task == PULL_TASK, _("Due")
        if row.state == LiveState.RUNNING:
            due_label = _("Lease ends")
        elif row.leased_by:
            due_label = _("Lease ended")
        return [
            *self.facts_of_place(row),
            (due_label, moments.full(row.visible_at, row.clock)),
            (_("Receiver") if is_message else _("Worker"), row.leased_by),
            (
                _("Received") if is_message else _("Leased"),
                moments.full(row.leased_at, row.clock),
            ),
            *self.facts_of_times(row),
            (_("Runs alone"), _("yes: its process died") if row.runs_alone else None),
            (_("Cancel asked"), moments.full(row.cancel_requested_at, row.clock)),
            *self.facts_of_links(row),
        ]

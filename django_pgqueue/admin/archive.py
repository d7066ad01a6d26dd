"""The jobs that ended well, were cancelled, or expired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import mail, moments
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.filter_form import (
    JobFilterForm,
    age,
    age_field,
    choice_field,
)
from django_pgqueue.admin.job_columns import JobAdminColumns
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.models import ArchivedJob
from django_pgqueue.models.job import ArchivedState
from django_pgqueue.operators.filters import JOBS, Meaning


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

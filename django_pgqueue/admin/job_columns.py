"""What pages of jobs share, be they in the queue, the archive or dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from django_pgqueue.admin import moments
from django_pgqueue.admin.names import name
from django_pgqueue.admin.read_only import Fact, ReadOnlyAdmin

# What can be done with rows: it acts, logs, and tells the user.
Act = Callable[[ReadOnlyAdmin, HttpRequest, Sequence[int]], None]


class JobAdminColumns(ReadOnlyAdmin):
    """A page whose rows are jobs."""

    has_errors = True

    @admin.display(description=_("id"))
    def number(self, job: Any) -> str:
        """Show the id without separators of thousands, as logs do."""
        return str(job.pk)

    @admin.display(description=_("task"))
    def task_name(self, job: Any) -> str:
        """Show the task; long names may break anywhere."""
        return name(job.task)

    @admin.display(description=_("queue"))
    def queue_name(self, job: Any) -> str:
        """Show the queue, as a link to all of its rows."""
        return format_html(
            '<a class="pgqueue-name" href="?{}">{}</a>',
            urlencode({"queue": job.queue}),
            job.queue,
        )

    @admin.display(description=_("priority"))
    def urgency(self, job: Any) -> str:
        """Show the priority unless it is the usual one."""
        return str(job.priority) if job.priority else ""

    @admin.display(description=_("attempts"))
    def attempts(self, job: Any) -> str:
        """Show how many of its attempts are used."""
        return f"{job.attempt}/{job.max_attempts}"

    @admin.display(description=_("enqueued"))
    def enqueued(self, job: Any) -> str:
        """Show when it was stored."""
        return moments.short(job.enqueued_at, job.clock)

    def facts_of_place(self, row: Any) -> list[Fact]:
        """Say what the job is and how often it was tried."""
        return [
            (_("Id"), str(row.pk)),
            (_("Task"), row.task),
            (_("Queue"), row.queue),
            (_("Priority"), str(row.priority)),
            (
                _("Attempts"),
                _("%(used)d of %(max)d")
                % {"used": row.attempt, "max": row.max_attempts},
            ),
            (_("Deliveries"), str(row.deliveries)),
            (_("Crashes"), str(row.crashes) if row.crashes else None),
        ]

    def facts_of_times(self, row: Any) -> list[Fact]:
        """Say when the job was stored, and what its caller asked for."""
        return [
            (_("Enqueued"), moments.full(row.enqueued_at, row.clock)),
            (_("Run after"), moments.full(row.run_after, row.clock)),
            (_("Expires"), moments.full(row.expires_at, row.clock)),
        ]

    def facts_of_links(self, row: Any) -> list[Fact]:
        """Say what the job belongs to."""
        return [
            (_("Dedup key"), row.dedup_key),
            (_("Lane"), row.lane),
            (_("Lane capacity"), row.lane_capacity and str(row.lane_capacity)),
            (_("Parent job"), row.parent_id and str(row.parent_id)),
            (_("Workflow"), row.workflow_id and str(row.workflow_id)),
            (_("Message"), row.message_id and str(row.message_id)),
            (_("Schedule"), row.schedule_id and str(row.schedule_id)),
        ]

    # What can be done with one row -----------------------------------------------

    def act_names(self) -> dict[str, Act]:
        """Return what the detail page can do, by the last part of its URL."""
        return {}

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs that do something: POST only, the permission asked again."""
        own = [
            path(
                f"<path:object_id>/{name}/",
                self.admin_site.admin_view(require_POST(self._act_on_one(act))),
                name=f"pgqueue_{self.opts.model_name}_{name}",
            )
            for name, act in self.act_names().items()
        ]
        return [*own, *super().get_urls()]

    def _act_on_one(self, act: Act) -> Callable[[HttpRequest, str], HttpResponse]:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            if not self.has_view_permission(request) or not self.has_retry_permission(
                request
            ):
                raise PermissionDenied
            key = self._key(object_id)
            if key is None:
                raise Http404(f"{object_id[:50]!r} is no id of a job")
            act(self, request, [key])
            return HttpResponseRedirect(self.list_url(request))

        return view

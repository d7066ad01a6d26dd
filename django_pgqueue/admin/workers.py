"""The worker processes that are running, or ran until a moment ago."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.models import Job, Worker
from django_pgqueue.operators import workers
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.tasks import database


@admin.register(Worker)
class WorkerAdmin(ActingAdmin):
    """Each worker process and its last heartbeat."""

    keyset = Keyset(("started_at", "name"))
    list_display = (
        *("title", "state", "host", "process", "its_queues", "slots", "heartbeat"),
        *("started", "version"),
    )
    list_reads = (
        *("hostname", "pid", "queues", "threads", "async_slots", "version"),
        *("started_at", "heartbeat_at", "leader_until"),
    )

    title = column(_("name"), lambda row: name(row.name))

    @admin.display(description=_("state"))
    def state(self, worker: Any) -> SafeString:
        """Show whether it was heard of lately, and whether it leads."""
        word = workers.state_word(worker)
        if workers.is_silent(worker):
            return badge("dead", word)
        return badge("running" if workers.leads(worker) else "ready", word)

    host = column(_("host"), lambda row: name(row.hostname))
    process = column(_("process"), lambda row: str(row.pid))

    its_queues = column(_("queues"), workers.queues)
    slots = column(_("threads"), workers.slots)
    heartbeat = column(
        _("heartbeat"), lambda row: moments.short(row.heartbeat_at, row.clock)
    )
    started = column(_("started"), lambda row: moments.short(row.started_at, row.clock))

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the jobs that it holds, for those who may see jobs."""
        if not request.user.has_perm("pgqueue.view_job"):
            return {}
        most = workers.HELD_JOBS_MAX
        with database.cursor() as cursor:
            held = workers.held(cursor, [row.name], limit=most + 1)
        return {
            "has_held": True,
            "held": [
                (
                    self._url(Job, "change", job.id),
                    f"{job.task} #{job.id}",
                    job.queue,
                    moments.since(job.leased_at, row.clock),
                )
                for job in held[:most]
            ],
            "held_more": len(held) > most,
        }

    def heading(self, row: Worker) -> str:
        """Show the state beside the title."""
        return self.state(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say where the worker runs, and what."""
        return [
            (_("Name"), row.name),
            (_("Host"), row.hostname),
            (_("Process id"), str(row.pid)),
            (_("Queues"), workers.queues(row)),
            (_("Threads"), workers.slots(row)),
            (_("Version"), row.version),
            (_("Started"), moments.full(row.started_at, row.clock)),
            (_("Heartbeat"), moments.full(row.heartbeat_at, row.clock)),
            (_("Leads until"), moments.full(row.leader_until, row.clock)),
        ]

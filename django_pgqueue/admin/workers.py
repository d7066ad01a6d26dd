"""The worker processes that are running, or ran until a moment ago."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.conf import get_settings
from django_pgqueue.models import Job, Worker
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.queues.leased import leased
from django_pgqueue.tasks import database
from django_pgqueue.worker.serving import is_alive

# Jobs that the page of a worker shows.
HELD_JOBS_MAX = 50

# A task may extend its lease: those that end sooner than this are found.
EXTENDED_LEASE = timedelta(hours=1)


def _slots(worker: Any) -> str:
    if not worker.async_slots:
        return str(worker.threads)
    return _("%(threads)d + %(slots)d async") % {
        "threads": worker.threads,
        "slots": worker.async_slots,
    }


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
        if not is_alive((worker.clock - worker.heartbeat_at).total_seconds()):
            return badge("dead", _("silent"))
        if worker.leader_until and worker.leader_until > worker.clock:
            return badge("running", _("alive, leads"))
        return badge("ready", _("alive"))

    host = column(_("host"), lambda row: name(row.hostname))
    process = column(_("process"), lambda row: str(row.pid))

    @admin.display(description=_("queues"))
    def its_queues(self, worker: Worker) -> str:
        """Show which queues it takes jobs from."""
        names = worker.queues if isinstance(worker.queues, list) else []
        return ", ".join(map(str, names)) or str(_("all"))

    slots = column(_("threads"), _slots)
    heartbeat = column(
        _("heartbeat"), lambda row: moments.short(row.heartbeat_at, row.clock)
    )
    started = column(_("started"), lambda row: moments.short(row.started_at, row.clock))

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the jobs that it holds, for those who may see jobs."""
        if not request.user.has_perm("pgqueue.view_job"):
            return {}
        lease = timedelta(seconds=get_settings().lease_seconds)
        with database.cursor() as cursor:
            held = leased(
                cursor,
                workers=[row.name],
                lease=max(lease, EXTENDED_LEASE),
                limit=HELD_JOBS_MAX + 1,
            )
        return {
            "has_held": True,
            "held": [
                (
                    self._url(Job, "change", job.id),
                    f"{job.task} #{job.id}",
                    job.queue,
                    moments.since(job.leased_at, row.clock),
                )
                for job in held[:HELD_JOBS_MAX]
            ],
            "held_more": len(held) > HELD_JOBS_MAX,
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
            (_("Queues"), self.its_queues(row)),
            (_("Threads"), _slots(row)),
            (_("Version"), row.version),
            (_("Started"), moments.full(row.started_at, row.clock)),
            (_("Heartbeat"), moments.full(row.heartbeat_at, row.clock)),
            (_("Leads until"), moments.full(row.leader_until, row.clock)),
        ]

"""The queues that workers have met."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.keyset import Keyset
from django_pgqueue.admin.names import name
from django_pgqueue.admin.read_only import Fact, ReadOnlyAdmin
from django_pgqueue.admin.states import badge
from django_pgqueue.models import Queue


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """Each queue, and whether it is paused."""

    keyset = Keyset(("created_at", "name"))
    list_display = ("title", "state", "paused", "pause_reason", "known_since")
    list_reads = ("created_at", "paused_at", "paused_by", "pause_reason")

    @admin.display(description=_("name"))
    def title(self, queue: Queue) -> str:
        """Show the name; long ones may break anywhere."""
        return name(queue.name)

    @admin.display(description=_("state"))
    def state(self, queue: Queue) -> str:
        """Show whether workers take jobs from it."""
        if queue.paused_at is None:
            return badge("ready", _("open"))
        return badge("retrying", _("paused"))

    @admin.display(description=_("paused"))
    def paused(self, queue: Any) -> str:
        """Show since when it is paused."""
        return moments.short(queue.paused_at, queue.clock)

    @admin.display(description=_("known"))
    def known_since(self, queue: Any) -> str:
        """Show when a worker first met it."""
        return moments.short(queue.created_at, queue.clock)

    def heading(self, row: Queue) -> str:
        """Show the state beside the title."""
        return self.state(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say what an operator said about the queue."""
        return [
            (_("Name"), row.name),
            (_("First met by a worker"), moments.full(row.created_at, row.clock)),
            (_("Paused"), moments.full(row.paused_at, row.clock)),
            (_("Paused by"), row.paused_by),
            (_("Pause reason"), row.pause_reason),
        ]

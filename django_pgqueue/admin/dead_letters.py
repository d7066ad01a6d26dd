"""The jobs that gave up, with the errors of every attempt, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload, retry
from django_pgqueue.admin.filter_form import JobFilterForm, choice_field
from django_pgqueue.admin.job_columns import JobAdminColumns
from django_pgqueue.admin.keyset import Keyset
from django_pgqueue.admin.read_only import Fact
from django_pgqueue.admin.states import badge
from django_pgqueue.models import DeadLetter
from django_pgqueue.models.dead_letter import Reason

# Characters of the last error's message that the list shows.
MESSAGE_CHARACTERS_MAX = 160


class DeadLetterFilters(JobFilterForm):
    """A reason besides what every list can be narrowed to."""

    reason = choice_field(_("Reason"), Reason.choices)


@admin.register(DeadLetter)
class DeadLetterAdmin(JobAdminColumns):
    """What gave up, the latest first, and redrive."""

    # Served by pgqueue_dead_letter_finished; the id tells equal times apart.
    keyset = Keyset(("finished_at", "id"))
    filter_form = DeadLetterFilters
    actions = ("redrive_selected",)
    list_display = (
        "number",
        "why",
        "task_name",
        "queue_name",
        "last_error",
        "attempts",
        "gave_up",
    )
    list_reads = ("reason", "task", "queue", "attempt", "max_attempts", "finished_at")
    payload_columns = ("args", "kwargs", "headers", "progress")

    def list_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Add the head of the last error, without reading tracebacks into Python."""
        last = KeyTransform(-1, "errors")
        heads = {
            f"error_{key}": Left(
                KeyTextTransform(key, last), MESSAGE_CHARACTERS_MAX + 1
            )
            for key in ("type", "kind", "message")
        }
        listed: QuerySet[Any] = super().list_rows(rows).annotate(**heads)
        return listed

    @admin.display(description=_("reason"))
    def why(self, letter: DeadLetter) -> str:
        """Show the reason as a badge."""
        return badge("dead", letter.reason)

    @admin.display(description=_("last error"))
    def last_error(self, letter: Any) -> str:
        """Show the class and the first line of what the last attempt raised."""
        text = payload.last_error(
            letter.error_type, letter.error_kind, letter.error_message
        )
        if len(text) > MESSAGE_CHARACTERS_MAX:
            text = f"{text[:MESSAGE_CHARACTERS_MAX]}…"
        return format_html('<span class="pgqueue-text">{}</span>', text)

    @admin.display(description=_("gave up"))
    def gave_up(self, letter: Any) -> str:
        """Show when it became a dead letter."""
        return moments.short(letter.finished_at, letter.clock)

    @admin.action(permissions=["retry"], description=_("Redrive: back to the queue"))
    def redrive_selected(self, request: HttpRequest, ids: Sequence[int]) -> None:
        """Send them back to their queues, from attempt 1 on."""
        retry.redrive(self, request, ids)

    def act_names(self) -> dict[str, Any]:
        """Name what can be done with one dead letter."""
        return {"redrive": retry.redrive}

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[str, str, str]]:
        """Offer the way back."""
        if not self.has_retry_permission(request):
            return []
        text = _('Back to queue "%(queue)s", with the same id, from attempt 1 on.')
        return [
            (
                self.act_url(request, "redrive", row),
                str(_("Redrive")),
                text % {"queue": row.queue},
            )
        ]

    def heading(self, row: DeadLetter) -> str:
        """Show the reason beside the title."""
        return badge("dead", row.get_reason_display())

    def facts(self, row: Any) -> list[Fact]:
        """Say how the job gave up."""
        return [
            (_("Reason"), f"{row.reason}: {row.get_reason_display()}"),
            *self.facts_of_place(row),
            (_("Last started"), moments.full(row.started_at, row.clock)),
            (_("Gave up"), moments.full(row.finished_at, row.clock)),
            (_("Worker"), row.worker),
            *self.facts_of_times(row),
            *self.facts_of_links(row),
        ]

"""The jobs that gave up, with the errors of every attempt, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import letter_acts, moments, payload
from django_pgqueue.admin.acts import Part, may, tell
from django_pgqueue.admin.cells import badge
from django_pgqueue.admin.edit import SAVE, SAVE_AND_REDRIVE
from django_pgqueue.admin.filter_form import (
    AGES,
    FilterForm,
    age,
    age_field,
    choice_field,
)
from django_pgqueue.admin.grouped import GroupedAdmin, GroupedFilterForm
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, DeadLetter, Failure
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.models.job import Reason
from django_pgqueue.operators.error_groups import LETTERS_MAX, kind_of, letters_of
from django_pgqueue.operators.filters import Meaning
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database

# What the archive, where those are that were set aside, can be narrowed to as well.
KEPT = ("q", "queue", "tag", "task")


class DeadLetterFilters(GroupedFilterForm):
    """A reason and an age besides what every list can be narrowed to."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
        **GroupedFilterForm.meanings,
        "age": age,
        # No column holds it: few_rows() has found all of them.
        "kind": lambda fingerprint: Q(),
    }

    reason = choice_field(_("Reason"), Reason.choices)
    age = age_field(_("Gave up"))
    # A fingerprint; given by links alone.
    kind = forms.RegexField(
        "[0-9a-f]{32}\\Z", required=False, empty_value="", widget=forms.HiddenInput
    )


@admin.register(DeadLetter)
class DeadLetterAdmin(GroupedAdmin):
    """What gave up, the latest first, and the ways on from there."""

    # Served by pgqueue_dead_letter_finished; the id tells equal times apart.
    keyset = Keyset(("finished_at", "id"))
    filter_form = DeadLetterFilters
    acts = (
        letter_acts.REDRIVE,
        letter_acts.REDRIVE_TO,
        letter_acts.SET_ASIDE,
        letter_acts.DELETE,
    )
    bulk_verbs = (BulkVerb.REDRIVE, BulkVerb.SET_ASIDE)
    groups_title = _("Dead letters by error")
    groups_tool = _("Group the latest by error")
    grouped_rows = _("dead letters")
    edit_submits = {
        SAVE_AND_REDRIVE: (_("Save and redrive"), ("retry",)),
        SAVE: (_("Save"), ()),
    }
    list_display = (
        *("number", "why", "task_name", "queue_name", "last_error", "attempts"),
        *("gave_up", "tags"),
    )
    list_reads = ("reason", "task", "queue", "attempt", "max_attempts", "finished_at")

    def failed_rows(self) -> QuerySet[Any]:
        """All of them have failed."""
        return DeadLetter.objects.using(get_settings().database).all()

    def bulk_asked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the age that is asked for as a time: it does not move on."""
        age = given.pop("age", "")
        if age:
            with database.cursor() as cursor:
                given["since"] = (database_now(cursor) - AGES[age][0]).isoformat()
        return given

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return those of the kind that is asked for, of what else is asked for."""
        few = super().few_rows(filter_form)
        kind = filter_form.given("kind")
        if not kind:
            return few
        found = letters_of(self.failed_rows(), kind)
        return found if few is None else sorted({*few} & {*found})

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Lead to groups, failures and what was set aside; say which kind is shown."""
        context = super().list_context(request)
        if self.has_page(ArchivedJob) and may(request, "view_archivedjob"):
            asked = {"state": "cancelled"} | {
                name: request.GET[name] for name in KEPT if request.GET.get(name)
            }
            there = f"{self._url(ArchivedJob, 'changelist')}?{urlencode(asked)}"
            context["tools"].append((there, _("Set aside or cancelled")))
        if not self._has_failures(request):
            return context
        context["tools"].insert(
            0, (self._url(Failure, "changelist"), _("Failures by kind"))
        )
        failure = None
        if request.GET.get("kind"):
            failure = self._failure(request, request.GET["kind"])
        return {**context, "failure": failure, "letters_max": LETTERS_MAX}

    def _has_failures(self, request: HttpRequest) -> bool:
        return self.has_page(Failure) and may(request, "view_failure")

    def _failure(self, request: HttpRequest, fingerprint: str) -> dict[str, Any] | None:
        """Return what is known of a kind of failure, for those who may see it."""
        if "\x00" in fingerprint:
            return None
        failures = Failure.objects.using(get_settings().database)
        row = failures.filter(pk=fingerprint).annotate(clock=Now()).first()
        if row is None:
            return None
        return {
            "url": self._url(Failure, "change", row.pk),
            "error_class": row.error_class,
            "message": payload.without_secrets(row.message)
            if payload.may_see(request)
            else "",
            "errors": f"{row.count:,}",
            "dead_letters": f"{row.dead_letters:,}",
            "first_seen": moments.short(row.first_seen, row.clock),
            "last_seen": moments.short(row.last_seen, row.clock),
            "letters_url": f"{self._url(self.model, 'changelist')}?kind={row.pk}",
        }

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the kind of failure that the job died of, if that was counted."""
        shown = super().detail_context(request, row)
        if self._has_failures(request):
            kind = kind_of(row.errors_text, row.reason)
            if kind is not None:
                shown["failure"] = self._failure(request, kind.digest)
        return shown

    why = column(_("reason"), lambda row: badge("dead", row.reason))

    gave_up = column(
        _("gave up"), lambda row: moments.short(row.finished_at, row.clock)
    )

    def heading(self, row: DeadLetter) -> str:
        """Show the reason beside the title."""
        return badge("dead", row.get_reason_display())

    def stands(self, row: Any) -> SafeString:
        """Say why and when the job gave up."""
        return format_html("{} {}", badge("dead", row.reason), self.gave_up(row))

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

    def redrive_edited(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Send the edited dead letter back to its queue, in the same transaction."""
        rows = self.rows_by_key(request, [row.pk])
        done, *left = letter_acts.REDRIVE.do(request, rows, {}, asked=1)
        text = _("The arguments were stored, and the job is back in its queue.")
        if not done.count:
            text = _("The arguments were stored.")
        tell(request, [Part(1, text), *left])
        return HttpResponseRedirect(self.list_url(request))

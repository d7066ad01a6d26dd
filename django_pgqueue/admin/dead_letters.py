"""The jobs that gave up, with the errors of every attempt, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Left, Now
from django.db.models.lookups import Exact
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import letter_acts, moments, payload
from django_pgqueue.admin.acts import Part, may, tell
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.edit import SAVE, SAVE_AND_REDRIVE, EditableAdmin
from django_pgqueue.admin.filter_form import FilterForm, JobFilterForm, choice_field
from django_pgqueue.admin.groups import (
    GROUPED_ROWS_MAX,
    LETTERS_MAX,
    error_class,
    groups,
    kind_of,
    letters_of,
)
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.admin.time_limit import limited
from django_pgqueue.conf import get_settings
from django_pgqueue.models import DeadLetter, Failure
from django_pgqueue.models.dead_letter import Reason
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import JOBS, Meaning
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.postgres.limits import Plans

# Characters of the last error's message that the list shows.
MESSAGE_CHARACTERS_MAX = 160

AGES = {
    "1h": (timedelta(hours=1), _("in the last hour")),
    "24h": (timedelta(days=1), _("in the last 24 hours")),
    "7d": (timedelta(days=7), _("in the last 7 days")),
    "30d": (timedelta(days=30), _("in the last 30 days")),
}


class DeadLetterFilters(JobFilterForm):
    """A reason and an age besides what every list can be narrowed to."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
        **JOBS,
        "age": lambda key: Q(finished_at__gte=Now() - AGES[key][0]),
        # No column holds it: few_rows() has found all of them.
        "kind": lambda fingerprint: Q(),
        "error": lambda name: Q(Exact(error_class(), Value(name))),
    }

    reason = choice_field(_("Reason"), Reason.choices)
    age = choice_field(
        _("Gave up"), [(key, label) for key, (_age, label) in AGES.items()]
    )
    # A fingerprint; given by links alone.
    kind = forms.RegexField(
        "[0-9a-f]{32}\\Z", required=False, empty_value="", widget=forms.HiddenInput
    )

    # The whole task of a group, and its class of error; given by links alone.
    task = forms.CharField(
        required=False, strip=False, empty_value="", widget=forms.HiddenInput
    )
    error = forms.CharField(
        required=False, strip=False, empty_value="", widget=forms.HiddenInput
    )


@admin.register(DeadLetter)
class DeadLetterAdmin(EditableAdmin):
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
    edit_submits = {
        SAVE_AND_REDRIVE: (_("Save and redrive"), ("retry",)),
        SAVE: (_("Save"), ()),
    }
    list_display = (
        *("number", "why", "task_name", "queue_name", "last_error", "attempts"),
        *("gave_up", "tags"),
    )
    list_reads = ("reason", "task", "queue", "attempt", "max_attempts", "finished_at")

    def list_rows(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Add the head of the last error, without reading tracebacks into Python."""
        last = KeyTransform(-1, "errors")
        keys = ["type", "kind"]
        if payload.may_see(request):
            keys.append("message")
        heads = {
            f"error_{key}": Left(
                KeyTextTransform(key, last), MESSAGE_CHARACTERS_MAX + 1
            )
            for key in keys
        }
        listed: QuerySet[Any] = super().list_rows(request, rows).annotate(**heads)
        return listed

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return those of the kind that is asked for, and of those with the tag."""
        few = super().few_rows(filter_form)
        kind = filter_form.given("kind")
        if not kind:
            return few
        letters = DeadLetter.objects.using(get_settings().database)
        found = letters_of(letters, kind)
        return found if few is None else sorted({*few} & {*found})

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Lead to the groups and to failures; say which kind is shown."""
        tools = [(self._url(self.model, "groups"), _("Group the latest by error"))]
        if not self._has_failures(request):
            return {"tools": tools}
        tools.insert(0, (self._url(Failure, "changelist"), _("Failures by kind")))
        failure = None
        if request.GET.get("kind"):
            failure = self._failure(request, request.GET["kind"])
        return {"tools": tools, "failure": failure, "letters_max": LETTERS_MAX}

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

    @admin.display(description=_("last error"))
    def last_error(self, letter: Any) -> str:
        """Show the class and the first line of what the last attempt raised."""
        text = human.last_error(
            letter.error_type,
            letter.error_kind,
            getattr(letter, "error_message", None),
        )
        if len(text) > MESSAGE_CHARACTERS_MAX:
            text = f"{text[:MESSAGE_CHARACTERS_MAX]}…"
        return format_html('<span class="pgqueue-text">{}</span>', text) if text else ""

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

    # Groups ----------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the page of groups, before whatever takes any text for an id."""
        return [
            self.own_url("groups", self._groups, of_row=False),
            *super().get_urls(),
        ]

    def _groups(self, request: HttpRequest) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            found, read = groups(self.get_queryset(request))
        there = self._url(self.model, "changelist")
        context = {
            **self.page_context(request),
            "title": _("Dead letters by error"),
            "groups": [
                {
                    "count": str(group.count),
                    "task": name(group.task),
                    "error": name(group.error),
                    "reason": badge("dead", group.reason),
                    "latest": moments.short(group.latest, group.clock),
                    "url": f"{there}?"
                    + urlencode(
                        {
                            "task": group.task,
                            "reason": group.reason,
                            "error": group.error,
                        }
                    ),
                }
                for group in found
            ],
            "read": read,
            "is_partial": read == GROUPED_ROWS_MAX,
        }
        return TemplateResponse(request, "admin/pgqueue/groups.html", context)

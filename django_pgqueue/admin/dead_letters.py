"""The jobs that gave up, with the errors of every attempt, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import column
from django_pgqueue.admin.acts import (
    Act,
    Confirm,
    Outcome,
    ReasonForm,
    Work,
    may,
)
from django_pgqueue.admin.cells import badge
from django_pgqueue.admin.grouped import GroupedAdmin, GroupedFilterForm
from django_pgqueue.admin.job_columns import EDIT, SAVE, SAVE_AND_REDRIVE
from django_pgqueue.admin.keyset_list import (
    AGES,
    FilterForm,
    age,
    age_field,
    choice_field,
)
from django_pgqueue.bounds import QUEUE_NAME
from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, DeadLetter, Failure
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.models.job import Reason
from django_pgqueue.operators.bulk_acts import VERBS
from django_pgqueue.operators.error_groups import LETTERS_MAX, kind_of, letters_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.tasks import operate
from django_pgqueue.worker.serving import unknown_queue

GONE = _("%(count)d had already gone: redriven, purged, or being moved just now.")

# Jobs that a message names.
HOLDERS_SHOWN = 5


class QueueForm(forms.Form):
    """The name of a queue; one that does not exist yet needs a tick."""

    queue = forms.CharField(label=_("Queue"), max_length=63, widget=forms.TextInput)
    is_new = forms.BooleanField(label=_("This queue is new"), required=False)

    def clean_queue(self) -> str:
        """Refuse what is no name of a queue."""
        queue: str = self.cleaned_data["queue"]
        if not QUEUE_NAME.fullmatch(queue):
            raise ValidationError(
                _(
                    "%(queue)s is no queue name: 1 to 63 letters, digits, '_', '.' and "
                    "'-', the first no '.' or '-'."
                ),
                params={"queue": queue},
            )
        return queue

    def clean(self) -> dict[str, Any]:
        """Ask which queue was meant, where there is none of that name."""
        cleaned: dict[str, Any] = super().clean() or {}
        name = cleaned.get("queue")
        problem = None if name is None or cleaned["is_new"] else unknown_queue(name)
        if problem is not None:
            self.add_error("queue", problem)
        return cleaned


def _redrive(work: Work) -> list[Any]:
    """Send dead letters back, to their queues or all to one; say what holds others."""
    done = operate.redrive(work.rows, queue=work.data.get("queue"))
    rest = sorted({*work.rows} - {*done})
    held = operate.key_holders(rest) if rest else {}
    return [done, {key: [holder] for key, holder in held.items()}]


def _redriven(row: Any, values: dict[str, Any]) -> str:
    """Note where it went: to a queue that was named, or back to its own."""
    names = {"queue": values.get("queue") or row.queue, "before": row.queue}
    if names["queue"] == row.queue:
        return _('Redriven to queue "%(queue)s".') % names
    return _('Redriven to queue "%(queue)s"; it was in "%(before)s".') % names


def _numbered(jobs: Iterable[Any]) -> str:
    return ", ".join(f"#{job}" for job in sorted({*jobs})[:HOLDERS_SHOWN])


HELD = Outcome(
    _("%(count)d left, since a live job has the dedup key: %(names)s."),
    is_left=True,
    names=_numbered,
)

REDRIVE = Act(
    name="redrive",
    permissions=("retry",),
    label=_("Redrive"),
    help=_("Back to its queue, with the same id, from attempt 1 on."),
    run=_redrive,
    outcomes=[
        Outcome(
            _("%(count)d redriven."),
            _redriven,
        ),
        HELD,
    ],
    left=GONE,
)

REDRIVE_TO = replace(
    REDRIVE,
    name="redrive-to",
    label=_("Redrive to another queue"),
    help=_("As redrive, to a queue that you name."),
    outcomes=[
        Outcome(
            _("%(count)d redriven to queue %(queue)s."),
            _redriven,
        ),
        HELD,
    ],
    form=QueueForm,
    warning=_(
        "They go to the queue that you name, with the same ids, from attempt 1 on. "
        "Look first whether a worker takes jobs from it."
    ),
)

SET_ASIDE = Act(
    name="set-aside",
    permissions=("cancel",),
    label=_("Set aside"),
    help=_("To the archive as cancelled: nobody needs it any more."),
    run=lambda work: [
        operate.set_aside(work.rows, by=work.by, reason=work.data["reason"])
    ],
    done=_("%(count)d set aside, to the archive."),
    entry=_("Set aside, to the archive: %(reason)s"),
    left=GONE,
    form=ReasonForm,
    warning=VERBS[BulkVerb.SET_ASIDE].warning,
)

DELETE = Act(
    name="purge",
    permissions=("purge",),
    label=_("Delete"),
    help=_("For ever, with its arguments and errors."),
    run=lambda work: [operate.delete_dead_letters(work.rows)],
    done=_("%(count)d deleted."),
    entry=_("Deleted."),
    flag=DELETION,
    left=GONE,
    form=Confirm,
    warning=_("They are deleted for ever, with their arguments and errors."),
    is_grave=True,
)


# What the archive, where those are that were set aside, can be narrowed to as well.
KEPT = ("q", "queue", "tag", "task")


class DeadLetterFilters(GroupedFilterForm):
    """A reason and an age besides what every list can be narrowed to."""

    meanings = {
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
        REDRIVE,
        EDIT,
        REDRIVE_TO,
        SET_ASIDE,
        DELETE,
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
        *("id", "why", "task", "queue_name", "last_error", "attempts"),
        *("finished_at", "tags"),
    )
    fields = (
        *("full_reason", *GroupedAdmin.fields_of_place, "started_at", "finished_at"),
        *("worker", *GroupedAdmin.fields_of_times, *GroupedAdmin.fields_of_links),
    )
    list_reads = ("reason", "task", "queue", "attempt", "max_attempts", "finished_at")

    def failed_rows(self) -> QuerySet[Any]:
        """All of them have failed."""
        return DeadLetter.objects.using(get_settings().database).all()

    def bulk_asked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the age that is asked for as a time: it does not move on."""
        age = given.pop("age", "")
        if age:
            given["since"] = AGES[age][0]
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

    def _failure(self, request: HttpRequest, fingerprint: str) -> Any:
        """Return what is known of a kind of failure, for those who may see it."""
        if "\x00" in fingerprint:
            return None
        failures = Failure.objects.using(get_settings().database)
        row: Any = failures.filter(pk=fingerprint).annotate(clock=Now()).first()
        if row is not None:
            shown = payload.without_secrets(row.message)
            row.message = shown if payload.may_see(request) else ""
        return row

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the kind of failure that the job died of, if that was counted."""
        shown = super().detail_context(request, row)
        if self._has_failures(request):
            kind = kind_of(row.errors_text, row.reason)
            if kind is not None:
                shown["failure"] = self._failure(request, kind.digest)
        return shown

    why = column(_("reason"), lambda row: badge("dead", row.reason))

    heading = column(None, lambda row: badge("dead", row.get_reason_display()))
    full_reason = column(
        _("reason"), lambda row: f"{row.reason}: {row.get_reason_display()}"
    )

    def stands(self, row: Any) -> SafeString:
        """Say why and when the job gave up."""
        gave_up = moments.short(row.finished_at, row.clock)
        return format_html("{} {}", badge("dead", row.reason), gave_up)

    def redrive_edited(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Send the edited dead letter back to its queue, in the same transaction."""
        REDRIVE.do(request, self.rows_by_key(request, [row.pk]), {}, asked=1)
        messages.success(request, _("The arguments were stored."))
        return HttpResponseRedirect(self.list_url(request))

"""All that a list's filter means: what can be done to it, shown and confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import BadRequest, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments
from django_pgqueue.admin.acts import log, may, who
from django_pgqueue.admin.edit import EditableAdmin
from django_pgqueue.admin.time_limit import limited
from django_pgqueue.models import BulkAct
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.operators import bulk_acts
from django_pgqueue.operators.bulk_acts import VERBS, Counted
from django_pgqueue.tasks.operate import REASON_CHARACTERS_MAX

PER_SECOND_MAX = 100_000

# Rows that the form names, the oldest.
NAMED_ROWS = 5

LABELS: Mapping[str, Any] = {
    BulkVerb.REDRIVE: gettext_lazy("Redrive all…"),
    BulkVerb.RETRY: gettext_lazy("Retry all now…"),
    BulkVerb.SET_ASIDE: gettext_lazy("Set all aside…"),
    BulkVerb.CANCEL: gettext_lazy("Cancel all…"),
}
TOLD: Mapping[str, Any] = {
    BulkVerb.REDRIVE: gettext_lazy(
        "They go back to their queues, with the same ids, from attempt 1 on. One whose "
        "dedup key a live job has stays a dead letter."
    ),
    BulkVerb.RETRY: gettext_lazy(
        "They are made due at once, instead of waiting for their time."
    ),
    BulkVerb.SET_ASIDE: gettext_lazy(
        "They go to the archive as cancelled, with your name and the reason, and are "
        "deleted with the archive. From there, they cannot be redriven."
    ),
    BulkVerb.CANCEL: gettext_lazy(
        "Jobs that wait go to the archive as cancelled, and never run. Jobs that run "
        "are asked to stop: a task ends by itself where it looks at context.cancelled, "
        "or at its next await."
    ),
}
GRAVE = (BulkVerb.SET_ASIDE, BulkVerb.CANCEL)


class BulkForm(forms.Form):
    """Why, how fast, and that it is meant."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.TextInput,
        help_text=gettext_lazy("For whoever looks at this later."),
    )
    per_second = forms.IntegerField(
        label=gettext_lazy("At most per second"),
        min_value=1,
        max_value=PER_SECOND_MAX,
        required=False,
        help_text=gettext_lazy("Empty: as fast as it goes."),
    )
    typed = forms.CharField(
        label=gettext_lazy("To do it, type the number of rows"),
        max_length=20,
        widget=forms.TextInput({"autocomplete": "off"}),
    )
    # What the page said that there are.
    counted = forms.IntegerField(widget=forms.HiddenInput, min_value=0)

    def __init__(self, data: Any, *, counted: Counted) -> None:
        super().__init__(data, initial={"counted": counted.rows})
        self.fields["typed"].help_text = str(counted.rows)

    def clean(self) -> dict[str, Any]:
        """Ask for the number that was shown, with or without commas."""
        data: dict[str, Any] = super().clean() or {}
        typed = str(data.get("typed", "")).replace(",", "").replace(" ", "")
        if "typed" in data and typed != str(data.get("counted")):
            text = _("Type %(number)s to say that you mean all of them.")
            number = {"number": data.get("counted")}
            self.add_error("typed", ValidationError(text, params=number))
        return data


class BulkActing(EditableAdmin):
    """A list with something that can be done to all that its filter means."""

    bulk_verbs: ClassVar[Sequence[str]] = ()

    def bulk_asked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return what the filters of the list ask for, in words that do not move."""
        return given

    def bulk_tools(self, request: HttpRequest, query: str) -> list[tuple[str, Any]]:
        """Return the links to what the user may do to all that *query* means."""
        if not self.has_page(BulkAct):
            return []
        return [
            (f"{self._url(self.model, _name(verb))}?{query}", LABELS[verb])
            for verb in self.bulk_verbs
            if may(request, VERBS[verb].permission)
        ]

    def get_urls(self) -> list[URLPattern]:
        """Add the forms, before whatever takes any text for an id."""
        own = [
            self.own_url(
                _name(verb),
                partial(self._bulk, verb=verb),
                (VERBS[verb].permission,),
                of_row=False,
            )
            for verb in self.bulk_verbs
        ]
        return [*own, *super().get_urls()]

    def _bulk(self, request: HttpRequest, *, verb: str) -> HttpResponse:
        filters = self.filters(request)
        if not filters.is_readable:
            raise BadRequest("A filter cannot be read")
        given = {name: text for name, text in filters.cleaned_data.items() if text}
        with limited():
            asked = bulk_acts.asked_of(verb, self.bulk_asked(given))
            counted = Counted(0, False, 0, None, None)
            if bulk_acts.may_be_done(verb, asked):
                counted = bulk_acts.count(verb, asked)
            back = f"{self._url(self.model, 'changelist')}?{request.GET.urlencode()}"
            if not counted.rows and not counted.is_more:
                messages.warning(request, _("No row matches of which it can be done."))
                return HttpResponseRedirect(back)
            form = BulkForm(
                request.POST if request.method == "POST" else None, counted=counted
            )
            if form.is_valid():
                return self._begin(request, verb, asked, counted, form.cleaned_data)
            return self._ask_bulk(request, verb, asked, counted, form, back)

    def _begin(
        self,
        request: HttpRequest,
        verb: str,
        asked: dict[str, Any],
        counted: Counted,
        data: dict[str, Any],
    ) -> HttpResponse:
        key = bulk_acts.begin(
            verb,
            asked,
            counted,
            by=who(request),
            reason=data["reason"],
            per_second=data["per_second"],
        )
        row = BulkAct.objects.using(self.get_queryset(request).db).get(pk=key)
        text = _("Asked for, of %(rows)s: %(reason)s")
        values = {"rows": said(asked), "reason": data["reason"]}
        log(request, [row], text % values, flag=ADDITION)
        messages.success(request, _("%(act)s was asked for.") % {"act": row})
        if may(request, "view_bulkact"):
            return HttpResponseRedirect(self._url(BulkAct, "change", key))
        return HttpResponseRedirect(self._url(self.model, "changelist"))

    def _ask_bulk(
        self,
        request: HttpRequest,
        verb: str,
        asked: dict[str, Any],
        counted: Counted,
        form: BulkForm,
        back: str,
    ) -> HttpResponse:
        rows = bulk_acts.chosen(verb, asked)
        found = bulk_acts.find(rows, asked, after=0, top=counted.top, most=NAMED_ROWS)
        named = self.rows_by_key(request, found.ids)
        context = {
            **self.page_context(request),
            "title": str(LABELS[verb]).removesuffix("…"),
            "told": _told(asked, counted),
            "warning": TOLD[verb],
            "rows": list(named.values()),
            "rows_left_out": max(counted.rows - len(named), 0),
            "form": form,
            "hidden": [],
            "submits": [("", str(LABELS[verb]).removesuffix("…"))],
            "is_grave": verb in GRAVE,
            "back": back,
        }
        return TemplateResponse(request, "admin/pgqueue/form.html", context)


def said(asked: Mapping[str, Any]) -> str:
    """Return filters as people read them: queue=mail, error=ValueError."""
    return ", ".join(f"{name}={value}" for name, value in asked.items()) or _("all")


def _told(asked: Mapping[str, Any], counted: Counted) -> str:
    text = _("%(count)s rows: %(filters)s.")
    if counted.is_more:
        text = _("%(count)s rows were counted, and there are more: %(filters)s.")
    parts = [text % {"count": f"{counted.rows:,}", "filters": said(asked)}]
    if counted.first is not None and counted.latest is not None:
        times = {
            "first": moments.absolute(counted.first),
            "latest": moments.absolute(counted.latest),
        }
        parts.append(_("From %(first)s to %(latest)s.") % times)
    parts.append(
        _("A worker does it in the background, in chunks; it can be stopped between.")
    )
    return " ".join(parts)


def _name(verb: str) -> str:
    return f"all-{verb.replace('_', '-')}"

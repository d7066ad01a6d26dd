"""All that a list's filter means: what is done to it, shown and confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core import signing
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments
from django_pgqueue.admin.acts import log, may, who
from django_pgqueue.admin.edit import EditableAdmin
from django_pgqueue.admin.keyset_list import said
from django_pgqueue.bounds import PER_SECOND_MAX
from django_pgqueue.models import BulkAct
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.operators import bulk_acts
from django_pgqueue.operators.bulk_acts import Counted
from django_pgqueue.tasks.operate import REASON_CHARACTERS_MAX

# Rows that the form names, the oldest.
NAMED_ROWS = 5

# What is shown is confirmed within so long, or counted anew.
SHOWN_SECONDS_MAX = 3_600
SALT = "django_pgqueue.admin.bulk_form"
TIMES = ("first", "latest", "at")

# What is typed where there are more rows than were counted.
ALL = "all"

TOLD: Mapping[str, Any] = {
    BulkVerb.REDRIVE: gettext_lazy(
        "They go back to their queues, with the same ids, from attempt 1 on. One whose "
        "dedup key a live job has stays a dead letter."
    ),
    BulkVerb.RETRY: gettext_lazy(
        "They are made due at once, instead of waiting for their time; also those "
        "among them that fail, and wait, before a worker comes to them."
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
        max_length=20,
        widget=forms.TextInput({"autocomplete": "off", "class": "pgqueue-short"}),
    )

    def __init__(self, data: Any, *, shown: Shown, is_anew: bool) -> None:
        super().__init__(data)
        self._is_anew = is_anew
        counted = shown.counted
        # Where there are more than were counted, no number says how many are meant.
        self._expected = ALL if counted.is_more else str(counted.rows)
        text = _("To do it, type %(expected)s, the number of rows")
        if counted.is_more:
            text = _("To do it to all, counted or not, type the word %(expected)s")
        self.fields["typed"].label = text % {"expected": self._expected}

    def clean_typed(self) -> str:
        """Ask for what was shown; a number with or without commas."""
        typed = str(self.cleaned_data["typed"]).replace(",", "").replace(" ", "")
        if self._is_anew:
            raise ValidationError(_("The rows were counted anew: look at them again."))
        if typed != self._expected:
            text = _("Type %(expected)s to say that you mean all of them.")
            raise ValidationError(text, params={"expected": self._expected})
        return typed


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page has said that is meant, signed so that nobody can say otherwise."""

    asked: dict[str, Any]
    counted: Counted

    def signed(self, about: list[Any]) -> str:
        """Return it as text; *about* says of which page and filter."""
        told = asdict(self.counted)
        for name in TIMES:
            told[name] = told[name] and told[name].isoformat()
        return signing.dumps([about, self.asked, told], salt=SALT)


def shown_before(text: str, about: list[Any]) -> Shown | None:
    """Return what signed() made; None: it is none of this page, or an hour old."""
    try:
        of, asked, told = signing.loads(text, salt=SALT, max_age=SHOWN_SECONDS_MAX)
    except signing.BadSignature:
        return None
    if of != about:
        return None
    for name in TIMES:
        told[name] = told[name] and datetime.fromisoformat(told[name])
    return Shown(asked, Counted(**told))


@dataclass(frozen=True, slots=True)
class BulkPage:
    """
    The page of one act: shows what is meant, and has it done once that is confirmed.

    Attributes:
        admin: Of the list whose filter it is.
        request: With the filter in its query.
        verb: What is to be done.
        title: What that is called.
    """

    admin: EditableAdmin
    request: HttpRequest
    verb: str
    title: Any

    def answer(self, asked: Callable[[], dict[str, Any]]) -> HttpResponse:
        """Show the form, or go on with what it says; *asked* gives the filters."""
        request = self.request
        shown = shown_before(request.POST.get("shown", ""), self._about)
        is_anew = shown is None
        if shown is None:
            shown = self._counted(bulk_acts.asked_of(self.verb, asked()))
        if shown is None:
            return HttpResponseRedirect(self._back)
        data = request.POST if request.method == "POST" else None
        form = BulkForm(data, shown=shown, is_anew=is_anew)
        if form.is_valid():
            return self._begin(shown, form.cleaned_data)
        return self._ask(shown, form)

    @property
    def _about(self) -> list[Any]:
        """Of which page and filter, as JSON gives it back."""
        query = [[name, texts] for name, texts in self.request.GET.lists()]
        return [self.admin.opts.model_name, str(self.verb), sorted(query)]

    @property
    def _back(self) -> str:
        there = self.admin._url(self.admin.model, "changelist")
        return f"{there}?{self.request.GET.urlencode()}"

    def _counted(self, asked: dict[str, Any]) -> Shown | None:
        """Count what is meant; None: nothing, which the user is told."""
        text = _("No row matches of which it can be done.")
        if bulk_acts.may_be_done(self.verb, asked):
            counted = bulk_acts.count(self.verb, asked)
            if counted.rows:
                return Shown(asked, counted)
            if counted.is_more:
                text = _(
                    "Nothing was done: in the %(seconds)d s that there are for "
                    "counting, no row was found that matches. Narrow the list by task, "
                    "by queue or by time."
                ) % {"seconds": bulk_acts.COUNT_SECONDS_MAX}
        messages.warning(self.request, text)
        return None

    def _begin(self, shown: Shown, data: dict[str, Any]) -> HttpResponse:
        request, admin = self.request, self.admin
        key = bulk_acts.begin(
            self.verb,
            shown.asked,
            shown.counted,
            by=who(request),
            reason=data["reason"],
            per_second=data["per_second"],
        )
        row = BulkAct.objects.using(admin.get_queryset(request).db).get(pk=key)
        text = _("Asked for, of %(rows)s: %(reason)s")
        values = {"rows": said(shown.asked), "reason": data["reason"]}
        log(request, [row], text % values, flag=ADDITION)
        messages.success(request, _("%(act)s was asked for.") % {"act": row})
        if admin.has_page(BulkAct) and may(request, "view_bulkact"):
            return HttpResponseRedirect(admin._url(BulkAct, "change", key))
        return HttpResponseRedirect(admin._url(admin.model, "changelist"))

    def _ask(self, shown: Shown, form: BulkForm) -> HttpResponse:
        asked, counted = shown.asked, shown.counted
        first = bulk_acts.first_rows(self.verb, asked, counted, NAMED_ROWS)
        named = self.admin.rows_by_key(self.request, first)
        context = {
            **self.admin.page_context(self.request),
            "title": self.title,
            "told": _told(asked, counted),
            "warning": TOLD[self.verb],
            "rows": list(named.values()),
            "rows_left_out": max(counted.rows - len(named), 0),
            "form": form,
            "hidden": [("shown", shown.signed(self._about))],
            "submits": [("", self.title)],
            "is_grave": self.verb in GRAVE,
            "back": self._back,
        }
        return TemplateResponse(self.request, "admin/pgqueue/form.html", context)


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

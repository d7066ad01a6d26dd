"""Bulk forms: an act on all rows of a filter, or a replay; counted, then confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core import signing
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import TypedForm, log, may, who
from django_pgqueue.admin.keyset_list import said
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.bounds import PER_SECOND_MAX
from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log import receivers
from django_pgqueue.log.replay import Plan
from django_pgqueue.models import BulkAct
from django_pgqueue.operators import bulk_acts
from django_pgqueue.operators.bulk_acts import VERBS
from django_pgqueue.operators.human import in_utc
from django_pgqueue.queues.bulk_acts import Extent
from django_pgqueue.tasks import database, operate
from django_pgqueue.tasks.operate import REASON_CHARACTERS_MAX
from django_pgqueue.topics import replay

# A count is confirmed within so long, or the rows are counted again.
SHOWN_SECONDS_MAX = 3_600
SALT = "django_pgqueue.admin.bulk_form"

# Typed where there are more rows than were counted.
ALL = "all"

REPLAY, PREVIEW = "replay", "preview"
SUBMITS = [
    (PREVIEW, gettext_lazy("Count them")),
    (REPLAY, gettext_lazy("Replay")),
]


class ActForm(forms.Form):
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
        max_length=200,
        empty_value="",
        widget=forms.TextInput({"autocomplete": "off", "class": "pgqueue-short"}),
    )

    @property
    def terms(self) -> dict[str, Any]:
        """Why and how fast, as an act stores them."""
        return {name: self.cleaned_data[name] for name in ("reason", "per_second")}


class BulkForm(ActForm):
    """An act is confirmed by the number of its rows."""

    def __init__(self, data: Any, *, extent: Extent, is_new: bool) -> None:
        super().__init__(data)
        self._is_new = is_new
        # Where there are more than were counted, no number says how many.
        self._expected = ALL if extent.is_more else str(extent.rows)
        text = _("To do it, type %(expected)s, the number of rows")
        if extent.is_more:
            text = _("To do it to all, counted or not, type the word %(expected)s")
        self.fields["typed"].label = text % {"expected": self._expected}

    def clean_typed(self) -> str:
        """Ask for the number that was shown, with or without commas."""
        typed = str(self.cleaned_data["typed"]).replace(",", "").replace(" ", "")
        if self._is_new:
            raise ValidationError(_("The rows were counted anew: look at them again."))
        if typed != self._expected:
            text = _("Type %(expected)s to say that you mean all of them.")
            raise ValidationError(text, params={"expected": self._expected})
        return typed


@dataclass(frozen=True, slots=True)
class Count:
    """What a page has counted, signed so that it cannot be changed."""

    asked: dict[str, Any]
    extent: Extent
    text: str

    def signed(self, about: list[Any]) -> str:
        """Return it as text; *about* names the page and its filter."""
        rows, is_more, top, at, *_times = self.extent
        content = [about, self.asked, self.text, rows, is_more, top, at.isoformat()]
        return signing.dumps(content, salt=SALT)


def count_of(signed: str, about: list[Any]) -> Count | None:
    """Return what was signed; None: for another page, or an hour ago."""
    try:
        content = signing.loads(signed, salt=SALT, max_age=SHOWN_SECONDS_MAX)
    except signing.BadSignature:
        return None
    of, asked, text, rows, is_more, top, at = content
    extent = Extent(rows, is_more, top, datetime.fromisoformat(at))
    return Count(asked, extent, text) if of == about else None


def bulk_page(
    admin: ActingAdmin,
    request: HttpRequest,
    name: str,
    given: Callable[[], dict[str, Any]],
) -> HttpResponse:
    """
    Show how many rows match and a form, or start the act when it is confirmed.

    Args:
        admin: Of the list with the filter.
        request: With the filter in its query.
        name: One of VERBS.
        given: Returns the filters.
    """
    verb = VERBS[name]
    query = [[field, texts] for field, texts in request.GET.lists()]
    about = [admin.opts.model_name, str(name), sorted(query)]
    there = admin._url(admin.model, "changelist")
    back = f"{there}?{request.GET.urlencode()}"
    counted = count_of(request.POST.get("shown", ""), about)
    is_new = counted is None
    if counted is None:
        counted = _count(request, name, bulk_acts.asked_of(name, given()))
    if counted is None:
        return HttpResponseRedirect(back)
    data = request.POST if request.method == "POST" else None
    form = BulkForm(data, extent=counted.extent, is_new=is_new)
    if form.is_valid():
        act = operate.begin_act(
            name, counted.asked, counted.extent, by=who(request), **form.terms
        )
        return begun(admin, request, act, there)
    return admin.form_page(
        request,
        form,
        title=verb.title,
        told=counted.text,
        warning=verb.warning,
        hidden=[("shown", counted.signed(about))],
        submits=[("", verb.title)],
        is_grave=verb.is_grave,
        back=back,
    )


def _count(request: HttpRequest, name: str, asked: dict[str, Any]) -> Count | None:
    """Count the matching rows; None: there is none, which the user is told."""
    text = _("No row matches of which it can be done.")
    if bulk_acts.may_be_done(name, asked):
        extent = bulk_acts.count(name, asked)
        if extent.rows:
            return Count(asked, extent, _rows_text(asked, extent))
        if extent.is_more:
            text = _(
                "Nothing was done: in the %(seconds)d s that there are for "
                "counting, no row was found that matches. Narrow the list by task, "
                "by queue or by time."
            ) % {"seconds": bulk_acts.COUNT_SECONDS_MAX}
    messages.warning(request, text)
    return None


def begun(
    admin: ActingAdmin, request: HttpRequest, key: int, back: str
) -> HttpResponse:
    """Note that an act was started, and show its page to those who may view it."""
    row = BulkAct.objects.using(admin.get_queryset(request).db).get(pk=key)
    text = _("Asked for, of %(rows)s: %(reason)s")
    values = {"rows": said(row.filters), "reason": row.reason}
    log(request, [row], text % values, flag=ADDITION)
    messages.success(request, _("%(act)s was asked for.") % {"act": row})
    if admin.has_page(BulkAct) and may(request, "view_bulkact"):
        back = admin._url(BulkAct, "change", key)
    return HttpResponseRedirect(back)


def _rows_text(asked: Mapping[str, Any], extent: Extent) -> str:
    text = _("%(count)s rows: %(filters)s.")
    if extent.is_more:
        text = _("%(count)s rows were counted, and there are more: %(filters)s.")
    parts = [text % {"count": f"{extent.rows:,}", "filters": said(asked)}]
    if extent.first is not None and extent.latest is not None:
        times = {
            "first": moments.absolute(extent.first),
            "latest": moments.absolute(extent.latest),
        }
        parts.append(_("From %(first)s to %(latest)s.") % times)
    parts.append(
        _("A worker does it in the background, in chunks; it can be stopped between.")
    )
    return " ".join(parts)


# Replays ------------------------------------------------------------------------------


class ObjectField(forms.JSONField):
    """A JSON object, or nothing."""

    def prepare_value(self, value: Any) -> Any:
        """Show nothing as nothing."""
        return "" if value is None else super().prepare_value(value)

    def clean(self, value: Any) -> Any:
        """Ask for an object."""
        found = super().clean(value)
        if found is not None and not isinstance(found, Mapping):
            raise ValidationError(_('Write a JSON object, such as {"country": "FR"}.'))
        return found


class ReplayForm(TypedForm, ActForm):
    """Which messages, and for whom; a replay is confirmed by the topic's name."""

    field_order = ("to", "since", "until", "where")

    to = forms.ChoiceField(label=gettext_lazy("For"))
    since = MomentField(
        label=gettext_lazy("Published since"),
        required=False,
        help_text=gettext_lazy("Empty: all that retention has left."),
    )
    until = MomentField(
        label=gettext_lazy("Published before"),
        required=False,
        help_text=gettext_lazy("Empty: up to now."),
    )
    where = ObjectField(
        label=gettext_lazy("Payload contains"),
        required=False,
        widget=forms.TextInput({"placeholder": '{"country": "FR"}'}),
        help_text=gettext_lazy("A JSON object; empty: whatever it contains."),
    )

    def __init__(self, row: Any, data: Any, *, receivers: list[str]) -> None:
        super().__init__(row, data)
        self.fields["to"].choices = [  # type: ignore[attr-defined]
            (each, each) for each in receivers
        ]
        self.fields["reason"].required = False

    def plan(self) -> Plan:
        """Return what is meant, counted; raise MessagesLost or TopicError."""
        said = self.cleaned_data
        return replay.plan(
            self.row.name,
            said["to"],
            since="earliest" if said["since"] is None else in_utc(said["since"]),
            until=None if said["until"] is None else in_utc(said["until"]),
            where=said["where"],
        )


def replay_page(admin: ActingAdmin, request: HttpRequest, row: Any) -> HttpResponse:
    """Show the form of a replay of a topic, count, or begin it when confirmed."""
    is_post = request.method == "POST"
    with database.cursor() as cursor:
        known = receivers.known(cursor, row.name)
    form = ReplayForm(row, request.POST if is_post else None, receivers=known)
    plan = None
    if is_post and form.is_valid():
        try:
            plan = form.plan()
            if REPLAY in request.POST and form.confirms():
                act = replay.begin(plan, by=who(request), **form.terms)
                return begun(admin, request, act.id, admin._row_url(row.pk))
        except (MessagesLost, TopicError) as error:
            form.add_error(None, str(error))
    return admin.form_page(
        request,
        form,
        "admin/pgqueue/replay.html",
        title=_("Replay messages of %(row)s") % {"row": row},
        told=_(
            "Whoever is chosen gets a job for each message, in their order; a "
            "group's task gets lists of one, and its position stays where it is. "
            "They run beside what is published meanwhile. A worker makes them in "
            "the background, in chunks; it can be stopped between."
        ),
        original=row,
        submits=SUBMITS,
        has_receivers=bool(known),
        plan=plan,
    )

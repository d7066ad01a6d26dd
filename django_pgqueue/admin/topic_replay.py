"""Replay: messages of a topic once more; the page counts them before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import log, may, who
from django_pgqueue.admin.cells import Note
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.bounds import PER_SECOND_MAX
from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log import receivers
from django_pgqueue.log.replay_plan import Plan
from django_pgqueue.models import BulkAct
from django_pgqueue.operators import human
from django_pgqueue.operators.human import in_utc
from django_pgqueue.tasks import database
from django_pgqueue.tasks.operate import REASON_CHARACTERS_MAX
from django_pgqueue.topics import replay

REPLAY, PREVIEW = "replay", "preview"
SUBMITS = [
    (PREVIEW, gettext_lazy("Count them")),
    (REPLAY, gettext_lazy("Replay")),
]


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


class ReplayForm(forms.Form):
    """Which messages, and for whom; a replay is confirmed by the topic's name."""

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
    per_second = forms.IntegerField(
        label=gettext_lazy("At most per second"),
        min_value=1,
        max_value=PER_SECOND_MAX,
        required=False,
        help_text=gettext_lazy("Empty: as fast as it goes."),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_CHARACTERS_MAX,
        required=False,
        widget=forms.TextInput,
        help_text=gettext_lazy("For whoever looks at this later."),
    )
    typed = forms.CharField(
        label=gettext_lazy("To do it, type the name of the topic"),
        required=False,
        max_length=200,
        empty_value="",
        widget=forms.TextInput({"autocomplete": "off"}),
    )

    def __init__(self, row: Any, data: Any, *, receivers: list[str]) -> None:
        super().__init__(data)
        self.row = row
        self.fields["to"].choices = [  # type: ignore[attr-defined]
            (each, each) for each in receivers
        ]
        self.fields["typed"].help_text = row.name

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

    def confirms(self) -> bool:
        """Whether the topic's name was typed; says so at the field if not."""
        if self.cleaned_data["typed"].strip() == self.row.name:
            return True
        text = _("Type %(name)s to say that you mean this topic.")
        self.add_error("typed", ValidationError(text % {"name": self.row.name}))
        return False


@dataclass(frozen=True, slots=True)
class ReplayPage:
    """
    The page of one replay: counts what is meant, and has it done if that is confirmed.

    Attributes:
        admin: Of the topics.
        request: With the form, where it was sent.
        row: The topic.
    """

    admin: ActingAdmin
    request: HttpRequest
    row: Any

    def answer(self) -> HttpResponse:
        """Show the form, or go on with what it says."""
        request, row, admin = self.request, self.row, self.admin
        is_post = request.method == "POST"
        with database.cursor() as cursor:
            known = receivers.known(cursor, row.name)
        form = ReplayForm(row, request.POST if is_post else None, receivers=known)
        notes = [] if known else [Note(_("Nobody subscribes to it or reads it."))]
        if is_post and form.is_valid():
            try:
                plan = form.plan()
                notes.append(Note(_told(plan)))
                if REPLAY in request.POST and form.confirms():
                    return self._begun(form, plan)
            except (MessagesLost, TopicError) as error:
                form.add_error(None, str(error))
        context = {
            **admin.page_context(request),
            "title": _("Replay messages of %(row)s") % {"row": row},
            "told": _(
                "Whoever is chosen gets a job for each message, in their order; a "
                "group's task gets lists of one, and its position stays where it is. "
                "They run beside what is published meanwhile. A worker makes them in "
                "the background, in chunks; it can be stopped between."
            ),
            "original": row,
            "form": form,
            "hidden": [],
            "submits": SUBMITS,
            "notes": notes,
            "back": admin._url(admin.model, "change", row.pk),
        }
        return TemplateResponse(request, "admin/pgqueue/form.html", context)

    def _begun(self, form: ReplayForm, plan: Plan) -> HttpResponse:
        request, row, admin = self.request, self.row, self.admin
        said = form.cleaned_data
        asked = replay.begin(
            plan, by=who(request), reason=said["reason"], per_second=said["per_second"]
        )
        told = _("Asked for a replay into %(into)s: bulk act %(id)d.")
        log(request, [row], told % {"into": plan.into, "id": asked.id}, flag=ADDITION)
        messages.success(request, _("Replay #%(id)d was asked for.") % {"id": asked.id})
        if admin.has_page(BulkAct) and may(request, "view_bulkact"):
            return HttpResponseRedirect(admin._url(BulkAct, "change", asked.id))
        return HttpResponseRedirect(admin._url(admin.model, "change", row.pk))


def _told(plan: Plan) -> str:
    count = human.count(plan.messages, is_more=plan.is_more)
    text = ngettext(
        "%(count)s message is meant.", "%(count)s messages are meant.", plan.messages
    )
    parts = [text % {"count": count}]
    if plan.first is not None and plan.last is not None:
        times = {
            "first": moments.absolute(plan.first),
            "last": moments.absolute(plan.last),
        }
        parts.append(_("Published from %(first)s to %(last)s.") % times)
    return " ".join(parts)

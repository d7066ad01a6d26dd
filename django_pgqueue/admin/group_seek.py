"""Seek: a group reads on from elsewhere; the page says what happens before it does."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Button, log, may
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.admin.read_only import limited
from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log.seek import EARLIEST, LATEST
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.states import seek_preview
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.topics import operate_groups as operate

TIME, ID = "time", "id"
WAYS = [
    (EARLIEST, gettext_lazy("earliest: all that retention has left")),
    (LATEST, gettext_lazy("latest: what is published from now on")),
    (TIME, gettext_lazy("a time: what was published then or later")),
    (ID, gettext_lazy("an id: what comes after that message")),
]

ID_MAX = 2**63 - 1


class SeekForm(forms.Form):
    """Where a group is to read on; a seek is confirmed by the name of the group."""

    way = forms.ChoiceField(
        label=gettext_lazy("To"), choices=WAYS, widget=forms.RadioSelect
    )
    time = MomentField(label=gettext_lazy("Time"), required=False)
    message = forms.IntegerField(
        label=gettext_lazy("Id"),
        required=False,
        min_value=0,
        max_value=ID_MAX,
        widget=forms.TextInput({"placeholder": "4711"}),
    )
    partition = forms.TypedChoiceField(
        label=gettext_lazy("Partition"), required=False, coerce=int, empty_value=None
    )
    typed = forms.CharField(
        label=gettext_lazy("To do it, type the name of the group"),
        required=False,
        max_length=200,
        empty_value="",
        widget=forms.TextInput({"autocomplete": "off"}),
    )

    def __init__(self, row: Any, data: Any, *, partitions: list[int]) -> None:
        super().__init__(data, initial={"way": EARLIEST})
        self.row = row
        self.fields["partition"].choices = [  # type: ignore[attr-defined]
            ("", _("all %(count)d") % {"count": len(partitions)}),
            *((str(each), str(each)) for each in partitions),
        ]
        self.fields["typed"].help_text = str(row)

    @property
    def place(self) -> int | str | datetime:
        """Return where to, as seek() takes it."""
        way = self.cleaned_data["way"]
        if way == TIME:
            return in_utc(self.cleaned_data["time"])
        if way == ID:
            return int(self.cleaned_data["message"])
        return str(way)

    def clean(self) -> dict[str, Any]:
        """Ask for the time or the id that was chosen."""
        data: dict[str, Any] = super().clean() or {}
        for way, field in ((TIME, "time"), (ID, "message")):
            is_missing = data.get(field) is None and field not in self.errors
            if data.get("way") == way and is_missing:
                self.add_error(field, ValidationError(_("This field is required.")))
        return data

    def confirms(self) -> bool:
        """Whether the name of the group was typed; says so at the field if not."""
        if self.cleaned_data["typed"].strip() == str(self.row):
            return True
        text = _("Type %(name)s to say that you mean this group.")
        self.add_error("typed", ValidationError(text % {"name": self.row}))
        return False


PERMISSIONS = ("seek",)

SEEK, PREVIEW = "seek", "preview"
SUBMITS = [
    (PREVIEW, gettext_lazy("Show what happens")),
    (SEEK, gettext_lazy("Seek")),
]


class SeekableAdmin(ActingAdmin):
    """A page of groups, with the form that moves one."""

    def get_urls(self) -> list[URLPattern]:
        """Add the form."""
        return [self.own_url(SEEK, self._seek, PERMISSIONS), *super().get_urls()]

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """Offer to seek."""
        offered = super().buttons(request, row)
        if may(request, *PERMISSIONS):
            offered.append(
                Button(
                    url=self.act_url(request, SEEK, row),
                    label=_("Seek…"),
                    help=_("It reads on from another place."),
                    is_post=False,
                )
            )
        return offered

    def partitions_of(self, row: Any) -> list[int]:
        """Return the partitions in which the group has a position."""
        raise NotImplementedError

    def _seek(self, request: HttpRequest, object_id: str) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            key = self._key(object_id)
            row = self.rows_by_key(request, [key]).get(key) if key is not None else None
            if row is None:
                return self.elsewhere(request, object_id)
            return self._seek_row(request, row)

    def _seek_row(self, request: HttpRequest, row: Any) -> HttpResponse:
        is_post = request.method == "POST"
        form = SeekForm(
            row,
            request.POST if is_post else None,
            partitions=self.partitions_of(row),
        )
        foreseen = None
        if is_post and form.is_valid():
            try:
                foreseen = operate.preview_seek(
                    row, form.place, partition=form.cleaned_data["partition"]
                )
                if SEEK in request.POST and form.confirms():
                    return self._sought(request, row, form)
            except (MessagesLost, TopicError) as error:
                form.add_error(None, str(error))
        context = {
            **self.page_context(request),
            "title": _("Seek %(row)s") % {"row": row},
            "told": _(
                "The group goes on from another place, also while it is read: what is "
                "being handled now is refused when it is done; what it did outside of "
                "the database stays done. Halted partitions are read on."
            ),
            "original": row,
            "form": form,
            "hidden": [],
            "submits": SUBMITS,
            "foreseen": foreseen and seek_preview(foreseen),
            "back": self._url(self.model, "change", row.pk),
        }
        return TemplateResponse(request, "admin/pgqueue/seek.html", context)

    def _sought(self, request: HttpRequest, row: Any, form: SeekForm) -> HttpResponse:
        partition = form.cleaned_data["partition"]
        done = operate.seek(row, form.place, partition=partition)
        moved = ", ".join(
            f"{each.partition}: {each.before} → {each.now}" for each in done
        )
        told = _("Sought to %(place)s. Positions: %(moved)s.")
        log(request, [row], told % {"place": _named(form.place), "moved": moved})
        text = ngettext(
            "%(count)d partition reads on from there.",
            "%(count)d partitions read on from there.",
            len(done),
        )
        messages.success(request, text % {"count": len(done)})
        return HttpResponseRedirect(self._url(self.model, "change", row.pk))


def _named(place: int | str | datetime) -> str:
    if isinstance(place, datetime):
        return place.isoformat()
    return str(place)

"""Seek: a group reads on from elsewhere; the page says what happens before it does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Button, log, may
from django_pgqueue.admin.seek_form import SeekForm
from django_pgqueue.admin.time_limit import limited
from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log.foresee import Step
from django_pgqueue.operators import human
from django_pgqueue.topics import operate_groups as operate

PERMISSIONS = ("seek",)

SEEK, PREVIEW = "seek", "preview"
SUBMITS = [
    (PREVIEW, gettext_lazy("Show what happens")),
    (SEEK, gettext_lazy("Seek")),
]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a seek would do, as its page shows it."""

    # By partition: from where to where, how many messages are read again or skipped.
    lines: list[tuple[int, int, int, str, str]]
    again: str
    skipped: str


class SeekableAdmin(ActingAdmin):
    """A page of groups, with the form that moves one."""

    def get_urls(self) -> list[URLPattern]:
        """Add the form."""
        return [self.own_url(SEEK, self._seek), *super().get_urls()]

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
        self.require(request, may(request, *PERMISSIONS))
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        with limited():
            key = self._key(unquote(object_id))
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
                foreseen = self._foreseen(row, form)
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
            "foreseen": foreseen,
            "back": self._url(self.model, "change", row.pk),
        }
        return TemplateResponse(request, "admin/pgqueue/seek.html", context)

    def _foreseen(self, row: Any, form: SeekForm) -> Foreseen:
        partition = form.cleaned_data["partition"]
        steps = operate.preview_seek(row, form.place, partition=partition)
        return Foreseen(
            lines=[_line(step) for step in steps],
            again=_total([step for step in steps if step.is_back]),
            skipped=_total([step for step in steps if not step.is_back]),
        )

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


def _line(step: Step) -> tuple[int, int, int, str, str]:
    count = _total([step])
    is_skip = not step.is_back and step.messages > 0
    again, skipped = count if step.is_back else "", count if is_skip else ""
    return step.partition, step.before, step.after, again, skipped


def _total(steps: list[Step]) -> str:
    is_more = any(step.is_more for step in steps)
    return human.count(sum(step.messages for step in steps), is_more=is_more)


def _named(place: int | str | datetime) -> str:
    if isinstance(place, datetime):
        return place.isoformat()
    return str(place)

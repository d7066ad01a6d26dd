"""Grouped: lists of what has failed, and the page that shows which are alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import BadRequest
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.acting import limited
from django_pgqueue.admin.acts import may
from django_pgqueue.admin.cells import badge
from django_pgqueue.admin.chart import sparkline
from django_pgqueue.admin.job_columns import JobAdminColumns
from django_pgqueue.admin.keyset_list import (
    PLACES,
    FilterForm,
    JobFilterForm,
    by_link,
    text_field,
)
from django_pgqueue.models import BulkAct
from django_pgqueue.operators import human
from django_pgqueue.operators.bulk_acts import VERBS
from django_pgqueue.operators.error_groups import (
    GROUPED_ROWS_MAX,
    Group,
    at_place,
    groups,
)
from django_pgqueue.operators.filters import JOBS
from django_pgqueue.postgres.limits import Plans


def _name(verb: str) -> str:
    return f"all-{verb.replace('_', '-')}"


# Characters of the last error's message that a list shows.
MESSAGE_CHARACTERS_MAX = 160


class GroupedFilterForm(JobFilterForm):
    """What a group has in common, besides what every list can be narrowed to."""

    meanings = {
        **JOBS,
        # No column holds it: few_rows() has found all of them.
        "place": lambda place: Q(),
    }

    error_named = text_field(_("Error"), _("its class"))
    error = by_link()
    place = by_link()


class GroupedAdmin(JobAdminColumns):
    """A list of what may have failed, with acts on all that its filter means."""

    bulk_verbs: ClassVar[Sequence[str]] = ()
    # The state in which rows of the list have failed; None: all have.
    failed_state: ClassVar[str | None] = None
    # Of the page of groups; of the link that leads to it; and of what it reads.
    groups_title: Any
    groups_tool: Any
    grouped_rows: Any

    def failed_rows(self) -> QuerySet[Any]:
        """Return the rows that are grouped."""
        raise NotImplementedError

    # The list ------------------------------------------------------------------

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
        """Return those that failed at the place that is asked for, with the tag."""
        few = super().few_rows(filter_form)
        place = filter_form.given("place")
        if not place:
            return few
        found = at_place(self.failed_rows(), place)
        return found if few is None else sorted({*few} & {*found})

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Lead to the groups, and to what can be done to all."""
        groups = (self._url(self.model, "groups"), self.groups_tool)
        asked = request.GET.copy()
        for place in PLACES:
            asked.pop(place, None)
        return {"tools": [groups, *self.bulk_tools(request, asked.urlencode())]}

    @admin.display(description=_("last error"))
    def last_error(self, row: Any) -> str:
        """Show the class and the first line of what the last attempt raised."""
        text = human.last_error(
            row.error_type, row.error_kind, getattr(row, "error_message", None)
        )
        if len(text) > MESSAGE_CHARACTERS_MAX:
            text = f"{text[:MESSAGE_CHARACTERS_MAX]}…"
        return format_html('<span class="pgqueue-text">{}</span>', text) if text else ""

    # Groups --------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add groups and bulk acts, before whatever takes any text for an id."""
        acts = [
            self.own_url(
                _name(verb),
                partial(self._bulk, verb=verb),
                (VERBS[verb].permission,),
                of_row=False,
            )
            for verb in self.bulk_verbs
        ]
        groups = self.own_url("groups", self._groups, of_row=False)
        return [groups, *acts, *super().get_urls()]

    def _groups(self, request: HttpRequest) -> HttpResponse:
        with limited(Plans.IN_ORDER):
            found, read = groups(self.failed_rows(), GROUPED_ROWS_MAX)
        context = {
            **self.page_context(request),
            "title": self.groups_title,
            "has_reasons": self.failed_state is None,
            "grouped_rows": self.grouped_rows,
            "groups": [self._line(request, group) for group in found],
            "read": read,
            "is_partial": read == GROUPED_ROWS_MAX,
        }
        return TemplateResponse(request, "admin/pgqueue/groups.html", context)

    def _line(self, request: HttpRequest, group: Group) -> dict[str, Any]:
        alike = group.alike
        asked = {"task": alike.task, "error": alike.error, "place": alike.place}
        if self.failed_state is None:
            asked["reason"] = alike.reason
        else:
            asked["state"] = self.failed_state
        return {
            "group": group,
            "reason": badge("dead", alike.reason),
            "bars": sparkline(group.trend),
            "tools": self.bulk_tools(request, urlencode(asked)),
            "url": f"{self._url(self.model, 'changelist')}?{urlencode(asked)}",
        }

    # Bulk acts -----------------------------------------------------------------

    def bulk_asked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return what the filters of the list ask for, in words that do not move."""
        return given

    def bulk_tools(self, request: HttpRequest, query: str) -> list[tuple[str, Any]]:
        """Return the links to what the user may do to all that *query* means."""
        if not self.has_page(BulkAct):
            return []
        return [
            (f"{self._url(self.model, _name(verb))}?{query}", f"{VERBS[verb].title}…")
            for verb in self.bulk_verbs
            if may(request, VERBS[verb].permission)
        ]

    def _bulk(self, request: HttpRequest, *, verb: str) -> HttpResponse:
        # With it comes what finds and counts rows: when the page is asked for.
        from django_pgqueue.admin.bulk_form import bulk_page

        filters = self.filters(request)
        if not filters.is_readable:
            raise BadRequest("A filter cannot be read")
        given = {name: text for name, text in filters.cleaned_data.items() if text}
        with limited():
            return bulk_page(self, request, verb, lambda: self.bulk_asked(given))

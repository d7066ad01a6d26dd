"""Lists with something that can be done to all that their filter means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.acts import may
from django_pgqueue.admin.edit import EditableAdmin
from django_pgqueue.admin.time_limit import limited
from django_pgqueue.models import BulkAct
from django_pgqueue.models.bulk_act import PERMISSIONS, BulkVerb

TITLES: Mapping[str, Any] = {
    BulkVerb.REDRIVE: gettext_lazy("Redrive all"),
    BulkVerb.RETRY: gettext_lazy("Retry all now"),
    BulkVerb.SET_ASIDE: gettext_lazy("Set all aside"),
    BulkVerb.CANCEL: gettext_lazy("Cancel all"),
}


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
            (f"{self._url(self.model, _name(verb))}?{query}", f"{TITLES[verb]}…")
            for verb in self.bulk_verbs
            if may(request, PERMISSIONS[verb])
        ]

    def get_urls(self) -> list[URLPattern]:
        """Add the forms, before whatever takes any text for an id."""
        own = [
            self.own_url(
                _name(verb),
                partial(self._bulk, verb=verb),
                (PERMISSIONS[verb],),
                of_row=False,
            )
            for verb in self.bulk_verbs
        ]
        return [*own, *super().get_urls()]

    def _bulk(self, request: HttpRequest, *, verb: str) -> HttpResponse:
        # With it comes what finds and counts rows: when the page is asked for.
        from django_pgqueue.admin.bulk_form import BulkPage

        filters = self.filters(request)
        if not filters.is_readable:
            raise BadRequest("A filter cannot be read")
        given = {name: text for name, text in filters.cleaned_data.items() if text}
        with limited():
            page = BulkPage(self, request, verb, TITLES[verb])
            return page.answer(lambda: self.bulk_asked(given))


def _name(verb: str) -> str:
    return f"all-{verb.replace('_', '-')}"

"""
The list of a page: one page of rows, by key, without a count.

Django's own ChangeList counts what it shows and what it would show, takes any lookup
and any order from the URL, and finds page 9 000 by walking over 8 999 others. With a
million rows each of these is a request that hangs, so they are replaced here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.text import capfirst

from django_pgqueue.admin.filter_form import FilterForm
from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.operators.paging import Keyset

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin

# Parameters of the URL: show rows older than a place, or newer than it, or the oldest.
BEFORE, AFTER, OLDEST = "before", "after", "oldest"
PLACES = (BEFORE, AFTER, OLDEST)


class KeysetList(ChangeList):
    """One page of a table, newest first, as admin/change_list.html wants it."""

    model_admin: PagedAdmin
    filter_form: FilterForm

    # Django's search form is not used: filter_form reads "q" too.
    search_form_class = forms.Form

    # What the pager offers; None: nothing there.
    newest_url: str | None = None
    newer_url: str | None = None
    older_url: str | None = None
    oldest_url: str | None = None
    # Set when the filter was applied to LOOK_ROWS_MAX rows and there are more.
    looked_through: int | None = None
    # Whether the next page that it looked towards is the newer one.
    goes_up = False

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.title = str(capfirst(self.opts.verbose_name_plural))
        # What its pager says: older and newer, or before and after.
        self.is_by_time = self.model_admin.keyset.is_by_time

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: Any = None
    ) -> QuerySet[Any]:
        """Return the rows that the filters ask for; no other lookup is possible."""
        self.filter_form = self.model_admin.filters(request)
        rows = self.model_admin.list_rows(request, self.root_queryset)
        return self.filter_form.narrow(rows).order_by(*self.order())

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, and find out which links lead on from it."""
        try:
            rows = self._page(request.GET.dict())
        except ValueError as error:
            raise IncorrectLookupParameters(error) from error
        self.result_list = self.model_admin.listed(rows)
        # Equal to what is on the page: so nothing offers to select "all 1 000 000".
        self.result_count = len(rows)
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = False
        self.multi_page = False
        self.paginator = self.model_admin.get_paginator(
            request, self.queryset, self.list_per_page
        )

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """No column can be sorted by."""
        return {}

    def get_query_string(
        self, new_params: Any = None, remove: Iterable[str] | None = None
    ) -> str:
        """Return the URL's filters with *new_params*, without its place in the list."""
        return super().get_query_string(new_params, [*(remove or []), *PLACES])

    def _page(self, params: dict[str, str]) -> list[Any]:
        size = self.list_per_page
        rising, start = False, ""
        if AFTER in params:
            rising, start = True, params[AFTER]
        elif OLDEST in params:
            rising = True
        elif BEFORE in params:
            start = params[BEFORE]
        found, end = self.find(start, rising=rising)
        rows = found[:size]
        # The place from which the next page in this direction goes on.
        onward = end
        if len(found) > size:
            onward = self.model_admin.keyset.place_of(rows[-1])
        if start and rising and onward is None:
            # The newest rows: shown as a whole page, not as what was left over.
            return self._page({})
        if end is not None:
            self.looked_through = LOOK_ROWS_MAX
        self.goes_up = rising
        if rising:
            rows.reverse()
        self._link(rows, rising=rising, start=start, onward=onward)
        return rows

    def find(self, start: str, *, rising: bool) -> tuple[list[Any], str | None]:
        """
        Return one row more than a page holds, if there are so many, beyond *start*.

        Also where the search was given up, or None when it was not.
        """
        keyset, wanted = self.model_admin.keyset, self.list_per_page + 1
        here = Q()
        if start:
            here = keyset.beyond(keyset.values(self.model, start), back=rising)
        matching = self.queryset.filter(here).order_by(*self.order(rising))
        if not self.filter_form.is_active or self.filter_form.names_one_row:
            return list(matching[:wanted]), None
        few = self.model_admin.few_rows(self.filter_form)
        if few is not None:
            return list(matching.filter(pk__in=few)[:wanted]), None
        # A window of the table, bounded by key on both sides; and time_limit.py keeps
        # sequential scans away. Otherwise it was planned as a scan of a million rows
        # wherever the table had not been analysed yet.
        rows = self.root_queryset.filter(here)
        first = keyset.at(rows, back=rising)
        if first is None or not self.filter_form.is_readable:
            return [], None
        end = keyset.at(rows, LOOK_ROWS_MAX - 1, back=rising)
        last = end or keyset.at(rows, back=not rising) or first
        window = keyset.beyond(first, back=rising, including=True)
        window &= keyset.beyond(last, back=not rising, including=True)
        found = list(
            self.queryset.filter(window).order_by(*self.order(rising))[:wanted]
        )
        if end is None or len(found) == wanted:
            return found, None
        return found, keyset.text(end)

    def order(self, rising: bool = False) -> list[str]:
        """Return the order of the list, or the opposite."""
        return self.model_admin.keyset.order(back=rising)

    def _link(
        self, rows: list[Any], *, rising: bool, start: str, onward: str | None
    ) -> None:
        """Set the pager's links: `onward` ahead, and behind us the way we came."""
        keyset = self.model_admin.keyset
        first = keyset.place_of(rows[0]) if rows else start
        last = keyset.place_of(rows[-1]) if rows else start
        if rising:
            self.newer_url = self._url(AFTER, onward)
            # Nothing is older than the oldest page.
            self.older_url = self._url(BEFORE, last or None) if start else None
        else:
            self.older_url = self._url(BEFORE, onward)
            self.newer_url = self._url(AFTER, first or None) if start else None
        if self.newer_url:
            self.newest_url = self.get_query_string()
        if self.older_url:
            self.oldest_url = self._url(OLDEST, "1")

    def _url(self, name: str, value: str | None) -> str | None:
        return None if value is None else self.get_query_string({name: value})


class PagedAdmin(Base):
    """What a page says of its list: its key, its filters, and what it reads."""

    keyset: ClassVar[Keyset] = Keyset(("id",))
    filter_form: ClassVar[type[FilterForm]] = FilterForm
    # The columns that a list reads; those of JSON can be megabytes.
    list_reads: ClassVar[tuple[str, ...]] = ()
    # What lists and detail pages read besides columns: expressions, by their names.
    computed: ClassVar[Mapping[str, Any]] = {}

    list_per_page = 50
    sortable_by = ()
    show_full_result_count = False
    # "Show counts" would count the table once per filter.
    show_facets = admin.ShowFacets.NEVER

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that pages by key."""
        return KeysetList

    def filters(self, request: HttpRequest) -> FilterForm:
        """Return the filters of the list, with what *request* asks for."""
        return self.filter_form(request.GET)

    def list_rows(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return *rows* with what a list shows of them, and the database's clock."""
        rows = rows.only(*self.list_reads)
        listed: QuerySet[Any] = rows.annotate(clock=Now(), **self.computed)
        return listed

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return keys of rows among which all matching ones are, when these are few."""
        return None

    def listed(self, rows: list[Any]) -> list[Any]:
        """Return the *rows* of one page, with what is read for all of them at once."""
        return rows

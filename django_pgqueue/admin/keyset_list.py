"""
Lists: a page of rows by key, narrowed by a form of filters.

Django's ChangeList counts all rows, accepts any lookup and order from the URL, and
reaches page 9,000 by walking over 8,999 others; its filters run DISTINCT over the whole
table. With a million rows each of these is a request that hangs, so both are replaced
here. Parameters that are not fields of the form are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.chart import Period
from django_pgqueue.admin.payload import redact_json
from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.operators.filters import (
    JOBS,
    TIMES,
    Meaning,
    ended,
    is_number,
    narrow,
    part_of,
)
from django_pgqueue.operators.paging import Keyset

# How long ago a job may have ended.
AGES = {
    "1h": (timedelta(hours=1), _("in the last hour")),
    "24h": (timedelta(days=1), _("in the last 24 hours")),
    "7d": (timedelta(days=7), _("in the last 7 days")),
    "30d": (timedelta(days=30), _("in the last 30 days")),
}


def text_field(
    label: Any, hint: Any = "", *, characters: int = 255, strip: bool = True, **at: str
) -> forms.CharField:
    """Return a field for a name, or a part of one: the *hint* says which."""
    return forms.CharField(
        label=label,
        required=False,
        max_length=characters,
        strip=strip,
        empty_value="",
        widget=forms.TextInput({**at, "placeholder": hint} if hint else at),
    )


def queue_field(**at: str) -> forms.CharField:
    """Return a field for the whole name of a queue."""
    hint = _("its whole name")
    return text_field(_("Queue"), hint, characters=63, strip=False, **at)


def choice_field(label: Any, choices: list[tuple[str, Any]]) -> forms.ChoiceField:
    """Return a field with static *choices* beside "all"."""
    return forms.ChoiceField(
        label=label, required=False, choices=[("", _("all")), *choices]
    )


def by_link() -> forms.CharField:
    """Return a field that links alone fill in, as it stands."""
    return forms.CharField(
        required=False, strip=False, empty_value="", widget=forms.HiddenInput
    )


def age_field(label: Any) -> forms.ChoiceField:
    """Return a field for one of AGES; age() is what it means."""
    return choice_field(label, [(key, said) for key, (_age, said) in AGES.items()])


def age(key: str) -> Q:
    """The row's job ended so long ago at most; by a key of AGES."""
    return ended("gte")(AGES[key][0])


def period_field(periods: Mapping[str, Period]) -> forms.ChoiceField:
    """Return a field for one of the *periods*."""
    choices = [(key, period.label) for key, period in periods.items()]
    return forms.ChoiceField(label=_("Period"), required=False, choices=choices)


class ListForm(forms.Form):
    """The fields above a list."""

    def __init__(self, data: Any) -> None:
        # Ids of our own: the page has other fields, called "id_…".
        super().__init__(data, auto_id="pgqueue-filter-%s")
        self.is_readable = self.is_valid()

    def given(self, name: str) -> Any:
        """Return what the field *name* asks for; None: nothing that can be read."""
        return self.cleaned_data.get(name) or None


class FilterForm(ListForm):
    """One field: part of a name."""

    # What the fields mean, by their names.
    meanings: ClassVar[Mapping[str, Meaning]] = {"q": part_of("name")}
    # Whether a number in "q" is an id.
    has_ids: ClassVar[bool] = False

    q = text_field(_("Name"))

    @property
    def is_active(self) -> bool:
        """Whether any field narrows the list, rightly or wrongly."""
        return not self.is_readable or any(self.cleaned_data.values())

    @property
    def names_one_row(self) -> bool:
        """Whether the primary key finds what is asked for."""
        return self.has_ids and self.is_readable and is_number(self.given("q") or "")

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of *rows* that are asked for; none when a field is wrong."""
        if not self.is_readable:
            return rows.none()
        asked = {name: value for name, value in self.cleaned_data.items() if value}
        return narrow(rows, self.meanings, asked)


class JobFilterForm(FilterForm):
    """What every list of jobs can be narrowed to."""

    meanings = JOBS
    has_ids = True

    q = text_field(_("Id or task"), _("4711, or part of a name"))
    queue = queue_field()
    tag = text_field(_("Tag"), _("a whole tag"), characters=63, strip=False)
    task = by_link()


class PeriodForm(ListForm):
    """A period, which always has a value, and what else a page asks for."""

    # What the field "period" offers; the first, unless another is asked for.
    periods: ClassVar[Mapping[str, Period]]

    def __init__(self, given: Any) -> None:
        super().__init__({"period": next(iter(self.periods)), **given.dict()})

    @property
    def is_active(self) -> bool:
        """Whether anything but the period is asked for."""
        return any(self.given(name) for name in self.fields if name != "period")

    @property
    def chosen(self) -> Period:
        """The period that is asked for."""
        return self.periods[self.value("period")]

    def value(self, name: str) -> str:
        """Return what the field *name* holds; the default where it cannot be read."""
        default = next(iter(self.periods)) if name == "period" else ""
        return self.given(name) or default


def said(asked: Mapping[str, Any]) -> str:
    """Return filters as people read them: queue=mail, since=2026-11-26 04:29:15 UTC."""
    told = dict(asked)
    if "error_named" in told:
        told["error"] = told.pop("error_named")
    for name in TIMES:
        if name in told:
            told[name] = moments.absolute(datetime.fromisoformat(told[name]))
    if "where" in told:
        # Of a replay: what a payload has to contain, which may be nobody's business.
        where = json.dumps(told["where"], ensure_ascii=False)
        told["where"] = redact_json(where)
    return ", ".join(f"{name}={value}" for name, value in told.items()) or gettext(
        "all"
    )


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

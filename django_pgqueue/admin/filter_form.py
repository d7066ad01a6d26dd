"""
The filters above a list: an id or part of a task's name, a queue, a tag, a state.

A form, not Django's list filters: those look up the values that occur (a DISTINCT over
the whole table), offer counts, and pass any lookup of the URL on to the database.
Parameters that are no field of the form are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.db.models import Q, QuerySet
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.chart import Period
from django_pgqueue.admin.redaction import redact_json
from django_pgqueue.operators.filters import (
    JOBS,
    TIMES,
    Meaning,
    ended,
    is_number,
    narrow,
    part_of,
)

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

    @property
    def is_active(self) -> bool:
        """Whether anything but the period is asked for."""
        return any(self.given(name) for name in self.fields if name != "period")

    def value(self, name: str) -> str:
        """Return what the field *name* holds; "" where it cannot be read."""
        return self.given(name) or ""


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

"""
The filters above a list: an id or part of a task's name, a queue, a tag, a state.

A form, not Django's list filters: those look up the values that occur (a DISTINCT over
the whole table), offer counts, and pass any lookup of the URL on to the database.
Parameters that are no field of the form are ignored.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat
from django.db.models.lookups import Exact
from django.utils.translation import gettext_lazy as _


class FilterForm(forms.Form):
    """One field: part of a name."""

    # The column in which "q" is looked for.
    searched: ClassVar[str] = "name"

    q = forms.CharField(label=_("Name"), required=False, max_length=255, empty_value="")

    def __init__(self, data: Any) -> None:
        # Ids of our own: the page has other fields, called "id_…".
        super().__init__(data, auto_id="pgqueue-filter-%s")
        self.is_readable = self.is_valid()

    @property
    def is_active(self) -> bool:
        """Whether any field narrows the list, rightly or wrongly."""
        return not self.is_readable or any(self.cleaned_data.values())

    @property
    def names_one_row(self) -> bool:
        """Whether the primary key finds what is asked for."""
        return False

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of *rows* that are asked for; none when a field is wrong."""
        if not self.is_readable:
            return rows.none()
        for name, value in self.cleaned_data.items():
            if value:
                rows = rows.filter(self.condition(name, value))
        return rows

    def condition(self, name: str, value: str) -> Q:
        """Return what rows must fulfil for *value* in the field *name*."""
        lookup = f"{self.searched}__icontains" if name == "q" else name
        return Q(**{lookup: value})


class JobFilterForm(FilterForm):
    """What every list of jobs can be narrowed to."""

    searched = "task"

    q = forms.CharField(
        label=_("Id or task"),
        required=False,
        max_length=255,
        empty_value="",
        widget=forms.TextInput({"placeholder": _("4711, or part of a name")}),
    )
    queue = forms.CharField(
        label=_("Queue"),
        required=False,
        max_length=63,
        strip=False,
        empty_value="",
        widget=forms.TextInput({"placeholder": _("its whole name")}),
    )

    tag = forms.CharField(
        label=_("Tag"),
        required=False,
        max_length=63,
        strip=False,
        empty_value="",
        widget=forms.TextInput({"placeholder": _("a whole tag")}),
    )

    @property
    def names_one_row(self) -> bool:
        """Whether "q" is an id."""
        return self.is_readable and is_number(self.cleaned_data["q"])

    def condition(self, name: str, value: str) -> Q:
        """Take a number in "q" for an id; queue and tag without their indexes."""
        if name == "queue":
            # queue || '': rows are found by windows of the list's own order. An index
            # on the queue as well led to plans that read it whole, window by window.
            return Q(Exact(Concat("queue", Value("")), value))
        if name == "tag":
            # As for the queue: an index of tags serves headers -> 'tags', and not this.
            return Q(headers__contains={"tags": [value]})
        if name != "q" or not is_number(value):
            return super().condition(name, value)
        # A number beyond bigint is no error: Django knows that no row can have it.
        return Q(pk=int(value))


def is_number(text: str) -> bool:
    """Return whether *text* is written as ids are."""
    return text.isascii() and text.isdecimal()


def choice_field(label: Any, choices: list[tuple[str, Any]]) -> forms.ChoiceField:
    """Return a field with static *choices* beside "all"."""
    return forms.ChoiceField(
        label=label, required=False, choices=[("", _("all")), *choices]
    )

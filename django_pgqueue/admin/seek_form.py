"""The form of a seek: where to, for which partition, and the name of the group."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.moment_field import MomentField
from django_pgqueue.log.seek import EARLIEST, LATEST
from django_pgqueue.operators.human import in_utc

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

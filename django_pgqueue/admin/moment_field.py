"""A field for a time: one that a calendar of either zone has."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.operators.human import in_utc


class MomentField(forms.DateTimeField):
    """Without a zone, a time is one of the project's."""

    default_error_messages: ClassVar[dict[str, Any]] = {
        "invalid": _("Enter a time such as 2026-01-31 13:00.")
    }
    widget = forms.DateTimeInput({"placeholder": "2026-01-31 13:00"})

    def clean(self, value: Any) -> Any:
        """Refuse what no message can have been published at."""
        moment = super().clean(value)
        try:
            if moment is None or TIME_MIN <= in_utc(moment) <= TIME_MAX:
                return moment
        except OverflowError:
            pass
        raise ValidationError(_("Enter a time between the years 1900 and 9000."))

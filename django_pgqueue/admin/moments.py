"""Times as people read them, the exact one beside "2 min ago", and enter them."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.operators import human
from django_pgqueue.operators.human import in_utc


def as_clock(moment: datetime | None, clock: datetime) -> datetime | None:
    """Return *moment* as the *clock* is: without a zone where USE_TZ is off."""
    if moment is None or timezone.is_aware(moment) == timezone.is_aware(clock):
        return moment
    if timezone.is_aware(moment):
        return timezone.make_naive(moment, timezone.get_default_timezone())
    return timezone.make_aware(moment, timezone.get_default_timezone())


def by_clock(moment: datetime, zone: tzinfo, *, has_seconds: bool = False) -> str:
    """
    Return *moment* by the clock of *zone*: Mon 2026-03-30 02:30 CEST.

    Args:
        moment: What to show.
        zone: Whose clock.
        has_seconds: Show a full minute with its seconds too, as beside other moments.
    """
    local = human.in_utc(moment).astimezone(zone)
    time = f"{local:%H:%M:%S}" if local.second or has_seconds else f"{local:%H:%M}"
    return f"{WEEKDAYS_ABBR[local.weekday()]} {local:%Y-%m-%d} {time} {local:%Z}"


def absolute(moment: datetime) -> str:
    """Return *moment* to the second in Django's time zone, and the zone."""
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".strip()


def short(moment: datetime | None, clock: datetime) -> SafeString | str:
    """Return *moment* for a column: relative, the exact time when pointed at."""
    moment = as_clock(moment, clock)
    return "" if moment is None else _pointed(moment, human.distance(moment, clock))


def since(moment: datetime | None, clock: datetime) -> SafeString | str:
    """Return how long *moment* has been over, the exact time when pointed at."""
    moment = as_clock(moment, clock)
    if moment is None:
        return ""
    return _pointed(moment, human.age((clock - moment).total_seconds()))


def full(moment: datetime | None, clock: datetime) -> SafeString | None:
    """Return *moment* for a detail page: exact and relative; None stays None."""
    moment = as_clock(moment, clock)
    if moment is None:
        return None
    return format_html(
        '<time datetime="{}">{}</time> <span class="quiet">({})</span>',
        moment.isoformat(),
        absolute(moment),
        human.distance(moment, clock),
    )


def length(start: datetime | None, end: datetime | None) -> str:
    """Return how long something took; "" when it never started."""
    if start is None or end is None:
        return ""
    return human.duration((end - start).total_seconds())


def _pointed(moment: datetime, text: str) -> SafeString:
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(),
        absolute(moment),
        text,
    )


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

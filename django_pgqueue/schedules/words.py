"""
Words: what a schedule's timetable says, as a person would say it.

    in_words("0 3 * * *", None, "Europe/Berlin")  # every day at 03:00 in Europe/Berlin

Common forms are said as such, all others field by field. What is said follows from the
values that a field has, and not from how they were written: `1-5`, `mon-fri` and
`1,2,3,4,5` are one. Nothing is rounded, and nothing left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from croniter import croniter
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_pgqueue.timetable.expression import Expression

# The largest unit that a period fills without a rest.
UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))

DAY = 86_400

# Clock times that are listed; of more, minutes and hours are told apart.
TIMES_MAX = 6

# So many neighbours are said as "9 to 12".
RUN_LEAST = 3

LAST = "l"

MINUTES, HOURS = range(60), range(24)
DAYS, MONTHS, WEEKDAYS = range(1, 32), range(1, 13), range(1, 8)


def in_words(expression: str | None, every_seconds: int | None, tz: str) -> str:
    """
    Return when a schedule is due, in the language that is active.

    Args:
        expression: Of cron; None: every_seconds holds.
        every_seconds: The period.
        tz: The zone; left out where its clock makes no difference.

    Raises:
        ScheduleError: The expression is none.
    """
    if expression is None:
        return _every(every_seconds or 0)
    fields = _Fields.read(Expression.parse(expression))
    text = _sentence(fields)
    if fields.goes_by_no_clock:
        return text
    return _("%(when)s in %(zone)s") % {"when": text, "zone": tz}


@dataclass(frozen=True, slots=True)
class _Fields:
    """The values of each field; None: all of them."""

    seconds: list[int] | None
    minutes: list[int] | None
    hours: list[int] | None
    days: list[Any] | None  # Numbers, and LAST.
    months: list[int] | None
    weekdays: list[int] | None  # Monday is 1, Sunday is 7.
    # Of a weekday: which one of the month; LAST is the last one.
    nths: dict[int, list[Any]]
    # Hours go by elapsed time, and not by what clocks show once a day.
    follows_time: bool
    # A day has to fit both fields; else either is enough, where both stand.
    needs_both_days: bool

    @classmethod
    def read(cls, expression: Expression) -> _Fields:
        lists, nths = croniter.expand(expression.fields, second_at_beginning=True)
        minutes, hours, days, months, weekdays, *seconds = (
            None if values[0] == "*" else values for values in lists
        )
        if days is not None:
            days = sorted(days, key=_day_order)
        week = None if weekdays is None else sorted({int(d) or 7 for d in weekdays})
        if expression.needs_both_days:
            days = _unless_all(days, DAYS)
            week = week if nths else _unless_all(week, WEEKDAYS)
        return cls(
            seconds=_unless_all(seconds[0], MINUTES) if seconds else [0],
            minutes=_unless_all(minutes, MINUTES),
            hours=_unless_all(hours, HOURS),
            days=days,
            months=_unless_all(months, MONTHS),
            weekdays=week,
            needs_both_days=expression.needs_both_days,
            nths={int(day) or 7: sorted(each, key=str) for day, each in nths.items()},
            follows_time=expression.follows_time,
        )

    @property
    def has_all_days(self) -> bool:
        """Whether it is due on every day."""
        if self.days is None and self.weekdays is None:
            return True
        if self.needs_both_days or self.nths:
            return False
        # Either is enough, where both stand.
        return (self.days is not None and _unless_all(self.days, DAYS) is None) or (
            self.weekdays is not None and _unless_all(self.weekdays, WEEKDAYS) is None
        )

    @property
    def hours_step(self) -> int | None:
        """How many hours lie between two, all round the clock; None: it is uneven."""
        if self.hours is None or not self.follows_time:
            return None
        return _whole_step(self.hours, HOURS)

    @property
    def goes_by_no_clock(self) -> bool:
        """Whether it is due at the same moments in every zone."""
        is_even = self.minutes is None or self.minutes == sorted(
            # Zones are quarters of an hour apart.
            (minute + 15) % 60
            for minute in self.minutes
        )
        return (
            is_even and self.hours is None and self.months is None and self.has_all_days
        )


def _sentence(fields: _Fields) -> str:
    times = _clock_times(fields)
    if times is not None:
        return _("%(days)s at %(times)s") % {
            "days": _days(fields) or _("every day"),
            "times": _and(times),
        }
    days = _days(fields)
    if days is None:
        return _rhythm(fields)
    return _("%(rhythm)s, %(days)s") % {"rhythm": _rhythm(fields), "days": days}


# Within a day -------------------------------------------------------------------------


def _clock_times(fields: _Fields) -> list[str] | None:
    """Return the times of a day, where these are few and fixed."""
    if fields.hours is None or fields.minutes is None or fields.hours_step:
        return None
    if fields.seconds is None or len(fields.seconds) > 1:
        return None
    if len(fields.hours) * len(fields.minutes) > TIMES_MAX:
        return None
    second = fields.seconds[0]
    seconds = f":{second:02d}" if second else ""
    return [
        f"{hour:02d}:{minute:02d}{seconds}"
        for hour in fields.hours
        for minute in fields.minutes
    ]


def _rhythm(fields: _Fields) -> str:
    if fields.seconds == [0]:
        return _minutes_and_hours(fields)
    seconds = _seconds(fields.seconds)
    if fields.minutes is None and fields.hours is None:
        if fields.seconds and _whole_step(fields.seconds, MINUTES) is None:
            return _("every minute %(seconds)s") % {"seconds": seconds}
        return seconds
    return _("%(seconds)s of %(places)s") % {
        "seconds": seconds,
        "places": _places(fields),
    }


def _seconds(values: list[int] | None) -> str:
    if values is None:
        return _("every second")
    step = _whole_step(values, MINUTES)
    if step is not None:
        return _("every %(count)d seconds") % {"count": step}
    return ngettext("at second %(seconds)s", "at seconds %(seconds)s", len(values)) % {
        "seconds": _numbers(values)
    }


def _minutes_and_hours(fields: _Fields) -> str:
    """Return a rhythm of whole minutes."""
    minutes, hours = fields.minutes, fields.hours
    step = 1 if minutes is None else _whole_step(minutes, MINUTES)
    if hours is None:
        if step is not None:
            return _every(60 * step)
        if minutes == [0]:
            return _("every hour")
        return _("every hour at %(minutes)s") % {"minutes": _named_minutes(minutes)}
    if minutes is not None and fields.hours_step:
        every = _every(3_600 * fields.hours_step)
        if minutes == [0]:
            return every
        return _("%(every)s at %(minutes)s") % {
            "every": every,
            "minutes": _named_minutes(minutes),
        }
    apart = _step(hours)
    if minutes is not None and len(minutes) == 1 and apart is not None:
        return _from_to(_every(3_600 * apart), hours, minutes)
    if step is not None and apart == 1:
        return _from_to(_every(60 * step), hours, minutes or [0, 59])
    return _field_by_field(fields)


def _from_to(every: str, hours: Sequence[int], minutes: Sequence[int]) -> str:
    return _("%(every)s from %(first)s to %(last)s") % {
        "every": every,
        "first": f"{hours[0]:02d}:{minutes[0]:02d}",
        "last": f"{hours[-1]:02d}:{minutes[-1]:02d}",
    }


def _field_by_field(fields: _Fields) -> str:
    if fields.minutes is None:
        return _("every minute of %(hours)s") % {"hours": _named_hours(fields.hours)}
    return _("at %(places)s") % {"places": _places(fields)}


def _places(fields: _Fields) -> str:
    """Return the minutes, and of which hours."""
    if fields.minutes is None:
        minutes = _("every minute")
    else:
        minutes = _named_minutes(fields.minutes)
    if fields.hours is None:
        return _("%(minutes)s of every hour") % {"minutes": minutes}
    if fields.minutes is None:
        return _("every minute of %(hours)s") % {"hours": _named_hours(fields.hours)}
    return _("%(minutes)s past %(hours)s") % {
        "minutes": minutes,
        "hours": _named_hours(fields.hours),
    }


def _named_minutes(values: list[int] | None) -> str:
    assert values is not None
    return ngettext("minute %(minutes)s", "minutes %(minutes)s", len(values)) % {
        "minutes": _numbers(values)
    }


def _named_hours(values: list[int] | None) -> str:
    assert values is not None
    return ngettext("hour %(hours)s", "hours %(hours)s", len(values)) % {
        "hours": _numbers(values)
    }


# Of a year ----------------------------------------------------------------------------


def _days(fields: _Fields) -> str | None:
    """Return on which days it is due; None: on every day of every month."""
    if fields.has_all_days:
        if fields.months is None:
            return None
        return _("every day in %(months)s") % {"months": _months(fields.months)}
    if fields.needs_both_days and fields.days and fields.weekdays:
        return _("%(days)s, of these %(weekdays)s") % {
            "days": _days_of_month(fields.days, fields.months),
            "weekdays": _weekdays(fields),
        }
    said = []
    if fields.days is not None:
        said.append(_days_of_month(fields.days, fields.months))
    if fields.weekdays is not None:
        weekdays = _weekdays(fields)
        if fields.months is not None:
            weekdays = _("%(weekdays)s in %(months)s") % {
                "weekdays": weekdays,
                "months": _months(fields.months),
            }
        said.append(weekdays)
    return _and(said)


def _days_of_month(days: list[Any], months: list[int] | None) -> str:
    numbers = [day for day in days if day != LAST]
    of = _("the month") if months is None else _months(months)
    said = []
    step = _step(numbers)
    if step is not None and step > 1 and numbers[0] == 1 and numbers[-1] + step > 31:
        said.append(_("every %(count)d days from day 1") % {"count": step})
    elif numbers:
        said.append(
            ngettext("on day %(days)s", "on days %(days)s", len(numbers))
            % {"days": _numbers(numbers)}
        )
    if LAST in days:
        said.append(_("on the last day"))
    return _("%(days)s of %(month)s") % {"days": _and(said), "month": of}


def _weekdays(fields: _Fields) -> str:
    names = _weekday_names()
    if fields.nths:
        of_month = [
            _("the %(which)s %(weekday)s of the month")
            % {"which": _which(nth), "weekday": names[day - 1]}
            for day in sorted(fields.nths)
            for nth in fields.nths[day]
        ]
        return _("on %(weekdays)s") % {"weekdays": _and(of_month)}
    values = fields.weekdays or []
    said = _runs(values, lambda day: names[day - 1])
    if len(values) >= RUN_LEAST and len(said) == 1:
        return said[0]
    return _("every %(weekdays)s") % {"weekdays": _and(said)}


def _months(values: list[int]) -> str:
    names = _month_names()
    return _and(_runs(values, lambda month: names[month - 1]))


def _weekday_names() -> tuple[str, ...]:
    # Not Django's own: where ours are not translated, theirs would stand alone.
    return (
        pgettext("schedule", "Monday"),
        pgettext("schedule", "Tuesday"),
        pgettext("schedule", "Wednesday"),
        pgettext("schedule", "Thursday"),
        pgettext("schedule", "Friday"),
        pgettext("schedule", "Saturday"),
        pgettext("schedule", "Sunday"),
    )


def _month_names() -> tuple[str, ...]:
    return (
        pgettext("schedule", "January"),
        pgettext("schedule", "February"),
        pgettext("schedule", "March"),
        pgettext("schedule", "April"),
        pgettext("schedule", "May"),
        pgettext("schedule", "June"),
        pgettext("schedule", "July"),
        pgettext("schedule", "August"),
        pgettext("schedule", "September"),
        pgettext("schedule", "October"),
        pgettext("schedule", "November"),
        pgettext("schedule", "December"),
    )


def _which(nth: Any) -> str:
    words = (
        pgettext("schedule", "first"),
        pgettext("schedule", "second"),
        pgettext("schedule", "third"),
        pgettext("schedule", "fourth"),
        pgettext("schedule", "fifth"),
    )
    return pgettext("schedule", "last") if nth == LAST else words[nth - 1]


# Numbers ------------------------------------------------------------------------------


def _every(seconds: int) -> str:
    """Return a period in its largest unit."""
    size, unit = next(pair for pair in UNITS if seconds % pair[0] == 0)
    if seconds == DAY:
        # "Every day" would be one of the clock on the wall.
        size, unit = 3_600, "hour"
    count = seconds // size
    text = {
        "day": ngettext("every %(count)d day", "every %(count)d days", count),
        "hour": ngettext("every hour", "every %(count)d hours", count),
        "minute": ngettext("every minute", "every %(count)d minutes", count),
        "second": ngettext("every second", "every %(count)d seconds", count),
    }[unit]
    return text % {"count": count}


def _unless_all(values: list[Any] | None, of: range) -> list[Any] | None:
    """Return the numbers in order; None where they are all that the field can have."""
    if values is None or set(of) <= set(values):
        return None
    return sorted(values, key=_day_order)


def _day_order(day: Any) -> int:
    return 99 if day == LAST else int(day)


def _step(values: Sequence[int]) -> int | None:
    """Return how far apart three numbers or more are, if that is even."""
    if len(values) < RUN_LEAST:
        return None
    step = values[1] - values[0]
    is_even = all(b - a == step for a, b in pairwise(values))
    return step if is_even else None


def _whole_step(values: Sequence[int], of: range) -> int | None:
    """Return how far apart the numbers are, if they are so all round the clock."""
    if len(values) == 2 and values[0] == 0:
        step: int | None = values[1]
    else:
        step = _step(values)
    if step is None or values[0] != 0 or step * len(values) != len(of):
        return None
    return step


def _numbers(values: Sequence[int]) -> str:
    return _and(_runs(values, str))


def _runs(values: Sequence[int], name: Callable[[int], str]) -> list[str]:
    """Return *values* by their names, three neighbours and more as "a to b"."""
    said: list[str] = []
    run: list[int] = []
    for value in [*values, None]:
        if run and value == run[-1] + 1:
            run.append(value)
            continue
        if len(run) >= RUN_LEAST:
            pair = {"first": name(run[0]), "last": name(run[-1])}
            said.append(_("%(first)s to %(last)s") % pair)
        else:
            said.extend(map(name, run))
        run = [] if value is None else [value]
    return said


def _and(parts: Iterable[str]) -> str:
    *most, last = parts
    if not most:
        return last
    return _("%(most)s and %(last)s") % {"most": ", ".join(most), "last": last}

"""
Expression: a cron expression, five fields or six with seconds first.

croniter finds the times. What it lets pass and nobody can have meant is refused here:
ranges that run backwards, steps that are longer than their field, random values, and
dates that never come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from croniter import CroniterBadDateError, CroniterError, croniter

from django_pgqueue.exceptions import ScheduleError

CHARACTERS_MAX = 255

# What people write instead of five fields.
NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

# 29 February on a Monday comes every 28 years, and once after 40, around 2100.
YEARS_MAX = 40

# Any year will do to see whether a date comes at all.
SOME_DAY = datetime(2024, 1, 1)  # noqa: DTZ001  # By the clock on the wall.


@dataclass(frozen=True, slots=True)
class _Field:
    title: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    # Values besides numbers, such as the last day of a month.
    special: str = ""

    def number(self, text: str) -> int | None:
        """Return the number that *text* is, or None."""
        if text in self.names:
            return self.names.index(text) + (1 if self.least else 0)
        if not re.fullmatch("[0-9]{1,2}", text):
            return None
        number = int(text)
        return number if self.least <= number <= self.most else None


MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

MINUTE_ON = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31, special="l"),
    _Field("month", 1, 12, MONTHS),
    _Field("day of the week", 0, 7, DAYS, special="l[0-7]|[0-7]#[1-5]"),
)
FIELDS = {5: MINUTE_ON, 6: (_Field("second", 0, 59), *MINUTE_ON)}

ITEM = re.compile(r"(?P<first>\*|[0-9a-z]+)(-(?P<last>[0-9a-z]+))?(/(?P<step>[0-9]+))?")


@dataclass(frozen=True, slots=True)
class Expression:
    """
    A cron expression that is due now and then.

    Attributes:
        text: As it was written.
        fields: Five fields, or six, as croniter takes them.
        follows_time: Its hours are `*` or `*/n`: it goes by elapsed time, and not by
            what the clock on the wall says once a day.
        needs_both_days: A day has to fit the day of the month and that of the week;
            else, where both are restricted, either of them is enough.
    """

    text: str
    fields: str
    follows_time: bool
    needs_both_days: bool

    @classmethod
    def parse(cls, text: str) -> Expression:
        """
        Read an expression.

        Raises:
            ScheduleError: It is none, or never due; the text says which part is wrong.
        """
        if not isinstance(text, str):
            raise ScheduleError(
                f"A schedule needs a cron expression such as '0 3 * * *', not {text!r}."
            )
        if len(text) > CHARACTERS_MAX:
            raise ScheduleError(
                f"A cron expression has {len(text):,} characters; the limit is "
                f"{CHARACTERS_MAX}."
            )
        fields = _spelt_out(text).lower().split()
        known = FIELDS.get(len(fields))
        if known is None:
            raise ScheduleError(
                f"The cron expression {text!r} has {len(fields)} fields; write five "
                f"(minute, hour, day, month, day of the week), or six with seconds "
                f"first."
            )
        for field, value in zip(known, fields, strict=True):
            for item in value.split(","):
                _check(text, field, item)
        _check_days(text, fields[-3], fields[-1])
        fields = [
            _without_single(field, value)
            for field, value in zip(known, fields, strict=True)
        ]
        hours = fields[-4]
        made = cls(
            text,
            " ".join(fields),
            follows_time=hours == "*" or hours.startswith("*/"),
            # As in Vixie's cron and Debian's: by its first character.
            needs_both_days=fields[-3].startswith("*") or fields[-1].startswith("*"),
        )
        made._must_come()
        return made

    def times(self, after: datetime) -> Iterator[datetime]:
        """
        Yield its times after *after*: by the clock on the wall, without a zone.

        Each step costs some ten microseconds. Ends where no time comes any more.
        """
        iterator = croniter(
            self.fields,
            after,
            ret_type=datetime,
            day_or=not self.needs_both_days,
            max_years_between_matches=YEARS_MAX,
            second_at_beginning=True,
        )
        while True:
            try:
                yield iterator.get_next()
            except CroniterBadDateError:
                return

    def _must_come(self) -> None:
        try:
            first = next(self.times(SOME_DAY), None)
        except CroniterError as error:
            raise ScheduleError(
                f"The cron expression {self.text!r} cannot be read: {error}."
            ) from error
        if first is None:
            raise ScheduleError(
                f"The cron expression {self.text!r} is never due: there is no such "
                f"date within {YEARS_MAX} years."
            )


def _spelt_out(text: str) -> str:
    name = text.strip()
    if not name.startswith("@"):
        return text
    if name.lower() in NAMES:
        return NAMES[name.lower()]
    way_out = {
        "@reboot": " A worker has no one start: enqueue the task where you deploy.",
        "@every": " For intervals, there is @every(seconds=…).",
    }.get(name.split()[0].lower(), "")
    raise ScheduleError(
        f"There is no schedule called {name!r}; there are: {', '.join(NAMES)}.{way_out}"
    )


def _check(text: str, field: _Field, item: str) -> None:
    """Raise ScheduleError unless *item* is a part of *field*."""
    if field.special and re.fullmatch(field.special, _numbered(field, item)):
        return
    found = ITEM.fullmatch(item)
    if found is None:
        raise _wrong(text, field, item, "")
    first, last, step = found["first"], found["last"], found["step"]
    low = high = None
    if first != "*":
        low = high = field.number(first)
        if low is None:
            raise _wrong(text, field, item, "")
        if last is not None:
            high = field.number(last)
            if high is None:
                raise _wrong(text, field, item, "")
            if high == 0 and field.names:
                high = 7  # Sunday ends a week as well.
            if low > high:
                raise _wrong(text, field, item, " Its range runs backwards.")
        elif step is not None:
            raise _wrong(text, field, item, f" Write '{first}-{field.most}/{step}'.")
    elif last is not None:
        raise _wrong(text, field, item, "")
    if step is not None and not 1 <= int(step) <= field.most:
        raise _wrong(text, field, item, f" A step is a number from 1 to {field.most}.")


def _without_single(field: _Field, value: str) -> str:
    """Return *value* with a range of one as that one: to croniter, 9-9 is all."""

    def single(item: str) -> str:
        found = ITEM.fullmatch(item)
        if found is None or found["last"] is None:
            return item
        last = field.number(found["last"])
        # 7-0 is Sunday alone; 0-7 is the week.
        is_single = field.number(found["first"]) in (last, last or 7)
        return found["first"] if is_single else item

    return ",".join(map(single, value.split(",")))


def _check_days(text: str, days: str, weekdays: str) -> None:
    """Raise ScheduleError where croniter would leave the days of the month out."""
    if days != "*" and ("#" in weekdays or "l" in weekdays):
        raise ScheduleError(
            f"The cron expression {text!r} has both days of the month ({days!r}) and "
            f"a certain weekday of the month ({weekdays!r}). Make two schedules of it."
        )


def _numbered(field: _Field, item: str) -> str:
    """Return *item* with the names of days as numbers."""
    for number, name in enumerate(field.names):
        item = item.replace(name, str(number))
    return item


def _wrong(text: str, field: _Field, item: str, why: str) -> ScheduleError:
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return ScheduleError(
        f"The cron expression {text!r} has {item!r} for its {field.title}, which is "
        f"{field.least} to {field.most}{names}, '*', a range or a step.{why}"
    )

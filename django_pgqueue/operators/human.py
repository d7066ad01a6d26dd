"""Human: how people read times, counts, names and errors: admin, commands and doctor.

A length of time has its two largest units, and is cut off below them: 119 s are
"1 min 59 s", and no 2 minutes until they are over. Under a minute it has three figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from django_pgqueue.conf import get_settings
from django_pgqueue.redaction.text import redact_text

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
# Names in one sentence.
NAMES_MAX = 10
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float | None) -> str:
    """Return how long something takes: 16.2 ms, 3.25 s, 1 min 30 s, 2 d 3 h."""
    if seconds is None:
        return ""
    micros = max(round(seconds * 1_000_000), 0)
    if micros < 60_000_000:
        return _under_a_minute(micros)
    parts: list[tuple[int, str]] = []
    left = micros // 1_000_000
    for size, unit in UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count:,} {unit}" for count, unit in parts[:2] if count)


def age(seconds: float | None) -> str:
    """Return how old something is or how long it lasts until now, in whole seconds."""
    return duration(seconds if seconds is None else int(seconds))


def distance(moment: datetime | None, clock: datetime) -> str:
    """Return how far *moment* is from the *clock*, both of the database."""
    if moment is None:
        return ""
    seconds = (moment - clock).total_seconds()
    if abs(seconds) < 1:
        return "now"
    length = age(abs(seconds))
    return f"in {length}" if seconds > 0 else f"{length} ago"


def timetable(row: Any) -> str:
    """Return when a schedule is due: "0 3 * * * in Europe/Berlin", "every 15 s"."""
    if row.expression is None:
        return f"every {duration(row.every_seconds)}"
    return f"{row.expression} in {row.tz}"


def exact(moment: datetime | None, clock: datetime) -> str:
    """Return *moment* to the millisecond, with its zone, and how long ago it is."""
    if moment is None:
        return ""
    written = moment.isoformat(sep=" ", timespec="milliseconds")
    return f"{written} ({distance(moment, clock)})"


def in_utc(moment: datetime) -> datetime:
    """Return *moment* in UTC: without a zone, it is one of the project's."""
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment, timezone.get_default_timezone())
    return moment.astimezone(UTC)


def count(number: int, *, is_more: bool = False) -> str:
    """Return *number*; "10,000+" where it was counted no further."""
    return f"{number:,}{'+' if is_more else ''}"


def size(count: int) -> str:
    """Return how many bytes *count* is, of powers of 1000: 512 B, 1.5 MB, 20 GB."""
    number, unit = float(count), BYTE_UNITS[0]
    for unit in BYTE_UNITS:
        if number < 999.5 or unit == BYTE_UNITS[-1]:
            break
        number /= 1_000
    return f"{number:,.0f} {unit}" if number >= 1_000 else f"{number:.3g} {unit}"


def share(number: int, most: int) -> str:
    """Return how much there is of what there may be: "82,113 of 100,000"."""
    there_is = count(min(number, most), is_more=number > most)
    return f"{there_is} of {most:,}"


def shown(value: object) -> str:
    """
    Return *value* as one printable line; '' for None.

    Whoever can enqueue a job chooses its names, arguments and messages. An escape
    sequence among them could retitle a terminal, hide lines, or make one job look like
    another; so everything that is no printable character is shown as its escape.
    """
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def named(names: Sequence[str]) -> str:
    """Return names as one text, NAMES_MAX of them."""
    text = ", ".join(map(shown, names[:NAMES_MAX]))
    left = len(names) - NAMES_MAX
    return f"{text} and {left} more" if left > 0 else text


def plural(count: int, word: str) -> str:
    """Return "1 error", "2 errors"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def by_whom(row: Any) -> str:
    """Return who has paused *row* and why, as " by ada: rebuilt"; "" if nobody said."""
    by = f" by {shown(row.paused_by)}" if row.paused_by else ""
    return by + (f": {shown(row.pause_reason)}" if row.pause_reason else "")


def last_error(type_name: str | None, kind: str | None, message: str | None) -> str:
    """Return an error in one line: its class without the module, and what it said."""
    # The first line: some libraries put a whole page into a message.
    text = next(iter((message or "").splitlines()), "")
    name = (type_name or kind or "").rpartition(".")[2]
    parts = (name, redact_text(text, get_settings().redact))
    return ": ".join(filter(None, parts))


def _under_a_minute(micros: int) -> str:
    if not micros:
        return "0 s"
    size, unit = (1_000_000, "s") if micros >= 1_000_000 else (1_000, "ms")
    cut = 10 ** max(len(str(micros)) - 3, 0)
    return f"{micros // cut * cut / size:g} {unit}"


def _escape(char: str) -> str:
    # \x1b, \u202e; a surrogate too, which could not be printed at all.
    return char.encode("unicode_escape").decode("ascii")


def log_lines(log: object) -> list[str]:
    """Return the lines of an attempt's log, each with its time; empty if it is none."""
    lines = []
    for line in log if isinstance(log, list) else ():
        match line:
            case [int() | float() as seconds, str() as text]:
                lines.append(f"{seconds:8.3f} s  {text}")
            case _:  # No worker has written that.
                lines.append(str(line))
    return lines


# The header that queues/dead_letters.py writes.
HEADER = "pgqueue.reprocessed_at"


def reprocessed_at(said: object) -> datetime | None:
    """Return the moment that the header says, in UTC; None: there is none to read."""
    try:
        return in_utc(datetime.fromisoformat(said)) if isinstance(said, str) else None
    except (ValueError, OverflowError):
        return None

"""
The table of clock changes in the docs, made by the code that it is about.

    python -m tests.timetable.table      writes it into docs/reference/schedules.md
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from croniter import croniter

from django_pgqueue.timetable.expression import Expression
from django_pgqueue.timetable.ticks import Cron, next_change, offset, ticks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schedules.md"
BEGIN, END = "<!-- clock changes: begin -->\n", "<!-- clock changes: end -->\n"

DAY = timedelta(days=1)

# A zone, the local day before which there is a change, and entries that meet it.
CHANGES = [
    ("Europe/Berlin", "2026-03-29", ["30 2 * * *", "*/20 2 * * *", "0 3 * * *"]),
    ("Europe/Berlin", "2026-03-29", ["30 * * * *", "0 */2 * * *"]),
    ("Europe/Berlin", "2026-10-25", ["30 2 * * *", "0 3 * * *", "*/30 2 * * *"]),
    ("Europe/Berlin", "2026-10-25", ["30 * * * *", "0 */2 * * *"]),
    ("America/New_York", "2026-03-08", ["30 2 * * *", "30 * * * *"]),
    ("America/New_York", "2026-11-01", ["30 1 * * *", "30 * * * *"]),
    ("Australia/Lord_Howe", "2026-10-04", ["15 2 * * *", "45 2 * * *"]),
    ("Australia/Lord_Howe", "2026-04-05", ["45 1 * * *", "45 * * * *"]),
    ("Pacific/Apia", "2011-12-30", ["0 10 * * *", "0 */6 * * *"]),
    ("America/Sao_Paulo", "2018-02-17", ["30 23 * * *", "30 * * * *"]),
    ("America/Sao_Paulo", "2018-11-04", ["0 0 * * *", "30 * * * *"]),
    ("Africa/Casablanca", "2026-02-15", ["30 2 * * *", "30 * * * *"]),
    ("Africa/Casablanca", "2026-03-22", ["30 2 * * *", "30 * * * *"]),
]

HEAD = """
| Zone | The clock goes | Entry | Due around it | croniter by itself |
| --- | --- | --- | --- | --- |
"""


def table() -> str:
    """Return the table as Markdown."""
    return HEAD.lstrip() + "".join(f"| {' | '.join(cells)} |\n" for cells in _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    for name, day, entries in CHANGES:
        zone = ZoneInfo(name)
        start = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC)
        change = next_change(zone, start - DAY / 2, start + 1.5 * DAY)
        assert change is not None, (name, day)
        second = timedelta(seconds=1)
        before = (change - second + offset(zone, change - second)).replace(tzinfo=None)
        before += second
        after = change.astimezone(zone)
        change_said = f"{before:%Y-%m-%d %H:%M} to {after:%H:%M}"
        if before.date() != after.date():
            change_said = f"{before:%Y-%m-%d %H:%M} to {after:%d %H:%M}"
        # What is due within some hours of it: a day for what is due once a day.
        for entry in entries:
            near = timedelta(hours=2 if entry.split()[1] in ("*", "*/2") else 20)
            first, last = change - near, change + near
            ours = list(ticks(Cron(Expression.parse(entry), zone), first, last))
            theirs = _by_croniter(entry, zone, first, last)
            yield (
                name,
                change_said,
                f"`{entry}`",
                _said(ours, zone),
                "the same" if ours == theirs else _said(theirs, zone),
            )


def _by_croniter(
    entry: str, zone: ZoneInfo, first: datetime, last: datetime
) -> list[datetime]:
    found: list[datetime] = []
    times = croniter(entry, first.astimezone(zone), ret_type=datetime)
    while len(found) < 100:
        time = times.get_next(datetime).astimezone(UTC)
        if time > last:
            break
        found.append(time)
    return found


def _said(moments: list[datetime], zone: ZoneInfo) -> str:
    if not moments:
        return "not at all"
    local = [moment.astimezone(zone) for moment in moments]
    days = len({time.date() for time in local}) > 1
    return ", ".join(
        f"{time:%d %H:%M} {_offset(time)}" if days else f"{time:%H:%M} {_offset(time)}"
        for time in local
    )


def _offset(time: datetime) -> str:
    text = f"{time:%z}"
    return text[:3] if text.endswith("00") else f"{text[:3]}:{text[3:]}"


def page_with(text: str) -> str:
    """Return the page *text* with the table as it is now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text()))

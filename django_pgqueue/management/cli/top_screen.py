"""
Screen of `pgqueue top`: an overview as lines of text, as many as a terminal has.

The same numbers as on the first page of the admin. Names are cut in their middle, what
has no room at the end of a list is left out, and data is shown as printable text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django_pgqueue.management.cli.text import cut, cut_in_middle, padded, width
from django_pgqueue.operators import summary, workers
from django_pgqueue.operators.human import age, distance, in_utc, shown
from django_pgqueue.operators.overview import Overview

GAP = "  "

# Lines of a list, as the room allows.
LINES_LEAST, LINES_MAX = 2, 10

# Findings that are told while the lists have room, on the smallest of screens.
FINDINGS_LEAST = 3

# From so many lines on, a finding is told with its way out.
TALL = 40


class Piece(NamedTuple):
    """Text in one line, and the word whose colour it has; "bold"; "": plain."""

    text: str
    style: str = ""


Line = list[Piece]


@dataclass(frozen=True, slots=True)
class Listed:
    """A short list: the heads of its columns, and their lines."""

    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    empty: str


def screen(
    now: Overview, columns: int, lines: int, *, told: str, late: str
) -> list[Line]:
    """
    Return the lines of the whole screen, none of them wider than it.

    Args:
        now: What was read.
        columns: Of the terminal.
        lines: Of the terminal; no more come back.
        told: What keys do, for the first line.
        late: Why these are the numbers from before; "": they are not.
    """
    top = [_head(now, columns, told)]
    if late:
        top.append([Piece(cut(late, columns), "error")])
    top += [[], *_numbers(now, columns), []]
    lists = _lists(now)
    rows = (len(lists) + 1) // 2
    # Each list has heads, and a line that parts it from what is above.
    least = rows * (2 + LINES_LEAST)
    room = max(lines - len(top) - least, 1 + FINDINGS_LEAST)
    top += _attention(now, columns, room, with_ways_out=lines >= TALL)
    each = (lines - len(top)) // max(rows, 1) - 2
    each = min(max(each, LINES_LEAST), LINES_MAX)
    for place in range(0, len(lists), 2):
        top += [[], *_side_by_side(lists[place : place + 2], columns, each)]
    return top[:lines]


def _head(now: Overview, columns: int, told: str) -> Line:
    title = f"pgqueue top   {now.clock:%Y-%m-%d %H:%M:%S} UTC"
    room = columns - width(title) - len(GAP)
    if width(told) > room:
        return [Piece(cut(title, columns), "bold")]
    return [Piece(title, "bold"), Piece(" " * (room - width(told)) + GAP + told)]


def _numbers(now: Overview, columns: int) -> Iterator[Line]:
    """Return the numbers in as many lines as they need."""
    line: Line = []
    used = 0
    for number in _tiles(now):
        size = sum(width(piece.text) for piece in number)
        if line and used + len(GAP) + 1 + size > columns:
            yield line
            line, used = [], 0
        if line:
            line.append(Piece(GAP + " "))
            used += len(GAP) + 1
        line += number
        used += size
    if line:
        yield line


def _tiles(now: Overview) -> Iterator[Line]:
    queues = now.queues or ()
    for state in ("ready", "running", "retrying", "scheduled", "parked"):
        number = Piece(summary.total(queues, state), state)
        oldest = summary.oldest_ready(queues) if state == "ready" else None
        if oldest is None:
            yield [number, Piece(f" {state}")]
        else:
            queue, seconds = oldest
            where = cut_in_middle(shown(queue), 20)
            yield [number, Piece(f" {state}, oldest {age(seconds)} in {where}")]
    of_hour, of_day = summary.dead(now.died or ())
    yield [
        Piece(of_day, "ok" if of_day == "0" else "dead"),
        Piece(f" dead in 24 h, {of_hour} in 1 h"),
    ]
    rows = now.workers or ()
    silent = sum(map(workers.is_silent, rows))
    alive = len(rows) - silent
    what = " worker alive" if alive == 1 else " workers alive"
    line = [Piece(f"{alive:,}", "alive" if alive else "error"), Piece(what)]
    if silent:
        line += [Piece(", "), Piece(f"{silent:,} silent", "silent")]
    yield line
    if now.groups:
        number_unread, seconds_unread = summary.unread(now)
        since = "" if seconds_unread is None else f", oldest {age(seconds_unread)}"
        yield [Piece(number_unread, "bold"), Piece(f" unread by groups{since}")]


def _attention(
    now: Overview, columns: int, room: int, *, with_ways_out: bool
) -> Iterator[Line]:
    """Return what is wrong, the worst first, in at most *room* lines."""
    if not now.findings:
        yield [Piece(cut("All is well, in what is looked at here.", columns), "ok")]
        return
    lines_each = 2 if with_ways_out else 1
    count = len(now.findings)
    fit = max((room - 1) // lines_each, 1)
    if fit < count:
        fit = max((room - 2) // lines_each, 1)
    yield [Piece("Needs attention", "bold")]
    for each in now.findings[:fit]:
        word = f"{each.severity:<7}"
        space = columns - len(word) - len(GAP)
        yield [Piece(word, each.severity), Piece(GAP + cut(shown(each.what), space))]
        if with_ways_out:
            yield [Piece(" " * len(word) + GAP + cut(shown(each.way_out), space))]
    if fit < count:
        yield [Piece(cut(f"{count - fit} more: pgqueue doctor", columns))]


def _lists(now: Overview) -> list[Listed]:
    lists = [
        Listed(
            ("Dead, by task", "1 h", "24 h"),
            [
                (shown(each.task), f"{each.in_hour:,}", f"{each.in_day:,}")
                for each in summary.dead_by_task(now.died or ())
            ],
            "None in 24 h.",
        ),
        Listed(
            ("Running for longest", "for"),
            [
                (
                    shown(f"{job.task} #{job.id}"),
                    ""
                    if job.leased_at is None
                    else age((now.clock - in_utc(job.leased_at)).total_seconds()),
                )
                for job in now.held or ()
            ],
            "No worker holds a job.",
        ),
    ]
    if now.groups:
        lists.append(
            Listed(
                ("Groups, by lag", "state", "unread", "oldest"),
                [
                    (shown(row), behind.state, behind.shown, age(behind.seconds))
                    for row, behind in summary.by_lag(now)
                ],
                "",
            )
        )
    if now.schedules:
        lists.append(
            Listed(
                ("Next schedules", "next tick"),
                [
                    (shown(row.name), distance(row.next_tick, now.clock))
                    for row in now.schedules
                    if row.next_tick is not None
                ],
                "No tick comes any more.",
            )
        )
    return lists


def _side_by_side(lists: Sequence[Listed], columns: int, count: int) -> Iterator[Line]:
    """Return one list, or two beside each other, of at most *count* lines each."""
    # Both have half of the screen, whether there is another one or not.
    size = (columns - 2 * len(GAP)) // 2
    sides = [list(_listed(each, size, count)) for each in lists]
    for number in range(max(map(len, sides))):
        line: Line = []
        for place, side in enumerate(sides):
            if number < len(side):
                line += [Piece(2 * GAP)] * bool(place) + side[number]
            elif place == 0:
                line.append(Piece(" " * size))
        yield line


def _listed(listed: Listed, size: int, count: int) -> Iterator[Line]:
    lines = listed.lines[:count]
    cells = [listed.heads, *lines]
    others = [max(map(width, cell)) for cell in zip(*cells, strict=True)][1:]
    first = max(size - sum(others) - len(GAP) * len(others), 1)
    for place, cell in enumerate(cells):
        line = [Piece(padded(cut_in_middle(cell[0], first), first))]
        line += [
            Piece(GAP + padded(text, room, right=True), text)
            for text, room in zip(cell[1:], others, strict=True)
        ]
        yield line if place else [Piece(piece.text, "bold") for piece in line]
    if not lines:
        yield [Piece(padded(cut(listed.empty, size), size))]

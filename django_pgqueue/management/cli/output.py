"""Output: tables and lines for people, one JSON object for machines.

Results go to standard output; progress and notes go to standard error. Tables are plain
text. On a terminal they are as wide as that, and in colours; into a pipe nothing is cut
off. Widths are columns of a terminal: 世 takes two of them, a combining accent none.
"""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.operators.human import shown

ELLIPSIS = "…"


def shown_lines(text: str) -> list[str]:
    """Return the lines of *text*, each printable; tabs become four spaces."""
    return [shown(line.replace("\t", "    ")) for line in text.split("\n")]


def width(text: str) -> int:
    """Return how many columns of a terminal the printable *text* takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def cut(text: str, columns: int) -> str:
    """Return *text*, shortened to *columns*, an ellipsis included."""
    if width(text) <= columns:
        return text
    kept, left = [], columns - 1
    for char in text:
        left -= _char_width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS if columns > 0 else ""


def cut_in_middle(text: str, columns: int) -> str:
    """Return *text*, shortened as by cut(), but in its middle."""
    if width(text) <= columns:
        return text
    end = ""
    for char in reversed(text):
        if width(end) + _char_width(char) > columns // 2:
            break
        end = char + end
    return cut(text, columns - width(end)) + end


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Return *text* with spaces up to *columns*, behind it or before it."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


EXIT_DONE, EXIT_NOTHING, EXIT_USAGE = 0, 1, 2

GAP = "  "

# The narrowest that a column which may be cut becomes; what it has until others go.
COLUMNS_MIN = 8
COLUMNS_ENOUGH = 24

# Words of states and severities, by the number that ANSI gives their colour: green,
# cyan, yellow, red and grey.
STYLES = {
    32: {"succeeded", "ok", "ends"},
    36: {
        *("running", "ready", "active", "reading", "waiting", "enabled"),
        *("alive", "alive, leads", "started"),
    },
    33: {
        *("retrying", "warning", "paused", "held back", "stale", "disabled"),
        *("running, asked to stop", "compensating"),
    },
    31: {
        *("dead", "failed", "error", "overdue", "faulty", "halted", "behind", "silent"),
        *("begins", "grows", "stands"),
    },
    90: {"scheduled", "parked", "cancelled", "expired", "withdrawn"},
}
STYLE_OF = {word: style for style, words in STYLES.items() for word in words}


# Heads of columns whose cells are numbers, or lengths of time, as text.
NUMBERS = {
    *("ready", "running", "retrying", "scheduled", "parked", "dead", "oldest", "lag"),
    *("attempt", "count", "held", "held back", "in 24 h", "late", "longest", "ran"),
    *(
        "age",
        "done",
        "of",
        "rows in",
        "rows out",
        "size",
        "jobs",
        "steps",
        "taken",
        "took",
        "waiting",
    ),
}
# Of those that give way when the terminal is narrow; some of them in their middle,
# since what ends a name tells rows apart.
CUT_IN_MIDDLE = {"lane", "last error", "step", "subject", "task", "worker"}
MAY_CUT = CUT_IN_MIDDLE | {
    *(
        "",
        "asked by",
        "by",
        "detail",
        "error",
        "filters",
        "group",
        "host",
        "key",
        "listener",
    ),
    *("name", "options", "payload", "place", "queue", "queues", "reader", "topic"),
    "what it does",
}
# Of those that are left out where others lack room, the last one first.
MAY_GO = {"first", "host", "pid", "slots", "trend"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    right: bool  # Numbers stand at the right.
    may_cut: bool
    keeps_end: bool
    may_go: bool


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One of several that a module has; else the module is the subcommand."""

    HELP: str
    add_arguments: Callable[[Any], None]
    run: Callable[[dict[str, Any], Output], int]


class Output:
    """Where a subcommand prints."""

    def __init__(self, stdout: Any, stderr: Any, *, as_json: bool, color: bool) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self.as_json = as_json
        self.is_terminal = bool(stdout.isatty())
        self.has_color = color and self.is_terminal
        self.errors_to_terminal = bool(stderr.isatty())

    def json(self, value: Any) -> None:
        """Print one JSON object, with times as ISO has them."""
        self._stdout.write(json.dumps(value, ensure_ascii=False, default=_plain) + "\n")

    def flush(self) -> None:
        """Hand over what was printed; raise where nobody reads it."""
        self._stdout.flush()

    def answer(self, value: Any, is_done: object, done: str, left: str) -> int:
        """Print what came of something, one of two lines; return the exit status."""
        if self.as_json:
            self.json(value)
        else:
            self.line(done if is_done else left)
        return EXIT_DONE if is_done else EXIT_NOTHING

    def missing(self, kind: str, name: str, names: Sequence[str], value: Any) -> int:
        """Say that no *kind* has this *name*, and which may be meant; as answer()."""
        if self.as_json:
            self.json(value)
        near = did_you_mean(name, list(names))
        self.note(f"No {kind} is called {shown(name)!r}.{shown(near)}")
        return EXIT_NOTHING

    def confirms(self, what: str, question: str) -> bool:
        """
        Ask whether that is meant.

        Args:
            what: What would happen, for whoever cannot be asked.
            question: Asked where somebody can be.

        Raises:
            CommandError: Nobody can be asked.
        """
        if not sys.stdin.isatty():
            raise CommandError(
                f"{what}, and nobody can be asked: give --yes.", returncode=EXIT_USAGE
            )
        self.note(f"{question} [y/N] ")
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def line(self, text: str = "") -> None:
        """Print one line of ours; data in it went through shown()."""
        self._stdout.write(text + "\n")

    def styled(self, text: str, word: str) -> str:
        """Return *text* in the colour of *word*, where colours are shown."""
        if not self.has_color or word not in STYLE_OF:
            return text
        return f"\x1b[{STYLE_OF[word]}m{text}\x1b[0m"

    def block(self, text: str, indent: str = "  ") -> None:
        """Print several lines of data, indented."""
        for line in shown_lines(text):
            self.line(f"{indent}{line}".rstrip())

    def facts(self, facts: dict[str, object]) -> None:
        """Print labels with their values; what has no value is left out."""
        said = {label: shown(value) for label, value in facts.items()}
        said = {label: text for label, text in said.items() if text}
        longest = max(map(len, said), default=0)
        for label, text in said.items():
            self.line(f"  {label:<{longest}}  {text}")

    def note(self, text: str) -> None:
        """Say something on standard error."""
        self._stderr.write(text + "\n")

    def progress(self, text: str) -> None:
        """Replace the line on the terminal that standard error is, if it is one."""
        if self.errors_to_terminal:
            self._stderr.write(f"\r{text}\x1b[K")
            self._stderr.flush()

    def end_progress(self) -> None:
        """Remove the line of progress."""
        self.progress("")

    def table(
        self,
        rows: Sequence[Mapping[str, object]],
        *,
        may_cut: str = "",
        may_go: str = "",
    ) -> None:
        """
        Print rows under their heads.

        Args:
            rows: What stands under each head.
            may_cut: The head of one more column that may be cut.
            may_go: The head of one more that may be left out.
        """
        columns = [
            Column(
                head,
                head in NUMBERS or any(type(row[head]) is int for row in rows),
                head in MAY_CUT or head == may_cut,
                head in CUT_IN_MIDDLE,
                head in MAY_GO or head == may_go,
            )
            for head in rows[0]
        ]
        cells = [[shown(cell) for cell in row.values()] for row in rows]
        widths = _widths(columns, cells)
        if self.is_terminal:
            total = shutil.get_terminal_size().columns
            if _over(widths, total) > 0:
                columns, cells = _without_some(columns, cells, total)
                widths = _widths(columns, cells)
            _narrow(columns, widths, total)
            cells = _cut_in_middle(columns, widths, cells)
        heads = [column.name for column in columns]
        for row in [heads, *cells]:
            padding = [
                padded(cut(cell, size), size, right=column.right)
                for cell, size, column in zip(row, widths, columns, strict=True)
            ]
            texts = map(self.styled, padding, row) if row is not heads else padding
            self.line(GAP.join(texts).rstrip())


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    heads = [column.name for column in columns]
    return [max(map(width, cell)) for cell in zip(heads, *cells, strict=True)]


def _over(widths: Sequence[int], total: int) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1) - total


def _without_some(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], total: int
) -> tuple[list[Column], list[list[str]]]:
    """Leave out columns that say nothing, then those that may go: others need room."""
    kept = [place for place in range(len(columns)) if any(row[place] for row in cells)]
    needs = [
        min(size, COLUMNS_ENOUGH) if column.may_cut else size
        for size, column in zip(_widths(columns, cells), columns, strict=True)
    ]
    for place in reversed(kept):
        if _over([needs[each] for each in kept], total) <= 0:
            break
        if columns[place].may_go:
            kept = [each for each in kept if each != place]
    return [columns[place] for place in kept], [
        [row[place] for place in kept] for row in cells
    ]


def _narrow(columns: Sequence[Column], widths: list[int], total: int) -> None:
    """Make the columns that may give way narrower, the widest first."""
    over = _over(widths, total)
    flexible = [place for place, column in enumerate(columns) if column.may_cut]
    while over > 0 and flexible:
        # The first column says which row it is, so it keeps twice as much.
        widest = max(flexible, key=lambda place: widths[place] * (2 if place else 1))
        if widths[widest] <= COLUMNS_MIN:
            return
        widths[widest] -= 1
        over -= 1


def _cut_in_middle(
    columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Sequence[str]]
) -> list[list[str]]:
    return [
        [
            cut_in_middle(cell, size) if column.keeps_end else cell
            for cell, size, column in zip(row, widths, columns, strict=True)
        ]
        for row in cells
    ]

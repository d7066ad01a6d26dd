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
TAB, SPACES = "\t", "    "


def width(text: str) -> int:
    """Return how many columns of a terminal the printable *text* takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def cut(text: str, columns: int) -> str:
    """Shorten *text* to *columns* with an ellipsis; a name keeps its end as well."""
    if width(text) <= columns:
        return text
    end = "" if " " in text else _beginning(text[::-1], columns // 2)[::-1]
    return _beginning(text, columns - 1 - width(end)) + ELLIPSIS + end


def _beginning(text: str, columns: int) -> str:
    """Return as much of *text* as *columns* hold."""
    for place, char in enumerate(text):
        columns -= _char_width(char)
        if columns < 0:
            return text[:place]
    return text


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


EXIT_DONE, EXIT_NOTHING, EXIT_USAGE = 0, 1, 2

GAP = "  "

# The narrowest that a column becomes.
COLUMNS_MIN = 8

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
        for line in text.split("\n"):
            self.line(f"{indent}{shown(line.replace(TAB, SPACES))}".rstrip())

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

    def table(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Print rows under their heads; on a terminal, cut to fit."""
        heads = list(rows[0])
        cells = [[shown(cell) for cell in row.values()] for row in rows]
        columns = list(zip(*cells, strict=True))
        # Numbers, and lengths of time, stand at the right.
        are_right = [_are_numbers(column) for column in columns]
        widths = [
            max(map(width, (head, *column)))
            for head, column in zip(heads, columns, strict=True)
        ]
        if self.is_terminal:
            _narrow(widths, are_right, shutil.get_terminal_size().columns)
        for row in [heads, *cells]:
            texts = []
            for text, size, is_right in zip(row, widths, are_right, strict=True):
                short = cut(text, size)
                blank = " " * (size - width(short))
                padded = blank + short if is_right else short + blank
                texts.append(padded if row is heads else self.styled(padded, text))
            self.line(GAP.join(texts).rstrip())


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _are_numbers(column: Sequence[str]) -> bool:
    return any(column) and all(not cell or cell[0].isdigit() for cell in column)


def _narrow(widths: list[int], are_fixed: Sequence[bool], total: int) -> None:
    """Narrow columns until they fit, always the widest of those that are not fixed."""
    flexible = [place for place in range(len(widths)) if not are_fixed[place]]
    while flexible and sum(widths) + len(GAP) * (len(widths) - 1) > total:
        # The first column says which row it is, so it keeps twice as much.
        widest = max(flexible, key=lambda place: widths[place] * (2 if place else 1))
        if widths[widest] <= COLUMNS_MIN:
            return
        widths[widest] -= 1

"""
Progress: a live bar; without a terminal a line every five seconds.

Drawn with rich where that is installed, and with plain characters otherwise. Where
nobody knows how much is left, a line that is replaced.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self

LINE_SECONDS = 5.0
BAR_WIDTH_MAX = 40


class Progress(Protocol):
    """What all of them can do: be a context, and be told how far it is."""

    def update(self, part: float, said: str) -> None:
        """Show that *part* (0 to 1) is done; *said* tells the figures."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def progress() -> Progress:
    """Return what suits the terminal, or its absence."""
    if not _is_terminal():
        return Lines()
    try:
        import rich  # noqa: F401 - is it installed?
    except ImportError:
        return PlainBar()
    return RichBar()


def line() -> Line:
    """Return a line for what takes a while."""
    return Line(is_terminal=_is_terminal())


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Line:
    """One line that is replaced; without a terminal, a new one every LINE_SECONDS."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._due_at = LINE_SECONDS

    def update(self, said: str, seconds: float) -> None:
        """Show *said*, and for how many seconds it has been going on."""
        if self._is_terminal:
            self._draw(f"{seconds:4.0f} s  {said}")
        elif seconds >= self._due_at:
            print(f"{seconds:4.0f} s  {said}", flush=True)
            self._due_at = seconds + LINE_SECONDS

    def _draw(self, said: str) -> None:
        columns = shutil.get_terminal_size().columns - 1
        sys.stdout.write(f"\r{said:{columns}.{columns}}\r")
        sys.stdout.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            self._draw("")  # What is printed next stands in its place.


class Lines:
    """A line every LINE_SECONDS, and one at the end."""

    def __init__(self) -> None:
        self._due_at = self._started_at = time.monotonic()
        self._line = ""

    def update(self, part: float, said: str) -> None:
        now = time.monotonic()
        self._line = f"{now - self._started_at:4.0f} s {part:5.0%}  {said}"
        if now >= self._due_at:
            self._print()
            self._due_at = now + LINE_SECONDS

    def _print(self) -> None:
        if self._line:
            print(self._line, flush=True)
        self._line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._print()


class PlainBar:
    """One line that is drawn again and again."""

    def update(self, part: float, said: str) -> None:
        columns = shutil.get_terminal_size().columns - 1
        width = max(10, min(BAR_WIDTH_MAX, columns - len(said) - 12))
        bar = "#" * round(part * width)
        print(
            f"\r{f'[{bar:.<{width}}] {part:4.0%}  {said}':{columns}.{columns}}", end=""
        )
        sys.stdout.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        print()


class RichBar:
    """The bar that pip has."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Rich

        columns: list[Any] = [
            BarColumn(BAR_WIDTH_MAX),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
        ]
        self._rich = Rich(*columns)
        self._task = self._rich.add_task("", total=1)

    def update(self, part: float, said: str) -> None:
        self._rich.update(self._task, completed=part, description=said)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

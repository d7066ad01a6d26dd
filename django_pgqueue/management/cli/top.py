"""pgqueue top: the numbers of the admin's first page, renewed on a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.extras import extra
from django_pgqueue.management.cli.keys import Keys
from django_pgqueue.management.cli.output import EXIT_DONE, STYLE_OF, Output
from django_pgqueue.management.cli.text import shown_lines
from django_pgqueue.management.cli.top_screen import Line, screen
from django_pgqueue.management.cli.words import whole_number
from django_pgqueue.operators import overview, summary, workers
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.overview import Overview
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database

HELP = "Show what the admin's first page shows, and renew it."

EVERY_SECONDS, EVERY_SECONDS_MAX = 2, 3_600

# What one statement may take.
STATEMENT_SECONDS_MAX = 10

# Where no terminal says so: nothing of it is cut off by a narrow one.
COLUMNS, LINES = 160, 50


def add_arguments(parser: Any) -> None:
    """Declare how often it is renewed."""
    parser.add_argument(
        "--every",
        type=seconds,
        default=EVERY_SECONDS,
        metavar="SECONDS",
        help=f"Renew it so often (default {EVERY_SECONDS}).",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="Show it once; so it is, too, where the output is no terminal.",
    )


def seconds(text: str) -> int:
    """Read --every."""
    return whole_number(text, EVERY_SECONDS_MAX)


def run(options: dict[str, Any], out: Output) -> int:
    """Show it, once or until somebody ends it."""
    if out.as_json:
        out.json(_as_json(_read()))
        return EXIT_DONE
    if out.is_terminal and not options["once"]:
        with contextlib.suppress(KeyboardInterrupt):
            _renew(options["every"], out)
        return EXIT_DONE
    columns, lines = shutil.get_terminal_size((COLUMNS, LINES))
    for line in screen(_read(), columns, lines, told="", late=""):
        pieces = (out.styled(piece.text, piece.style) for piece in line)
        out.line("".join(pieces).rstrip())
    return EXIT_DONE


def _renew(every: int, out: Output) -> None:
    """Show it anew until q is pressed; with numbers from before without a database."""
    from django.db import InterfaceError, OperationalError, connections

    live_class, console_class = extra("rich.live").Live, extra("rich.console").Console
    console = console_class(
        highlight=False, markup=False, emoji=False, no_color=not out.has_color
    )
    now, late = _read(), ""
    with (
        Keys(sys.stdin) as keys,
        live_class(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            size = console.size
            told = f"every {every} s, q ends" if keys.are_heard else f"every {every} s"
            lines = screen(now, size.width, size.height, told=told, late=late)
            live.update(_text(lines), refresh=True)
            if keys.wait_for("q", every):
                return
            try:
                now, late = _read(), ""
            except (OperationalError, InterfaceError) as error:
                connections[get_settings().database].close()
                why = shown_lines(str(error))[0]
                late = f"The numbers from before: the database cannot be read: {why}"


def _read() -> Overview:
    with (
        limited(
            get_settings().database,
            seconds=STATEMENT_SECONDS_MAX,
            plans=Plans.IN_ORDER,
        ),
        database.cursor() as cursor,
    ):
        return overview.read(cursor)


def _text(lines: Sequence[Line]) -> Any:
    """Return the lines for rich, in which brackets in data are no markup."""
    text_class = extra("rich.text").Text
    text = text_class(no_wrap=True, overflow="crop")
    for place, line in enumerate(lines):
        text.append("\n" if place else "")
        for piece in line:
            plain = "bold" if piece.style == "bold" else ""
            text.append(piece.text, style=STYLE_OF.get(piece.style, (plain, 0))[0])
    return text


def _as_json(now: Overview) -> dict[str, Any]:
    rows = now.workers or ()
    silent = sum(map(workers.is_silent, rows))
    return {
        "clock": now.clock,
        "findings": list(map(dataclasses.asdict, now.findings)),
        "queues": list(map(dataclasses.asdict, now.queues or ())),
        "dead": [each._asdict() for each in now.died or ()],
        "workers": {"alive": len(rows) - silent, "silent": silent},
        "held": [
            {**job._asdict(), "leased_at": job.leased_at and in_utc(job.leased_at)}
            for job in now.held or ()
        ],
        "groups": [
            {"group": str(row), **dataclasses.asdict(behind)}
            for row, behind in summary.by_lag(now)
        ],
        "schedules": [
            {"name": row.name, "next_tick": row.next_tick}
            for row in now.schedules or ()
        ],
    }

"""pgqueue reopen: days of the log that a wrong clock has closed take messages again."""

from __future__ import annotations

import time
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.log import days
from django_pgqueue.log.closed_days import DAYS_REMEMBERED_SECONDS
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.operators.findings import named
from django_pgqueue.operators.human import duration
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.postgres.connect import connect

HELP = "Let messages be published into days that a wrong clock has closed."

# Until every reader has forgotten that they were closed.
FORGOTTEN_SECONDS = 3 * DAYS_REMEMBERED_SECONDS


def add_arguments(parser: Any) -> None:
    """It has none: it reopens the days that are not over."""


def run(options: dict[str, Any], out: Output) -> int:
    """Reopen."""
    alias = get_settings().database
    with (
        connect(alias, name="pgqueue reopen") as connection,
        connection.cursor() as cursor,
    ):
        now = server_now(cursor)
        early = days.closed_early(cursor)
        told = [str(day) for day in early]
        if early:
            out.note(
                f"Not over, and closed: {named(told)}. Readers forget that within "
                f"{duration(FORGOTTEN_SECONDS)}."
            )
            days.forget_early(cursor, early)
            time.sleep(FORGOTTEN_SECONDS)
            days.let_in(cursor, early)
    if out.as_json:
        out.json({"clock": now, "reopened": told})
    elif early:
        out.line(f"Messages are published again into {named(told)}.")
    else:
        out.line(
            f"No day of the log is closed that is not over: by the clock of the "
            f"database it is {now:%Y-%m-%d %H:%M} in UTC."
        )
    return EXIT_DONE if early else EXIT_NOTHING

"""pgqueue sequences: how far sequences and counters are, and those that are behind."""

from __future__ import annotations

from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.words import add_actions
from django_pgqueue.operators.human import shown
from django_pgqueue.postgres.connect import connect
from django_pgqueue.postgres.counters import (
    MESSAGES,
    Counter,
    counters,
    passed_over,
    repair,
)

HELP = "List sequences and counters; repair those that a restore has left behind."

COLUMNS = (
    Column("gives"),
    Column("state"),
    Column("last", right=True),
    Column("in use", right=True),
)


def add_arguments(parser: Any) -> None:
    """Declare what is done; nothing said lists them."""
    add_actions(parser, {"repair": "Set those that are behind to what is in use."})


def run(options: dict[str, Any], out: Output) -> int:
    """List them; or repair, and say what was behind."""
    with (
        connect(get_settings().database, name="pgqueue sequences") as connection,
        connection.cursor() as cursor,
    ):
        if options.get("action") != "repair":
            return _list(counters(cursor), out)
        behind = repair(cursor)
        lost: dict[str, int] = {}
        for each in behind:
            if each.column == MESSAGES:
                lost = passed_over(cursor, each.last)
    return _repaired(behind, lost, out)


def _list(found: list[Counter], out: Output) -> int:
    if out.as_json:
        out.json({"sequences": [_as_json(each) for each in found]})
    else:
        out.table(
            COLUMNS,
            [[each.column, _state(each), each.last, each.used] for each in found],
        )
    return EXIT_NOTHING if any(each.is_behind for each in found) else EXIT_DONE


def _repaired(behind: list[Counter], lost: dict[str, int], out: Output) -> int:
    if out.as_json:
        out.json({"repaired": [_as_json(each) for each in behind], "passed_over": lost})
        return EXIT_DONE
    for each in behind:
        out.line(
            f"{each.column} goes on after {each.used:,}; it stood at {each.last:,}."
        )
    if not behind:
        out.line("None is behind.")
    for topic, count in lost.items():
        out.note(
            f"Topic {shown(topic)}: {count:,} message{'' if count == 1 else 's'} came "
            f"meanwhile, and groups have passed over them. To read all that is left "
            f"once more: manage.py pgqueue seek {shown(topic)}/GROUP --to earliest"
        )
    return EXIT_DONE


def _state(each: Counter) -> str:
    return "behind" if each.is_behind else "ok"


def _as_json(each: Counter) -> dict[str, Any]:
    return {
        "gives": each.column,
        "state": _state(each),
        "last": each.last,
        "in_use": each.used,
    }

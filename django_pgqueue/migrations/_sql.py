"""Operations that run the files of sql/."""

import re
from pathlib import Path

from django.db.migrations import RunSQL

FOLDER = Path(__file__).parents[1] / "sql"

CREATED = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION (pgqueue_\w+)")


def run_file(name: str, back: str) -> RunSQL:
    """Return an operation that runs a file, and *back* when it is reversed."""
    return RunSQL(_read(name), back)


def create_functions(names: str) -> RunSQL:
    """
    Return an operation that runs these files: functions, triggers and CHECKs.

    The order of the files does not matter, because PostgreSQL checks the bodies of
    functions only when they are called. Reversing it drops the functions, and with
    them the triggers and CHECKs that call them.
    """
    text = "\n".join(_read(name) for name in names.split())
    created = CREATED.findall(text)
    return RunSQL(
        f"SET LOCAL check_function_bodies = off;\n{text}\n{_read('pins')}",
        f"DROP FUNCTION {', '.join(created)} CASCADE",
    )


def _read(name: str) -> str:
    return (FOLDER / f"{name}.sql").read_text("utf-8")

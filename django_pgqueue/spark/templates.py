"""
Templates: texts of places, in which options of the job stand by their names.

    "{folder}/late"                              the option folder
    "reminders {run.started_at:%Y-%m-%d}"        what the run knows
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from django_pgqueue.exceptions import DeclarationError, SparkOptionError

RUN = "run"


def names_in(text: str) -> set[str]:
    """
    Return the names that stand in *text*.

    Raises:
        DeclarationError: A brace is not closed, or nothing stands in it.
    """
    try:
        fields = [field for _, field, _, _ in Formatter().parse(text)]
    except ValueError as error:
        raise DeclarationError(
            f"{text!r} is no template: {error}. A brace itself is written twice."
        ) from None
    names = {re.split(r"[.\[]", field)[0] for field in fields if field is not None}
    if any(not name.isidentifier() for name in names):
        raise DeclarationError(
            f"{text!r} has a brace without the name of an option in it. A brace itself "
            f"is written twice."
        )
    return names


def fill(
    text: str | None, options: Mapping[str, Any], run: Any | None = None
) -> str | None:
    """
    Return *text* with the values of *options* in it.

    None where there is no text, or where an option in it is None; and, before there is
    a run, where it stands in it.
    """
    if text is None:
        return None
    names = names_in(text)
    values = {**options, RUN: run}
    if any(values[name] is None for name in names):
        return None
    return text.format(**values)


def require(text: str, options: Mapping[str, Any]) -> None:
    """
    Raise SparkOptionError unless each option that stands in *text* has a value.

    Args:
        text: A template.
        options: Those of the job.
    """
    missing = sorted(
        name for name in names_in(text) if name != RUN and options[name] is None
    )
    if missing:
        raise SparkOptionError(
            f"The option {missing[0]} is needed, and has no default: give it with -o "
            f"{missing[0]}=…"
        )

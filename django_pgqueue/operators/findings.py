"""Finding: one thing that the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django_pgqueue.log.lag import Holder
from django_pgqueue.operators.human import shown

Severity = Literal["ok", "warning", "error"]

# Least to worst.
SEVERITIES: tuple[Severity, ...] = ("ok", "warning", "error")

# A transaction that has published and stays open holds its topics' readers back.
PUBLISHING_SECONDS_MAX = 60.0

# Names in one finding.
NAMES_MAX = 10

# What starts a worker of all queues; of one, with its name.
START = "python manage.py pgqueue_worker"
START_FOR = f"{START} --queues "


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        check: What was looked at, in one word that never changes: for scripts.
        severity: "error": jobs do not run, or soon will not. "warning": somebody
            should look. "ok": as it should be.
        what: The finding, in a sentence.
        value: What was measured, where that is a number or a list.
        limit: What the value is held against.
        way_out: What to do; empty where all is well.
        about: The name of the one queue that it concerns; "": of several, or of none.
    """

    check: str
    severity: Severity
    what: str
    value: object = None
    limit: object = None
    way_out: str = ""
    about: str = ""


def named(names: list[str]) -> str:
    """Return names as one text, NAMES_MAX of them."""
    told = ", ".join(map(shown, names[:NAMES_MAX]))
    left = len(names) - NAMES_MAX
    return f"{told} and {left} more" if left > 0 else told


def ended_by(holder: Holder) -> str:
    """Return what ends a transaction that holds readers back."""
    if holder.is_prepared:
        return "COMMIT PREPARED or ROLLBACK PREPARED: see pg_prepared_xacts."
    return f"SELECT pg_terminate_backend({holder.pid})"


def finding(
    *,
    check: str,
    wrong: object,
    what: str,
    right: str = "",
    way_out: str = "",
    severity: Severity = "warning",
    value: object = None,
    limit: object = None,
    about: str = "",
) -> Finding:
    """
    Return what was found, with its way out; or that all is as it should be.

    Args:
        check: As of a finding.
        wrong: Whether somebody should do something.
        what: The finding.
        right: The same where nothing is wrong, if that is another sentence.
        way_out: Left out where nothing is wrong.
        severity: Of what is wrong.
        value: As of a finding.
        limit: As of a finding.
        about: As of a finding; left out where nothing is wrong.
    """
    return Finding(
        check=check,
        severity=severity if wrong else "ok",
        what=what if wrong or not right else right,
        value=value,
        limit=limit,
        way_out=way_out if wrong else "",
        about=about if wrong else "",
    )

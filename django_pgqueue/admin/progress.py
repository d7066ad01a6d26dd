"""Progress: how far a job said that it is, and a run of the pipeline."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_pgqueue.admin.chart import number


@dataclass(frozen=True, slots=True)
class Progress:
    """Done of total, as a bar shows it."""

    done: float
    total: float
    text: str


def read_progress(text: str | None) -> Progress | None:
    """
    Return the progress in a column's JSON *text*.

    None: there is none, or it is not what a task's context writes; then it is shown as
    the payload that it is.
    """
    try:
        value = json.loads(text or "null")
        done, total = value["done"], value["total"]
        is_bar = 0 <= done <= total and 0 < total < float("inf")
    except (ValueError, RecursionError, TypeError, LookupError):
        return None
    if not is_bar:
        return None
    return Progress(done, total, f"{done:,} / {total:,} ({done / total:.0%})")


# Characters of the column that are read; a run writes a hundred.
CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a run said of itself; "" and 0 where it said nothing that can be read."""

    phase: str = ""
    tasks_done: int = 0
    tasks: int = 0
    rows_per_second: float = 0.0

    @property
    def text(self) -> str:
        """Return it in words: reading, 3 of 12 tasks."""
        parts = [self.phase] if self.phase else []
        if self.tasks:
            counts = {"done": f"{self.tasks_done:,}", "tasks": f"{self.tasks:,}"}
            parts.append(_("%(done)s of %(tasks)s tasks") % counts)
        return ", ".join(parts)

    @property
    def rate(self) -> str:
        """Return how many rows it has read a second, or ""."""
        if not self.rows_per_second:
            return ""
        return _("%(rows)s rows/s") % {"rows": number(self.rows_per_second)}

    def bar(self) -> Progress | None:
        """Return what a bar shows: the tasks of Spark that are done."""
        if not self.tasks > 0 or not 0 <= self.tasks_done <= self.tasks:
            return None
        return Progress(self.tasks_done, self.tasks, self.text)


def read_run_progress(text: str | None) -> RunProgress:
    """Return the progress in a column's JSON *text*, whatever that holds."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return RunProgress()
    if not isinstance(value, dict):
        return RunProgress()
    phase, rate = value.get("phase"), value.get("rows_per_second")
    return RunProgress(
        phase=phase if isinstance(phase, str) else "",
        tasks_done=_whole(value.get("tasks_done")),
        tasks=_whole(value.get("tasks")),
        rows_per_second=rate
        if isinstance(rate, (int, float)) and 0 <= rate < 1e15
        else 0.0,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0

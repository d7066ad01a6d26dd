"""
Task charts: what ended, and how long it waited and ran, as charts.

The overview has them of the last hour, day or week, counted by workers as they settle;
the page of metrics of months, counted by the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.cells import name
from django_pgqueue.admin.chart import (
    HOUR_SECONDS,
    Chart,
    Period,
    Series,
    local,
    number,
    over_time,
    scale,
    time_scale,
)
from django_pgqueue.admin.keyset_list import (
    PeriodForm,
    period_field,
    queue_field,
    text_field,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, TaskHour
from django_pgqueue.operators.human import duration
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import task_spans
from django_pgqueue.queues.task_spans import OTHERS, Counted
from django_pgqueue.worker.tally import UNKNOWN

PERIODS = {
    "1h": Period(gettext_lazy("1 hour"), 1),
    "24h": Period(gettext_lazy("24 hours"), 24),
    "7d": Period(gettext_lazy("7 days"), 168),
}
PERIOD_DEFAULT = "1h"

# Lines of the table, and names that a filter offers.
LINES_MAX, NAMES_OFFERED_MAX = 10, 200

# Throughput is in jobs for each of these.
RATES = {60: gettext_lazy("jobs a minute"), HOUR_SECONDS: gettext_lazy("jobs an hour")}
HIGHEST = {
    60: gettext_lazy("Highest: %(highest)s a minute."),
    HOUR_SECONDS: gettext_lazy("Highest: %(highest)s an hour."),
}


class ChartsForm(PeriodForm):
    """What the charts of the overview are narrowed to."""

    period = period_field(PERIODS)
    queue = queue_field(list="pgqueue-queues")
    task = text_field(
        gettext_lazy("Task"), gettext_lazy("its whole name"), list="pgqueue-tasks"
    )

    @property
    def period_key(self) -> str:
        """Return the key of PERIODS that is asked for; AGES has them, too."""
        return self.value("period") or PERIOD_DEFAULT

    @property
    def hours(self) -> int:
        """How far back they go."""
        return PERIODS[self.period_key].hours


@dataclass(frozen=True, slots=True)
class Spans:
    """
    The spans of a chart, oldest first: when each begins, and what it amounts to.

    Attributes:
        starts: In seconds since 1970.
        sums: With `succeeded`, `tried_again`, `dead`, and percentiles.
        step_seconds: How long each is.
        rate_seconds: A key of RATES.
    """

    starts: Sequence[float]
    sums: Sequence[Any]
    step_seconds: int
    rate_seconds: int

    def moments(self) -> list[datetime]:
        """Return when each begins, in the time zone of the project."""
        return [local(start) for start in self.starts]

    def values(self, attribute: str) -> list[float | None]:
        """Return one number of each; None where there is none."""
        return [
            None if sums is None else getattr(sums, attribute) for sums in self.sums
        ]


def throughput(spans: Spans) -> Chart:
    """Return the chart of what ended, well and badly."""
    share = spans.step_seconds / spans.rate_seconds

    def series(name: Any, css: str, attribute: str) -> Series:
        values = spans.values(attribute)
        return Series(name, css, [v if v is None else v / share for v in values])

    parts = [
        series(_("succeeded"), "pgqueue-good", "succeeded"),
        series(_("failed, tried again"), "pgqueue-bad", "tried_again"),
        series(_("dead"), "pgqueue-worst", "dead"),
    ]
    columns = zip(*(part.values for part in parts), strict=True)
    highs = [sum(value or 0.0 for value in values) for values in columns]
    unit = str(RATES[spans.rate_seconds])
    if share != 1:
        mean = {"unit": unit, "long": duration(spans.step_seconds)}
        unit = _("%(unit)s, mean of %(long)s") % mean
    return over_time(
        spans.moments(),
        spans.step_seconds,
        parts,
        key="throughput",
        title=_("Throughput"),
        unit=unit,
        told=HIGHEST[spans.rate_seconds] % {"highest": number(max(highs))}
        if highs
        else "",
        axis=scale(max(highs, default=0.0), is_whole=share == 1),
        text=number,
    )


def times(
    spans: Spans,
    measure: str,
    *,
    title: str,
    unit: str,
    p95: str = "p95",
    p50: str = "p50",
) -> Chart:
    """
    Return the chart of p50 and p95 of *measure*, "wait" or "run".

    Args:
        spans: What is shown.
        measure: The first part of the attributes' names.
        title: Above the chart.
        unit: Beside the title.
        p95: What the upper line is called.
        p50: What the lower line is called.
    """
    parts = [
        Series(p95, "pgqueue-p95", spans.values(f"{measure}_p95")),
        Series(p50, "pgqueue-p50", spans.values(f"{measure}_p50")),
    ]
    known = [value for part in parts for value in part.values if value is not None]
    return over_time(
        spans.moments(),
        spans.step_seconds,
        parts,
        key=measure,
        title=title,
        unit=unit,
        told=_("Highest p95: %(highest)s.") % {"highest": duration(max(known))}
        if known
        else _("Nothing was measured."),
        axis=time_scale(max(known, default=0.0)),
        text=duration,
        is_lines=True,
    )


# The overview ------------------------------------------------------------------------


def of_workers(
    cursor: Cursor,
    request: HttpRequest,
    clock: datetime,
    link: Callable[..., SafeString | str],
) -> Mapping[str, Any]:
    """
    Return what the overview shows of what workers have settled.

    Args:
        cursor: Django's.
        request: Says which period, queue and task.
        clock: The database's time.
        link: Returns a text as a link to a list, for those who may see that.
    """
    form = ChartsForm({"period": PERIOD_DEFAULT, **request.GET.dict()})
    found = task_spans.charts(
        cursor,
        clock - timedelta(hours=form.hours),
        clock,
        queue=form.value("queue"),
        task=form.value("task"),
    )
    points = found.points
    spans = Spans(
        [point.at.timestamp() for point in points], points, found.width_seconds, 60
    )
    asked = {
        (queue, task): counted
        for (queue, task), counted in found.totals.items()
        if form.value("queue") in ("", queue) and form.value("task") in ("", task)
    }
    most = sorted(asked, key=lambda key: (-asked[key].ended, -asked[key].failed, key))
    return {
        "filter_form": form,
        "charts": [
            throughput(spans),
            times(spans, "wait", title=_("Wait"), unit=_("from due until start")),
            times(spans, "run", title=_("Run"), unit=_("from start until end")),
        ],
        "lines": [
            _line(key, asked[key], link, form.period_key) for key in most[:LINES_MAX]
        ],
        "lines_left_out": max(len(most) - LINES_MAX, 0),
        "queue_names": _names(queue for queue, _task in found.totals),
        "task_names": _names(task for _queue, task in found.totals),
        "history": link(TaskHour, _("Metrics: days and months")),
    }


def _names(names: Any) -> list[str]:
    return sorted({*names} - {OTHERS})[:NAMES_OFFERED_MAX]


def _line(
    key: tuple[str, str],
    counted: Counted,
    link: Callable[..., SafeString | str],
    period: str,
) -> dict[str, Any]:
    queue, task = key
    # No list can be narrowed to what is not counted by its own names.
    has_list = not {OTHERS, UNKNOWN} & {queue, task}

    def number(model: type[Model], count: int, **narrowed: str) -> SafeString | str:
        text = f"{count:,}"
        if not count or not has_list:
            return text
        return link(model, text, **narrowed, queue=queue, task=task)

    return {
        "task": name(task),
        "queue": name(queue),
        "ended": number(ArchivedJob, counted.ended, age=period),
        "failed": number(Job, counted.failed, state="retrying"),
        "dead": number(DeadLetter, counted.dead, age=period),
        "wait_p95": duration(counted.wait_p95),
        "run_p95": duration(counted.run_p95),
    }

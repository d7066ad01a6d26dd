"""
Task charts: what ended, and how long it waited and ran, as charts.

The overview has them of the last hour, day or week, counted by workers as they settle;
the page of metrics, hour by hour, of months, counted by the pipeline job metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin, limited, may_view
from django_pgqueue.admin.chart import (
    HOUR_SECONDS,
    Chart,
    Period,
    Series,
    local,
    number,
    over_time,
    scale,
    starts,
    time_scale,
    when,
)
from django_pgqueue.admin.keyset_list import (
    PeriodForm,
    period_field,
    queue_field,
    text_field,
)
from django_pgqueue.admin.run_permissions import run_url
from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, PipelineRun, TaskHour
from django_pgqueue.operators.human import duration
from django_pgqueue.pipeline import task_hours
from django_pgqueue.pipeline.task_hours import Sums, together
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import task_spans
from django_pgqueue.queues.task_spans import OTHERS, Counted
from django_pgqueue.tasks import database
from django_pgqueue.worker.tally import UNKNOWN

# Lines of the overview's table; tasks in the table of metrics and among its bars of
# failures; and names that a filter offers.
LINES_MAX, TASKS_SHOWN_MAX, FAILING_SHOWN_MAX, NAMES_OFFERED_MAX = 10, 100, 10, 200

# Throughput is in jobs for each of these.
RATES = {60: _("jobs a minute"), HOUR_SECONDS: _("jobs an hour")}
HIGHEST = {
    60: _("Highest: %(highest)s a minute."),
    HOUR_SECONDS: _("Highest: %(highest)s an hour."),
}


class TaskForm(PeriodForm):
    """What the charts of the overview are narrowed to."""

    # AGES has these keys, too.
    periods = {
        "1h": Period(_("1 hour"), 1),
        "24h": Period(_("24 hours"), 24),
        "7d": Period(_("7 days"), 168),
    }

    period = period_field(periods)
    queue = queue_field(list="pgqueue-queues")
    task = text_field(_("Task"), _("its whole name"), list="pgqueue-tasks")

    def narrow(self, sums: Mapping[tuple[str, str], Any]) -> dict[Any, Any]:
        """Return those *sums* that are asked for, by queue and task."""
        return {
            (queue, task): of_task
            for (queue, task), of_task in sums.items()
            if self.value("queue") in ("", queue) and self.value("task") in ("", task)
        }


class MetricsForm(TaskForm):
    """What the charts of metrics are narrowed to."""

    periods = {
        "24h": Period(_("24 hours"), 24, 1),
        "7d": Period(_("7 days"), 168, 1),
        "30d": Period(_("30 days"), 720, 6),
    }

    period = period_field(periods)

    def query(self, **changed: str) -> str:
        """Return the parameters of this page with some *changed*."""
        values = {name: changed.get(name, self.value(name)) for name in self.fields}
        return urlencode({name: value for name, value in values.items() if value})


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


def charts(spans: Spans, p95: Any = "p95", p50: Any = "p50") -> list[Chart]:
    """Return the charts of throughput, waits and runs; the last with named lines."""
    return [
        _throughput(spans),
        _times(spans, "wait", (p95, p50), _("Wait"), _("from due until start")),
        _times(spans, "run", (p95, p50), _("Run"), _("from start until end")),
    ]


def _throughput(spans: Spans) -> Chart:
    """Return the chart of what ended, well and badly."""
    share = spans.step_seconds / spans.rate_seconds
    parts = [
        Series(name, css, [v if v is None else v / share for v in values])
        for name, css, values in (
            (_("succeeded"), "pgqueue-good", spans.values("succeeded")),
            (_("failed, tried again"), "pgqueue-bad", spans.values("tried_again")),
            (_("dead"), "pgqueue-worst", spans.values("dead")),
        )
    ]
    columns = zip(*(part.values for part in parts), strict=True)
    highs = [sum(value or 0.0 for value in values) for values in columns]
    unit: Any = RATES[spans.rate_seconds]
    if share != 1:
        mean = {"unit": unit, "long": duration(spans.step_seconds)}
        unit = _("%(unit)s, mean of %(long)s") % mean
    told = HIGHEST[spans.rate_seconds] % {"highest": number(max(highs, default=0.0))}
    return over_time(
        spans.moments(),
        spans.step_seconds,
        parts,
        key="throughput",
        title=_("Throughput"),
        unit=unit,
        told=told if highs else "",
        axis=scale(max(highs, default=0.0), is_whole=share == 1),
        text=number,
    )


def _times(
    spans: Spans, measure: str, names: tuple[Any, Any], title: Any, unit: Any
) -> Chart:
    """Return the chart of p95 and p50 of *measure*, "wait" or "run"."""
    parts = [
        Series(name, f"pgqueue-{each}", spans.values(f"{measure}_{each}"))
        for each, name in zip(("p95", "p50"), names, strict=True)
    ]
    known = [value for part in parts for value in part.values if value is not None]
    told: Any = _("Nothing was measured.")
    if known:
        told = _("Highest p95: %(highest)s.") % {"highest": duration(max(known))}
    return over_time(
        spans.moments(),
        spans.step_seconds,
        parts,
        key=measure,
        title=title,
        unit=unit,
        told=told,
        axis=time_scale(max(known, default=0.0)),
        text=duration,
        is_lines=True,
    )


def _names(names: Iterable[str]) -> list[str]:
    return sorted({*names} - {OTHERS})[:NAMES_OFFERED_MAX]


# The overview ------------------------------------------------------------------------


def of_workers(
    cursor: Cursor, request: HttpRequest, clock: datetime, link: Callable[..., str]
) -> Mapping[str, Any]:
    """
    Return what the overview shows of what workers have settled.

    Args:
        cursor: Django's.
        request: Says which period, queue and task.
        clock: The database's time.
        link: Returns a text as a link to a list, for those who may see that.
    """
    form = TaskForm(request.GET)
    since = clock - timedelta(hours=form.chosen.hours)
    queue, task = form.value("queue"), form.value("task")
    found = task_spans.charts(cursor, since, clock, queue=queue, task=task)
    begins = [point.at.timestamp() for point in found.points]
    asked = form.narrow(found.totals)
    most = sorted(asked, key=lambda key: (-asked[key].ended, -asked[key].failed, key))
    return {
        "filter_form": form,
        "charts": charts(Spans(begins, found.points, found.width_seconds, 60)),
        "lines": [
            _counts(key, asked[key], link, form.value("period"))
            for key in most[:LINES_MAX]
        ],
        "lines_left_out": max(len(most) - LINES_MAX, 0),
        "queue_names": _names(queue for queue, _task in found.totals),
        "task_names": _names(task for _queue, task in found.totals),
        "history": link(TaskHour, _("Metrics: days and months")),
    }


def _counts(
    key: tuple[str, str], counted: Counted, link: Callable[..., str], period: str
) -> dict[str, Any]:
    queue, task = key
    # No list can be narrowed to what is not counted by its own names.
    has_list = not {OTHERS, UNKNOWN} & {queue, task}

    def number(model: type[Model], count: int, **narrowed: str) -> str:
        text = f"{count:,}"
        if not count or not has_list:
            return text
        return link(model, text, **narrowed, queue=queue, task=task)

    return {
        "task": task,
        "queue": queue,
        "ended": number(ArchivedJob, counted.ended, age=period),
        "failed": number(Job, counted.failed, state="retrying"),
        "dead": number(DeadLetter, counted.dead, age=period),
        "counted": counted,
    }


# The page of metrics -----------------------------------------------------------------


@admin.register(TaskHour)
class TaskHourAdmin(ActingAdmin):
    """Charts and a table; an hour has no page of its own."""

    change_list_template = "admin/pgqueue/metrics.html"

    def _list(self, request: HttpRequest, extra_context: Any) -> HttpResponse:
        form = MetricsForm(request.GET)
        period = form.chosen
        step_seconds = period.step_hours * HOUR_SECONDS
        with limited(Plans.IN_ORDER):
            with database.cursor() as cursor:
                extent = task_hours.extent(cursor)
                begins = starts(period, extent.now, extent.first)
                summed = task_hours.sums(
                    cursor,
                    since=datetime.fromtimestamp(begins[0], UTC),
                    step_seconds=step_seconds,
                    queue=form.value("queue"),
                    task=form.value("task"),
                )
            latest = self._latest_run(request)
        if summed.since is not None:
            begins = [start for start in begins if start >= summed.since] or begins[-1:]
        sums = [summed.spans.get(start) for start in begins]
        spans = Spans(begins, sums, step_seconds, HOUR_SECONDS)
        asked = form.narrow(summed.tasks)
        tasks = by_task(asked)
        total = together([sums for _task, sums in tasks])
        names = _("p95: the highest of any task"), _("p50: mean of the tasks")
        context = {
            **self.page_context(request),
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "filter_form": form,
            "was_counted": extent.last is not None,
            "last_hour": local(extent.last) if extent.last is not None else None,
            "latest": latest,
            "run_url": run_url(self.admin_site, request, "metrics"),
            "since": local(summed.since) if summed.since is not None else None,
            "rows_max": f"{task_hours.ROWS_MAX:,}",
            "charts": charts(spans, *names) if tasks else [],
            "failing": failing(tasks),
            "hours": [
                (when(moment, step_seconds), of_span)
                for moment, of_span in zip(spans.moments(), sums, strict=True)
                if of_span is not None
            ][::-1],
            "tasks": [
                (task, sums, failed_share(sums), form.query(task=task))
                for task, sums in tasks[:TASKS_SHOWN_MAX]
            ],
            "tasks_left_out": max(len(tasks) - TASKS_SHOWN_MAX, 0),
            "total": total,
            "failed_share": failed_share(total),
            "is_exact": len(asked) == 1 and period.step_hours == 1,
            "queue_names": _names(queue for queue, _task in summed.tasks),
            "task_names": _names(task for _queue, task in summed.tasks),
            **extra_context,
        }
        return TemplateResponse(request, self.change_list_template, context)

    def _latest_run(self, request: HttpRequest) -> Any:
        """Return when metrics has succeeded last, for those who may know of runs."""
        if not may_view(request, PipelineRun):
            return None
        runs = PipelineRun.objects.using(get_settings().database)
        runs = runs.filter(job="metrics", state="succeeded").annotate(clock=Now())
        run: Any = runs.only("finished_at").order_by("-id").first()
        return run and moments.short(run.finished_at, run.clock)

    def change_view(self, request: HttpRequest, *args: Any, **kw: Any) -> HttpResponse:
        """Go to the charts: an hour has no page, and nothing is done with it."""
        there = self.list_url(request)
        return self.answer(request, lambda: HttpResponseRedirect(there))

    history_view = change_view


def by_task(tasks: dict[tuple[str, str], Sums]) -> list[tuple[str, Sums]]:
    """Return what each task amounts to in all its queues; most deliveries first."""
    parts: dict[str, list[Sums]] = {}
    for (_queue, task), sums in tasks.items():
        parts.setdefault(task, []).append(sums)
    found = [(task, together(of_task)) for task, of_task in parts.items()]
    return sorted(found, key=lambda pair: (-pair[1].started, pair[0]))


def failing(tasks: Sequence[tuple[str, Sums]]) -> list[tuple[int, str, Sums]]:
    """Return the tasks that failed most, each with how many deliveries did."""
    bad = [(sums.tried_again + sums.dead, task, sums) for task, sums in tasks]
    worst = sorted(filter(itemgetter(0), bad), key=lambda each: (-each[0], each[1]))
    return worst[:FAILING_SHOWN_MAX]


def failed_share(sums: Sums) -> str:
    """Return the share of deliveries that failed or crashed; "": there were none."""
    bad = sums.failed + sums.crashed
    return f"{bad / sums.started:.1%}" if sums.started else ""

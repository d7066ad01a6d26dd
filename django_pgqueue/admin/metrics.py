"""What each task did, hour by hour: charts of what the pipeline job metrics counted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models.functions import Now
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments
from django_pgqueue.admin.chart import (
    HOUR_SECONDS,
    Period,
    local,
    starts,
    when,
)
from django_pgqueue.admin.keyset_list import (
    PeriodForm,
    period_field,
    queue_field,
    text_field,
)
from django_pgqueue.admin.read_only import Fact, ReadOnlyAdmin, limited
from django_pgqueue.admin.run_permissions import run_url
from django_pgqueue.admin.task_charts import Spans, throughput, times
from django_pgqueue.conf import get_settings
from django_pgqueue.models import PipelineRun, TaskHour
from django_pgqueue.operators.human import duration
from django_pgqueue.pipeline import task_hours
from django_pgqueue.pipeline.task_hours import Summed, Sums, together
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database

# Tasks in the table and among the bars of failures, and names that a filter offers.
TASKS_SHOWN_MAX, FAILING_SHOWN_MAX, NAMES_OFFERED_MAX = 100, 10, 200

PERIODS = {
    "24h": Period(gettext_lazy("24 hours"), 24, 1),
    "7d": Period(gettext_lazy("7 days"), 168, 1),
    "30d": Period(gettext_lazy("30 days"), 720, 6),
}
PERIOD_DEFAULT = "24h"


class MetricsForm(PeriodForm):
    """What the charts are narrowed to."""

    period = period_field(PERIODS)
    queue = queue_field(list="pgqueue-queues")
    task = text_field(
        gettext_lazy("Task"), gettext_lazy("its whole name"), list="pgqueue-tasks"
    )

    @property
    def period_key(self) -> str:
        """Return the key of PERIODS that is asked for."""
        return self.value("period") or PERIOD_DEFAULT

    def query(self, **changed: str) -> str:
        """Return the parameters of this page with some *changed*."""
        values = {name: changed.get(name, self.value(name)) for name in self.fields}
        return urlencode({name: value for name, value in values.items() if value})


@admin.register(TaskHour)
class TaskHourAdmin(ReadOnlyAdmin):
    """Charts and a table; an hour has no page of its own."""

    change_list_template = "admin/pgqueue/metrics.html"

    def _list(self, request: HttpRequest, extra_context: Any) -> HttpResponse:
        form = MetricsForm({"period": PERIOD_DEFAULT, **request.GET.dict()})
        period = PERIODS[form.period_key]
        with limited(Plans.IN_ORDER):
            with database.cursor() as cursor:
                extent = task_hours.extent(cursor)
                begins = starts(period, extent.now, extent.first)
                summed = task_hours.sums(
                    cursor,
                    since=datetime.fromtimestamp(begins[0], UTC),
                    step_seconds=period.step_hours * HOUR_SECONDS,
                    queue=form.value("queue"),
                    task=form.value("task"),
                )
            latest = self._latest_run(request)
        context = {
            **self.page_context(request),
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "filter_form": form,
            "was_counted": extent.last is not None,
            "last_hour": local(extent.last) if extent.last is not None else None,
            "latest": latest,
            "run_url": run_url(self.admin_site, request, "metrics"),
            **shown(form, period, begins, summed),
            **extra_context,
        }
        return TemplateResponse(request, self.change_list_template, context)

    def _latest_run(self, request: HttpRequest) -> dict[str, Any] | None:
        """Return when metrics has succeeded last, for those who may know of runs."""
        if not request.user.has_perm("pgqueue.view_pipelinerun"):
            return None
        runs = PipelineRun.objects.using(get_settings().database)
        run = (
            runs.filter(job="metrics", state="succeeded")
            .annotate(clock=Now())
            .only("finished_at")
            .order_by("-id")
            .first()
        )
        if run is None:
            return None
        return {"when": moments.short(run.finished_at, run.clock)}

    # An hour has no page ---------------------------------------------------------

    def change_view(self, *args: Any, **kwargs: Any) -> HttpResponse:
        """Go to the charts."""
        return self._to_charts(*args, **kwargs)

    def history_view(self, *args: Any, **kwargs: Any) -> HttpResponse:
        """Go to the charts: nothing is done with an hour."""
        return self._to_charts(*args, **kwargs)

    def _to_charts(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        return self.seen(request, lambda: HttpResponseRedirect(self.list_url(request)))

    def facts(self, row: Any) -> list[Fact]:
        """There is no page that shows them."""
        return []


# What is shown ----------------------------------------------------------------------


def shown(
    form: MetricsForm, period: Period, begins: Sequence[int], summed: Summed
) -> dict[str, Any]:
    """Return what the page shows of *summed*."""
    if summed.since is not None:
        begins = [start for start in begins if start >= summed.since] or begins[-1:]
    spans = Spans(
        begins,
        [summed.spans.get(start) for start in begins],
        period.step_hours * HOUR_SECONDS,
        HOUR_SECONDS,
    )
    of_several = {
        "p95": _("p95: the highest of any task"),
        "p50": _("p50: mean of the tasks"),
    }
    asked = {
        (queue, task): sums
        for (queue, task), sums in summed.tasks.items()
        if form.value("queue") in ("", queue) and form.value("task") in ("", task)
    }
    of_tasks = by_task(asked)
    return {
        "since": local(summed.since) if summed.since is not None else None,
        "rows_max": f"{task_hours.ROWS_MAX:,}",
        "step_hours": period.step_hours,
        "charts": [
            throughput(spans),
            times(
                spans,
                "wait",
                title=_("Wait"),
                unit=_("from due until start"),
                **of_several,
            ),
            times(
                spans,
                "run",
                title=_("Run"),
                unit=_("from start until end"),
                **of_several,
            ),
        ]
        if of_tasks
        else [],
        "failing": failing(of_tasks),
        "hours": _hours(spans),
        "tasks": [
            {**_line(task, sums), "query": form.query(task=task)}
            for task, sums in of_tasks[:TASKS_SHOWN_MAX]
        ],
        "tasks_left_out": max(len(of_tasks) - TASKS_SHOWN_MAX, 0),
        "total": _line("", together([sums for _task, sums in of_tasks])),
        "is_exact": len(asked) == 1 and period.step_hours == 1,
        "queue_names": sorted({queue for queue, _t in summed.tasks})[
            :NAMES_OFFERED_MAX
        ],
        "task_names": sorted({task for _q, task in summed.tasks})[:NAMES_OFFERED_MAX],
    }


def by_task(tasks: dict[tuple[str, str], Sums]) -> list[tuple[str, Sums]]:
    """Return what each task amounts to in all its queues; most deliveries first."""
    parts: dict[str, list[Sums]] = {}
    for (_queue, task), sums in tasks.items():
        parts.setdefault(task, []).append(sums)
    found = [(task, together(of_task)) for task, of_task in parts.items()]
    return sorted(found, key=lambda pair: (-pair[1].started, pair[0]))


def failing(tasks: Sequence[tuple[str, Sums]]) -> list[dict[str, Any]]:
    """Return the tasks that failed most, each with the parts of its bar in percent."""
    bad = [(task, sums) for task, sums in tasks if sums.tried_again + sums.dead]
    bad.sort(key=lambda pair: (-(pair[1].tried_again + pair[1].dead), pair[0]))
    highest = max((sums.tried_again + sums.dead for _task, sums in bad), default=1)
    return [
        {
            "task": task,
            "again": f"{sums.tried_again:,}",
            "dead": f"{sums.dead:,}",
            "again_width": f"{sums.tried_again / highest * 100:.2f}%",
            "dead_width": f"{sums.dead / highest * 100:.2f}%",
        }
        for task, sums in bad[:FAILING_SHOWN_MAX]
    ]


def _hours(spans: Spans) -> list[dict[str, Any]]:
    """Return the numbers behind the charts, the latest first."""
    return [
        _line(when(moment, spans.step_seconds), sums)
        for moment, sums in zip(
            reversed(spans.moments()), reversed(spans.sums), strict=True
        )
        if sums is not None
    ]


def _line(label: str, sums: Sums) -> dict[str, Any]:
    """Return a line of a table."""
    bad = sums.failed + sums.crashed
    return {
        "label": label,
        "ended": f"{sums.ended:,}",
        "succeeded": f"{sums.succeeded:,}",
        "again": f"{sums.tried_again:,}",
        "dead": f"{sums.dead:,}",
        "failed_share": f"{bad / sums.started:.1%}" if sums.started else "",
        "wait_p50": duration(sums.wait_p50),
        "wait_p95": duration(sums.wait_p95),
        "run_p50": duration(sums.run_p50),
        "run_p95": duration(sums.run_p95),
        "worker_seconds": duration(sums.worker_seconds),
    }

"""The report: what workers a wait needs, what was promised, what became slow, costs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.chart import Period, local
from django_pgqueue.admin.filter_form import (
    PeriodForm,
    period_field,
    queue_field,
    text_field,
)
from django_pgqueue.admin.time_limit import limited
from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.operators import report
from django_pgqueue.operators.human import duration
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.pipeline.capacity import Need
from django_pgqueue.pipeline.costs import BY, Cost, costs
from django_pgqueue.pipeline.unusual import unusual
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database

PERIODS = {
    "14d": Period(gettext_lazy("14 days"), 14 * 24),
    "30d": Period(gettext_lazy("30 days"), 30 * 24),
    "90d": Period(gettext_lazy("90 days"), 90 * 24),
}
PERIOD_DEFAULT = "14d"

HEADS = {
    "task": gettext_lazy("Task"),
    "tag": gettext_lazy("Tag"),
    "lane": gettext_lazy("Lane"),
}


class ReportForm(PeriodForm):
    """What is told, and of what."""

    period = period_field(PERIODS)
    queue = queue_field()
    wait = text_field(gettext_lazy("Wait to hold"), gettext_lazy("30s, 500ms, 5m"))

    def clean_wait(self) -> timedelta | None:
        """Return the wait, or say what it is to look like."""
        text = self.cleaned_data["wait"]
        try:
            wait = as_timedelta(text, name="wait") if text else None
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        if wait is not None and not wait:
            raise forms.ValidationError(_("Longer than nothing."))
        return wait


def report_context(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows, for the parameters of its URL."""
    form = ReportForm({"period": PERIOD_DEFAULT, **dict(asked.items())})
    period = form.value("period") or PERIOD_DEFAULT
    days, queue = PERIODS[period].hours // 24, form.value("queue")
    settings = get_settings()
    with limited(Plans.IN_ORDER), database.cursor() as cursor:
        return {
            "title": _("Capacity, objectives and costs"),
            "filter_form": form,
            "days": days,
            "capacities": _capacities(
                cursor, settings, days=days, queue=queue, wait=form.given("wait")
            ),
            "budgets": _budgets(cursor, settings, days=days, queue=queue),
            "durations": [
                {
                    **each._asdict(),
                    "jobs": f"{each.jobs:,}",
                    "lately": duration(each.lately),
                    "before": duration(each.before),
                    "limit": duration(each.limit),
                }
                for each in unusual(cursor, days=days, queue=queue)
            ],
            "costs": [
                {
                    "head": HEADS[by],
                    "lines": _lines(
                        costs(cursor, by=by, days=days, queue=queue), settings
                    ),
                }
                for by in BY
            ],
            "has_prices": settings.worker_hour_price is not None,
        }


def _capacities(
    cursor: Cursor, settings: Settings, **asked: Any
) -> list[dict[str, Any]]:
    return [
        {
            "queue": each.queue,
            "wait": duration(each.wait),
            "threads": f"{each.capacity.busiest.threads:,}",
            "usual": f"{each.capacity.usual.threads:,}",
            "p95": duration(each.capacity.busiest.wait_p95),
            "told": report.arithmetic(each.capacity.busiest, each.wait, _when),
        }
        for each in report.capacities(cursor, settings, **asked)
    ]


def _when(need: Need) -> str:
    return _("the busiest hour, %(when)s") % {"when": _minute(need.hour)}


def _minute(moment: datetime) -> str:
    return f"{local(int(moment.timestamp())):%Y-%m-%d %H:%M}"


def _budgets(
    cursor: Cursor, settings: Settings, *, days: int, queue: str
) -> list[dict[str, Any]]:
    return [
        {
            "queue": name,
            "promise": report.promise(budget, settings, name),
            "jobs": f"{budget.jobs:,}",
            "kept": f"{budget.kept:.3%}",
            "left": f"{budget.left:.0%}",
            "burn_rate": f"{budget.burn_rate:.2g}",
            "is_kept": budget.is_kept,
        }
        for name, budget in report.kept(cursor, settings, days=days, queue=queue)
    ]


def _lines(found: list[Cost], settings: Settings) -> list[dict[str, Any]]:
    total = sum(each.worker_seconds for each in found) or 1.0
    price = settings.worker_hour_price
    return [
        {
            "name": each.name,
            "jobs": f"{each.jobs:,}",
            "worker_seconds": duration(each.worker_seconds),
            "share": report.percent(each.worker_seconds / total),
            "price": "" if price is None else f"{each.price(price):,.2f}",
        }
        for each in found
    ]

"""What goes wrong, by kind: the failures that the pipeline job of that name found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.formats import date_format
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.acting import ActingAdmin, column, limited, may_view
from django_pgqueue.admin.chart import (
    HOUR_SECONDS,
    Chart,
    Period,
    Series,
    local,
    number,
    over_time,
    scale,
    sparkline,
    starts,
)
from django_pgqueue.admin.keyset_list import PeriodForm, period_field, text_field
from django_pgqueue.admin.run_permissions import run_url
from django_pgqueue.models import DeadLetter, Failure, Job
from django_pgqueue.pipeline import failures
from django_pgqueue.pipeline.failures import Kind
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database

# Failures on the page, and names of tasks of one in the list.
KINDS_SHOWN_MAX, TASKS_NAMED_MAX = 50, 3


class FailuresForm(PeriodForm):
    """What the list is narrowed to."""

    periods = {
        "24h": Period(_("24 hours"), 24, 1),
        "7d": Period(_("7 days"), 168, 6),
        "30d": Period(_("30 days"), 720, 24),
        "90d": Period(_("90 days"), 2_160, 72),
    }

    period = period_field(periods)
    q = text_field(_("Class, message or place"))
    task = text_field(_("Task"), _("its whole name"))


# The period that the page of one failure draws.
DRAWN = FailuresForm.periods["7d"]


@admin.register(Failure)
class FailureAdmin(ActingAdmin):
    """The failures with the most errors of late, each with its trend and a sample."""

    change_list_template = "admin/pgqueue/failures.html"

    # The list --------------------------------------------------------------------

    def _list(self, request: HttpRequest, extra_context: Any) -> HttpResponse:
        form = FailuresForm(request.GET)
        period = form.chosen
        may_see = payload.may_see(request)
        with limited(Plans.IN_ORDER):
            with database.cursor() as cursor:
                now = failures.clock(cursor)
                spans = starts(period, now)
                since = datetime.fromtimestamp(spans[0], UTC)
                found = failures.recent(
                    cursor,
                    since=since,
                    limit=KINDS_SHOWN_MAX + 1,
                    text=form.value("q"),
                    in_messages=may_see,
                    task=form.value("task"),
                )
                trends = failures.trends(
                    cursor,
                    [kind.fingerprint for kind in found[:KINDS_SHOWN_MAX]],
                    since=since,
                    step_seconds=period.step_hours * HOUR_SECONDS,
                )
            has_any = bool(found) or self.get_queryset(request).exists()
        context = {
            **self.page_context(request),
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "filter_form": form,
            "period": period.label,
            "has_any": has_any,
            "may_see_payload": may_see,
            "view_payload": payload.VIEW_PAYLOAD,
            "run_url": run_url(self.admin_site, request, "failures"),
            "clock": local(now),
            "lines": [
                self._line(
                    request, kind, [trends[kind.fingerprint].get(at, 0) for at in spans]
                )
                for kind in found[:KINDS_SHOWN_MAX]
            ],
            "has_more": len(found) > KINDS_SHOWN_MAX,
            "is_partial": bool(found) and found[0].read >= failures.ROWS_MAX,
            "shown_max": KINDS_SHOWN_MAX,
            "rows_max": f"{failures.ROWS_MAX:,}",
            **extra_context,
        }
        return TemplateResponse(request, self.change_list_template, context)

    def _line(
        self, request: HttpRequest, kind: Kind, counts: Sequence[int]
    ) -> dict[str, Any]:
        tasks = _tasks(kind.tasks)
        numbers = {
            "highest": f"{max(counts):,}",
            "now": f"{counts[-1]:,}",
            "counts": ", ".join(map(str, counts)),
        }
        return {
            "kind": kind,
            "message": payload.without_secrets(kind.message),
            "tasks": ", ".join(tasks[:TASKS_NAMED_MAX]),
            "more": max(len(tasks) - TASKS_NAMED_MAX, 0),
            "bars": sparkline(counts),
            "trend": _("Highest: %(highest)s; now %(now)s. All: %(counts)s.") % numbers,
            "letters_url": self._letters_url(request, kind.fingerprint)
            if kind.dead_letters
            else None,
        }

    # The page of one failure -----------------------------------------------------

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the failure; its texts without secrets, to those who may see them."""
        row = super().get_object(request, object_id, from_field)
        if row is None:
            return None
        may_see = payload.may_see(request)
        for each in ("message", "sample_message", "sample_traceback"):
            text = payload.without_secrets(getattr(row, each))
            setattr(row, each, text if may_see else "")
        return row

    fields = (
        *("error_class", "message", "place", "its_tasks", "errors", "job_count"),
        *("letters", "first_seen", "last_seen", "computed_at", "fingerprint"),
    )
    its_tasks = column(_("tasks"), lambda row: ", ".join(_tasks(row.tasks)))
    errors = column(_("errors"), lambda row: f"{row.count:,}")
    job_count = column(_("jobs"), lambda row: f"{row.jobs:,}")
    letters = column(
        _("dead letters"),
        lambda row: (
            _("%(count)s when it was counted") % {"count": f"{row.dead_letters:,}"}
        ),
    )

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the trend, the sample, and the dead letters of this kind."""
        with database.cursor() as cursor:
            spans = starts(DRAWN, failures.clock(cursor))
            trends = failures.trends(
                cursor,
                [row.fingerprint],
                since=datetime.fromtimestamp(spans[0], UTC),
                step_seconds=DRAWN.step_hours * HOUR_SECONDS,
            )
        counts = [trends[row.fingerprint].get(start, 0) for start in spans]
        return {
            "chart": _chart(spans, counts, DRAWN),
            "letters_url": self._letters_url(request, row.fingerprint),
            "has_sample": True,
            "sample_job": self.link(Job, row.sample_job_id, row.sample_job_id),
            "sample_message": row.sample_message,
            "sample_traceback": row.sample_traceback,
        }

    def _letters_url(self, request: HttpRequest, fingerprint: str) -> str | None:
        """Return the dead letters of a kind, for those who may see the list."""
        if not self.has_page(DeadLetter) or not may_view(request, DeadLetter):
            return None
        there = self._url(DeadLetter, "changelist")
        return f"{there}?{urlencode({'kind': fingerprint})}"


def _chart(spans: Sequence[int], counts: Sequence[int], period: Period) -> Chart:
    series = [Series(_("errors"), "pgqueue-worst", counts)]
    axis = scale(max(counts, default=0), is_whole=True)
    at = [local(start) for start in spans]
    return over_time(
        at,
        period.step_hours * HOUR_SECONDS,
        series,
        key="trend",
        title=_("Errors"),
        unit=_("in each %(hours)d h") % {"hours": period.step_hours},
        told=_("Highest: %(highest)s. All: %(counts)s.")
        % {
            "highest": f"{max(counts):,}",
            "counts": "; ".join(
                f"{date_format(moment, 'j M H:i')}: {count}"
                for moment, count in zip(at, counts, strict=True)
                if count
            ),
        },
        axis=axis,
        text=number,
    )


def _tasks(value: Any) -> list[str]:
    """Return names of tasks, of a column or its text, whatever that holds."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return [str(task) for task in value] if isinstance(value, list) else []

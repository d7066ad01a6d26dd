"""The overview: what needs attention, what waits, runs, failed, and who is stuck."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.contrib.admin import AdminSite
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import (
    MODELS,
    STATEMENT_SECONDS_MAX,
    is_too_slow,
    limited,
    may_view,
)
from django_pgqueue.admin.cells import badge, link_on
from django_pgqueue.admin.metrics import of_workers
from django_pgqueue.admin.subscriptions import group_badge
from django_pgqueue.findings.look import DEAD_LETTERS_MAX
from django_pgqueue.findings.overview import Overview
from django_pgqueue.models import (
    ConsumerGroup,
    DeadLetter,
    Job,
    Queue,
    Schedule,
    Worker,
    Workflow,
)
from django_pgqueue.operators import human
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database
from django_pgqueue.worker.serving import is_alive

# Between two renewals; and after the database took too long.
RENEWED_SECONDS, RENEWED_SECONDS_SLOW = 5, 30

# Lines of each list.
LINES_MAX = 5

STATES = {
    "ready": gettext_lazy("Ready"),
    "running": gettext_lazy("Running"),
    "retrying": gettext_lazy("Retrying"),
    "scheduled": gettext_lazy("Scheduled"),
    "parked": gettext_lazy("Parked"),
}

# Where the rows of a finding are listed, by its check, and what that list is narrowed
# to. Those of one queue are narrowed to that as well.
LISTS: Mapping[str, tuple[type[Model], Mapping[str, str]]] = {
    "unserved": (Job, {"state": "ready"}),
    "oldest_ready": (Job, {"state": "ready"}),
    "suspects": (Job, {"state": "ready"}),
    "paused": (Queue, {}),
    "heartbeats": (Worker, {}),
    "dead_letters": (DeadLetter, {"age": "24h"}),
    "sagas": (Workflow, {"state": "compensating"}),
    "ticks": (Schedule, {"state": "overdue"}),
    "schedules": (Schedule, {"state": "faulty"}),
    "schedule_tasks": (Schedule, {}),
    "groups_unserved": (ConsumerGroup, {}),
    "groups_halted": (ConsumerGroup, {}),
}


# Of a finding: the colour of its badge, and its word.
COLOURS = {"error": "failed", "warning": "stale"}
LABELS = {"error": gettext_lazy("error"), "warning": gettext_lazy("warning")}


def overview(request: HttpRequest) -> dict[str, Any]:
    """Return what the page shows, to those who may see some of it; else nothing."""
    parts = [part for part, model in MODELS.items() if may_view(request, model)]
    if not parts:
        return {}
    site = site_of(request)
    link = partial(_link, request, site)
    try:
        with limited(Plans.IN_ORDER), database.cursor() as cursor:
            now = Overview(cursor, parts, tells_keys=payload.may_see(request))
            ended = None
            if "jobs" in parts:
                ended = of_workers(cursor, request, now.clock, link)
            shown = {name: show(now) for name, show in SHOWN.items() if name in parts}
    except OperationalError as error:
        if not is_too_slow(error):
            raise
        return {
            "is_too_slow": True,
            "seconds": STATEMENT_SECONDS_MAX,
            "live_seconds": RENEWED_SECONDS_SLOW,
        }
    return {
        "admin_site": site,
        "ended": ended,
        "live_seconds": RENEWED_SECONDS,
        "now": now,
        "as_of_text": moments.absolute(now.clock),
        "attention": [
            (
                badge(COLOURS[each.severity], LABELS[each.severity]),
                each,
                _rows_of(each.check, each.about, link),
            )
            for each in now.findings
        ],
        "lines": f":{LINES_MAX}",
        "lines_max": LINES_MAX,
        **shown,
    }


def site_of(request: HttpRequest) -> AdminSite:
    """Return the admin site that answers: a project may have one of its own."""
    assert request.resolver_match is not None
    # Django sets it on every view of a site.
    site: AdminSite = request.resolver_match.func.admin_site  # type: ignore[attr-defined]
    return site


def _link(
    request: HttpRequest,
    site: AdminSite,
    model: type[Model],
    text: object,
    **query: str,
) -> str:
    """Return *text* as a link to a list, if the site has it and the user may see it."""
    if not may_view(request, model):
        return str(text)
    return link_on(site, model, text, **query)


def _rows_of(check: str, queue: str, link: Callable[..., str]) -> str:
    """Return a link to the rows that a finding of *check* is about, if any."""
    model, query = LISTS[check]
    if queue:
        query = {**query, "queue": queue}
    shown = link(model, _("Show"), **query)
    return shown if isinstance(shown, SafeString) else ""


# Parts -------------------------------------------------------------------------------


def _jobs(now: Overview) -> dict[str, Any]:
    """Return how many jobs there are by state, and the oldest one that is ready."""
    waits = [
        (queue.oldest_ready_seconds, queue.name)
        for queue in now.queues
        if queue.oldest_ready_seconds is not None
    ]
    return {
        "oldest": max(waits, default=None),
        "states": [
            (
                state,
                label,
                human.count(
                    sum(getattr(queue, state) for queue in now.queues),
                    is_more=any(queue.is_more(state) for queue in now.queues),
                ),
            )
            for state, label in STATES.items()
        ],
    }


def _dead_letters(now: Overview) -> dict[str, Any]:
    """Return how many jobs gave up in the last hour and day, also by task."""
    tasks: dict[str, Counter[str]] = defaultdict(Counter)
    for each in now.died:
        tasks[each.task].update(hour=each.in_hour, day=each.jobs)
    total = sum(tasks.values(), Counter[str]())
    is_more = total["day"] >= DEAD_LETTERS_MAX
    is_hour = total["hour"] == total["day"]
    return {
        "tasks": sorted(tasks.items(), key=lambda it: (-it[1]["day"], it[0])),
        "day": human.count(total["day"], is_more=is_more),
        "hour": human.count(total["hour"], is_more=is_more and is_hour),
    }


def _workers(now: Overview) -> dict[str, Any]:
    """Return how many workers are alive, and how many are silent."""
    alive = sum(is_alive(row.silent_seconds) for row in now.workers)
    return {"alive": alive, "silent": len(now.workers) - alive}


def _groups(now: Overview) -> dict[str, Any]:
    """Return the groups, those that are furthest behind first, and their lag."""
    most = sorted(
        now.behind, key=lambda it: (-(it[1].seconds or 0.0), -it[1].unread, str(it[0]))
    )
    return {
        "most": [
            (row, behind, group_badge(behind)) for row, behind in most[:LINES_MAX]
        ],
        "seconds": max((each.seconds or 0.0 for _row, each in most), default=0.0),
        "unread": human.count(
            sum(behind.unread for _row, behind in most),
            is_more=any(behind.is_more for _row, behind in most)
            or len(now.groups) > len(most),
        ),
    }


def _schedules(now: Overview) -> dict[str, Any]:
    """Return the schedules that are due next."""
    return {"next": [row for row in now.schedules if row.next_tick is not None]}


SHOWN: Mapping[str, Callable[[Overview], dict[str, Any]]] = {
    "jobs": _jobs,
    "dead_letters": _dead_letters,
    "workers": _workers,
    "groups": _groups,
    "schedules": _schedules,
}

"""Queues and workers: what waits in each queue, and which processes run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.acting import ActingAdmin, column, may_view
from django_pgqueue.admin.acts import Act, Work, pausing
from django_pgqueue.admin.cells import badge, resting
from django_pgqueue.admin.send import SEND
from django_pgqueue.bounds import LANE_BURST_MAX, LANE_CAPACITY_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import raised_as
from django_pgqueue.models import DeadLetter, Job, Queue, Worker
from django_pgqueue.operators import human, workers
from django_pgqueue.operators.lanes import queue_taken, rate_text
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import PERMISSION, QUEUE
from django_pgqueue.options.lanes import Rate
from django_pgqueue.queues.stats import queue_stats
from django_pgqueue.tasks import database
from django_pgqueue.tasks import operate_queues as operate


@admin.register(Worker)
class WorkerAdmin(ActingAdmin):
    """Each worker process and its last heartbeat."""

    keyset = Keyset(("started_at", "name"))
    list_display = (
        *("name", "state", "hostname", "pid", "its_queues", "slots", "heartbeat_at"),
        *("started_at", "version"),
    )
    fields = (
        *("name", "hostname", "pid", "its_queues", "slots", "version", "started_at"),
        *("heartbeat_at", "leader_until"),
    )
    list_reads = (
        *("hostname", "pid", "queues", "threads", "async_slots", "version"),
        *("started_at", "heartbeat_at", "leader_until"),
    )

    @admin.display(description=_("state"))
    def state(self, row: Any) -> SafeString:
        """Show whether it was heard of lately, and whether it leads."""
        word = workers.state_word(row)
        if workers.is_silent(row):
            return badge("dead", word)
        return badge("running" if workers.leads(row) else "ready", word)

    heading = state
    its_queues = column(_("queues"), workers.queues)
    slots = column(_("threads"), workers.slots)

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the jobs that it holds, for those who may see jobs."""
        if not may_view(request, Job):
            return {}
        most = workers.HELD_JOBS_MAX
        with database.cursor() as cursor:
            held = workers.held(cursor, [row.name], limit=most + 1)
        return {
            "has_held": True,
            "held": held[:most],
            "held_more": len(held) > most,
        }


RATE_CHARACTERS_MAX = 30


class LimitForm(forms.Form):
    """How many jobs at a time, and in a time."""

    jobs = forms.IntegerField(
        label=_("Jobs at a time"),
        min_value=1,
        max_value=LANE_CAPACITY_MAX,
        required=False,
        help_text=_("Empty: what the settings say."),
    )
    rate = forms.CharField(
        label=_("Rate"),
        max_length=RATE_CHARACTERS_MAX,
        required=False,
        help_text=_("Such as 100/m. Empty: what the settings say."),
    )
    burst = forms.IntegerField(
        label=_("Burst"),
        min_value=1,
        max_value=LANE_BURST_MAX,
        required=False,
        help_text=_("Of the rate, how many may start at once. Empty: 1."),
    )

    def clean_rate(self) -> str:
        """Refuse what is no rate."""
        text = str(self.cleaned_data["rate"])
        if text:
            with raised_as(ValidationError):
                Rate(text)
        return text

    def clean(self) -> None:
        """Refuse a burst of nothing."""
        super().clean()
        if self.cleaned_data.get("burst") and not self.data.get("rate"):
            self.add_error("burst", _("It needs a rate beside it."))


def _set_limit(work: Work) -> list[Any]:
    jobs, text = work.data["jobs"], work.data["rate"]
    rate = Rate(text, work.data["burst"] or 1) if text else None
    # What the log entry says.
    work.data["jobs"] = "-" if jobs is None else f"{jobs:,}"
    work.data["rate"] = "-" if rate is None else f"{text} ({rate.burst})"
    done = []
    for key, row in work.rows.items():
        if row.kind == "pull":
            problem = _("%(queue)s is a pull queue: no worker claims from it.")
            work.problems.append(problem % {"queue": row.name})
            continue
        is_done = operate.set_concurrency(row.name, jobs)
        if operate.set_rate(row.name, rate) or is_done:
            done.append(key)
    return [done]


def _said(row: Any) -> dict[str, Any]:
    has_rate = row.rate_spacing is not None
    return {
        "jobs": row.concurrency,
        "rate": rate_text(row.rate_spacing) if has_rate else "",
        "burst": row.rate_burst if has_rate else None,
    }


LIMIT = Act(
    name="limit",
    permissions=(PERMISSION,),
    label=_("Set limit"),
    help=_("So many jobs at a time and in a time, whatever settings say."),
    run=_set_limit,
    done=_("%(count)d changed."),
    entry=_("Limit: at a time %(jobs)s, rate %(rate)s."),
    left=_("%(count)d had this limit already."),
    order="name",
    form=LimitForm,
    said=_said,
    offered=lambda row: row.kind != "pull",
    warning=_(
        "So many of its jobs are claimed, on all workers together, until somebody says "
        "otherwise. What runs goes on. Both limits are set: empty fields go back to "
        "what the settings say."
    ),
)


# How far jobs are counted, per queue and state.
COUNTED_JOBS_MAX = 10_000

# What is in a queue.
KINDS = {"tasks": _("jobs of tasks"), "pull": _("messages to receive")}


def _badge(queue: Queue) -> SafeString:
    is_open = queue.paused_at is None
    state = badge("ready", _("open")) if is_open else badge("retrying", _("paused"))
    if queue.kind != "pull":
        return state
    return format_html("{} {}", badge("pull", _("pull")), state)


def _count(label: Any, state: str) -> Callable[[Any, Any], str]:
    """Return a column with a count that leads to the jobs it counts."""

    @admin.display(description=label)
    def shown(page: QueueAdmin, row: Any) -> str:
        return page._linked(row, state)

    return shown


@admin.register(Queue)
class QueueAdmin(ActingAdmin):
    """Each queue: its depth, and whether it is paused."""

    keyset = Keyset(("created_at", "name"))
    acts = (*pausing(QUEUE), LIMIT, SEND)
    named_by = (
        *("kind", "paused_at", "paused_by", "pause_reason"),
        *("concurrency", "rate_spacing", "rate_burst"),
    )
    list_display = (
        *("name", "state", "ready", "oldest", "running", "retrying", "scheduled"),
        *("parked", "dead", "held", "limit"),
    )
    fields = (
        *("name", "kind_word", "visibility", "receives", "paused_at", "paused_until"),
        *("paused_by", "pause_reason", "ready", "oldest", "running", "retrying"),
        *("scheduled", "parked", "dead", "held", "limit", "created_at"),
    )
    list_reads = (
        *("created_at", "kind", "paused_at", "paused_until", "paused_by"),
        "pause_reason",
    )

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add to each queue how much waits in it."""
        names, limits = [row.name for row in rows], get_settings().depths_max
        with database.cursor() as cursor:
            found = queue_stats(cursor, names, COUNTED_JOBS_MAX, limits)
        stats = {each.name: each for each in found}
        for row in rows:
            row.stats = stats[row.name]
            if not row.stats.is_paused:
                # One that has ended by itself is none.
                row.paused_at = None
        return rows

    heading = column(_("state"), _badge)

    @admin.display(description=_("state"))
    def state(self, queue: Any) -> SafeString:
        """Show whether workers take jobs from it; of a pause when, who and why."""
        return resting(_badge(queue), queue, QUEUE)

    ready = _count(_("ready"), "ready")
    oldest = column(_("oldest"), lambda row: human.age(row.stats.oldest_ready_seconds))
    running = _count(_("running"), "running")
    retrying = _count(_("retrying"), "retrying")
    scheduled = _count(_("scheduled"), "scheduled")
    parked = _count(_("parked"), "parked")
    dead = _count(_("dead"), "dead")

    # Not depth, which is a field of the model.
    held = column(
        _("depth"),
        lambda row: (
            row.stats.depth_max
            and human.share(row.stats.depth or 0, row.stats.depth_max)
        ),
    )
    limit = column(
        _("limit"), lambda row: queue_taken(row.stats, get_settings().queue_limits)
    )
    kind_word = column(_("kind"), lambda row: KINDS.get(row.kind, row.kind))
    # As sql/pull_queue.sql has them.
    visibility = column(
        _("a message is its receiver's for"),
        lambda row: _of_messages(row, human.duration, row.visibility_seconds, 30),
    )
    receives = column(
        _("receives of a message, at most"),
        lambda row: _of_messages(row, human.count, row.max_receives, 5),
    )

    def _linked(self, row: Any, state: str) -> str:
        """Return a count as a link to the jobs that it counts; none has no link."""
        number = getattr(row.stats, state)
        text = human.count(number, is_more=row.stats.is_more(state))
        if text == "0":
            return text
        query = {"queue": row.name}
        if state != "dead":
            query["state"] = state
        model = DeadLetter if state == "dead" else Job
        return self.link(model, text, **query)


def _of_messages(
    row: Any, text: Callable[[Any], str], value: float | None, default: float
) -> str | None:
    """Return what holds for the messages of a pull queue; None: it is none."""
    if row.kind != "pull":
        return None
    return text(default if value is None else value)

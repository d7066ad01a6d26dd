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
from django.utils.translation import gettext_lazy, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Outcome, Work, pausing
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.listeners import resting
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.admin.send import SEND
from django_pgqueue.bounds import LANE_BURST_MAX, LANE_CAPACITY_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.models import DeadLetter, Job, Queue, Worker
from django_pgqueue.operators import human, workers
from django_pgqueue.operators.lanes import queue_taken as taken
from django_pgqueue.operators.lanes import rate_text
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import PERMISSION, QUEUE
from django_pgqueue.options.lanes import Rate
from django_pgqueue.queues.stats import QueueStats, queue_stats
from django_pgqueue.tasks import database
from django_pgqueue.tasks import operate_queues as operate


@admin.register(Worker)
class WorkerAdmin(ActingAdmin):
    """Each worker process and its last heartbeat."""

    keyset = Keyset(("started_at", "name"))
    list_display = (
        *("title", "state", "host", "process", "its_queues", "slots", "heartbeat"),
        *("started", "version"),
    )
    list_reads = (
        *("hostname", "pid", "queues", "threads", "async_slots", "version"),
        *("started_at", "heartbeat_at", "leader_until"),
    )

    title = column(_("name"), lambda row: name(row.name))

    @admin.display(description=_("state"))
    def state(self, worker: Any) -> SafeString:
        """Show whether it was heard of lately, and whether it leads."""
        word = workers.state_word(worker)
        if workers.is_silent(worker):
            return badge("dead", word)
        return badge("running" if workers.leads(worker) else "ready", word)

    host = column(_("host"), lambda row: name(row.hostname))
    process = column(_("process"), lambda row: str(row.pid))

    its_queues = column(_("queues"), workers.queues)
    slots = column(_("threads"), workers.slots)
    heartbeat = column(
        _("heartbeat"), lambda row: moments.short(row.heartbeat_at, row.clock)
    )
    started = column(_("started"), lambda row: moments.short(row.started_at, row.clock))

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the jobs that it holds, for those who may see jobs."""
        if not request.user.has_perm("pgqueue.view_job"):
            return {}
        most = workers.HELD_JOBS_MAX
        with database.cursor() as cursor:
            held = workers.held(cursor, [row.name], limit=most + 1)
        return {
            "has_held": True,
            "held": [
                (
                    self._url(Job, "change", job.id),
                    f"{job.task} #{job.id}",
                    job.queue,
                    moments.since(job.leased_at, row.clock),
                )
                for job in held[:most]
            ],
            "held_more": len(held) > most,
        }

    def heading(self, row: Worker) -> str:
        """Show the state beside the title."""
        return self.state(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say where the worker runs, and what."""
        return [
            (_("Name"), row.name),
            (_("Host"), row.hostname),
            (_("Process id"), str(row.pid)),
            (_("Queues"), workers.queues(row)),
            (_("Threads"), workers.slots(row)),
            (_("Version"), row.version),
            (_("Started"), moments.full(row.started_at, row.clock)),
            (_("Heartbeat"), moments.full(row.heartbeat_at, row.clock)),
            (_("Leads until"), moments.full(row.leader_until, row.clock)),
        ]


RATE_CHARACTERS_MAX = 30


class LimitForm(forms.Form):
    """How many jobs at a time, and in a time."""

    jobs = forms.IntegerField(
        label=gettext_lazy("Jobs at a time"),
        min_value=1,
        max_value=LANE_CAPACITY_MAX,
        required=False,
        help_text=gettext_lazy("Empty: what the settings say."),
    )
    rate = forms.CharField(
        label=gettext_lazy("Rate"),
        max_length=RATE_CHARACTERS_MAX,
        required=False,
        help_text=gettext_lazy("Such as 100/m. Empty: what the settings say."),
    )
    burst = forms.IntegerField(
        label=gettext_lazy("Burst"),
        min_value=1,
        max_value=LANE_BURST_MAX,
        required=False,
        help_text=gettext_lazy("Of the rate, how many may start at once. Empty: 1."),
    )

    def clean_rate(self) -> str:
        """Refuse what is no rate."""
        text = str(self.cleaned_data["rate"])
        if text:
            try:
                Rate(text)
            except DeclarationError as error:
                raise ValidationError(str(error)) from None
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
    label=gettext_lazy("Set limit"),
    help=gettext_lazy("So many jobs at a time and in a time, whatever settings say."),
    run=_set_limit,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d queue has another limit.",
                "%(count)d queues have another limit.",
                "count",
            ),
            gettext_lazy("Limit: at a time %(jobs)s, rate %(rate)s."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had this limit already.",
        "%(count)d had this limit already.",
        "count",
    ),
    order="name",
    form=LimitForm,
    said=_said,
    offered=lambda row: row.kind != "pull",
    warning=gettext_lazy(
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


def _count(label: Any, state: str) -> Callable[[Any, Any], SafeString | str]:
    """Return a column with a count that leads to the jobs it counts."""

    @admin.display(description=label)
    def shown(page: QueueAdmin, row: Any) -> SafeString | str:
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
        *("title", "state", "ready", "oldest", "running", "retrying", "scheduled"),
        *("parked", "dead", "held", "limit"),
    )
    list_reads = (
        *(
            "created_at",
            "kind",
            "paused_at",
            "paused_until",
            "paused_by",
            "pause_reason",
        ),
    )

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add to each queue how much waits in it."""
        stats = read_stats([row.name for row in rows])
        for row in rows:
            row.stats = stats[row.name]
            if not row.stats.is_paused:
                # One that has ended by itself is none.
                row.paused_at = None
        return rows

    title = column(_("name"), lambda row: name(row.name))

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
    held = column(_("depth"), lambda row: depth_of(row.stats))

    limit = column(_("limit"), lambda row: limit_of(row.stats))

    def heading(self, row: Queue) -> str:
        """Show the state beside the title."""
        return _badge(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say how much waits, and what an operator said about the queue."""
        return [
            (_("Name"), row.name),
            (_("Kind"), KINDS.get(row.kind, row.kind)),
            *_of_messages(row),
            (_("Paused"), moments.full(row.paused_at, row.clock)),
            (_("Paused until"), moments.full(row.paused_until, row.clock)),
            (_("Paused by"), row.paused_by),
            (_("Pause reason"), row.pause_reason),
            (_("Ready"), self._linked(row, "ready")),
            (_("The oldest has been due for"), self.oldest(row)),
            (_("Running"), self._linked(row, "running")),
            (_("Retrying"), self._linked(row, "retrying")),
            (_("Scheduled"), self._linked(row, "scheduled")),
            (_("Parked"), self._linked(row, "parked")),
            (_("Dead letters"), self._linked(row, "dead")),
            (_("Live jobs, of those that it may hold"), depth_of(row.stats)),
            (_("Limit, on all workers together"), limit_of(row.stats)),
            (_("Known since"), moments.full(row.created_at, row.clock)),
        ]

    def _linked(self, row: Any, state: str) -> SafeString | str:
        """Return a count as a link to the jobs that it counts; none has no link."""
        text = counted(row.stats, state)
        if text == "0":
            return text
        query = {"queue": row.name}
        if state != "dead":
            query["state"] = state
        model = DeadLetter if state == "dead" else Job
        return self.link(model, text, **query)


def _of_messages(row: Any) -> list[Fact]:
    """Say what holds for the messages of a pull queue."""
    if row.kind != "pull":
        return []
    # As sql/pull_queue.sql has it.
    seconds = 30 if row.visibility_seconds is None else row.visibility_seconds
    most = 5 if row.max_receives is None else row.max_receives
    return [
        (_("A message is its receiver's for"), human.duration(seconds)),
        (_("Receives of a message, at most"), f"{most:,}"),
    ]


def read_stats(names: list[str]) -> dict[str, QueueStats]:
    """Return the stats of these queues, by name."""
    with database.cursor() as cursor:
        limits = get_settings().depths_max
        found = queue_stats(cursor, names, COUNTED_JOBS_MAX, limits)
    return {stats.name: stats for stats in found}


def depth_of(stats: QueueStats) -> str:
    """Return how many jobs a queue holds of those that it may; "": it has no limit."""
    if stats.depth is None or stats.depth_max is None:
        return ""
    return human.share(stats.depth, stats.depth_max)


def limit_of(stats: QueueStats) -> str:
    """Return how much of its limit a queue has taken; "": it has none."""
    return taken(stats, get_settings().queue_limits)


def counted(stats: QueueStats, state: str) -> str:
    """Return a count as text; "10,000+" where it was counted no further."""
    return human.count(getattr(stats, state), is_more=stats.is_more(state))

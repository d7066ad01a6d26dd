"""Schedules: when each is due, what came of its last ticks, and what was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import DELETION
from django.db.models import Case, Model, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work, may, on_each, pausing
from django_pgqueue.admin.cells import Note, badge, name
from django_pgqueue.admin.keyset_list import FilterForm, choice_field, text_field
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.admin.schedule_edit import ADD, ScheduleForms, drift
from django_pgqueue.admin.schedule_form import preview, reckoned, zone_of
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Schedule
from django_pgqueue.models.schedule import TickOutcome
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import Meaning, equal, part_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import SCHEDULE
from django_pgqueue.operators.workers import START
from django_pgqueue.schedules import operate, ticks
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.ticks import TickRow
from django_pgqueue.schedules.timetables import OVERDUE, RESTS
from django_pgqueue.tasks import database
from django_pgqueue.timetable.catch_up import MISSED_MAX


def _run_now(work: Work) -> list[Any]:
    """Enqueue the jobs of schedules, publish their messages."""
    jobs: dict[int, list[int]] = {}
    published: dict[int, list[int]] = {}
    held = []
    for key, row in work.rows.items():
        issued = operate.run_now(row.name, by=work.by)
        if issued is None:
            continue
        if issued.message_id is not None:
            published[key] = [issued.message_id]
        elif issued.job_id is not None:
            jobs[key] = [issued.job_id]
        else:
            held.append(key)
    return [jobs, published, held]


RUN_NOW = Act(
    name="run-now",
    permissions=("run_schedule",),
    label=gettext_lazy("Run now"),
    help=gettext_lazy("Does once what its ticks do; those go on as they were."),
    run=_run_now,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d job was enqueued: %(names)s.",
                "%(count)d jobs were enqueued: %(names)s.",
                "count",
            ),
            gettext_lazy("Run now: job %(names)s."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d message was published: %(names)s.",
                "%(count)d messages were published: %(names)s.",
                "count",
            ),
            gettext_lazy("Run now: message %(names)s."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d was not: another job has the dedup key of its task.",
                "%(count)d were not: other jobs have the dedup keys of their tasks.",
                "count",
            ),
            is_left=True,
        ),
    ],
    left=ngettext_lazy("%(count)d has gone.", "%(count)d have gone.", "count"),
    form=Confirm,
    warning=gettext_lazy(
        "Its job is enqueued, or its message published, now, also while it is paused "
        "or an earlier job runs. Its ticks go on as they were."
    ),
)

RESET = Act(
    name="reset",
    permissions=("change_schedule",),
    label=gettext_lazy("Reset to code"),
    help=gettext_lazy("Takes back what was changed here."),
    run=on_each(lambda row, work: operate.reset(row.name)),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d schedule is as code declares it.",
                "%(count)d schedules are as code declares them.",
                "count",
            ),
            gettext_lazy("Reset to code."),
        )
    ],
    left=ngettext_lazy(
        "%(count)d was not changed here.",
        "%(count)d were not changed here.",
        "count",
    ),
    order="name",
    form=Confirm,
    warning=gettext_lazy(
        "What was changed here is taken back: all is as code declares it. Ticks that "
        "another timetable would have had are not made up for."
    ),
    offered=lambda row: row.overridden_at is not None,
)

# Not "delete": that is the form of Django's, which is closed.
DELETE = Act(
    name="remove",
    permissions=("delete_schedule",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For good, with the list of its ticks."),
    run=on_each(lambda row, work: operate.delete(row.name)),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d schedule was deleted.",
                "%(count)d schedules were deleted.",
                "count",
            ),
            gettext_lazy("Deleted."),
            DELETION,
        )
    ],
    left=ngettext_lazy(
        "%(count)d stays: code declares it. Pause it instead.",
        "%(count)d stay: code declares them. Pause them instead.",
        "count",
    ),
    order="name",
    form=Confirm,
    warning=gettext_lazy(
        "It is deleted for good, with the list of its ticks. Jobs that it has enqueued "
        "go on. What code declares stays."
    ),
    offered=lambda row: row.source == "user" or row.withdrawn_at is not None,
    is_grave=True,
)


# Ticks that the page of a schedule lists, the latest.
LATEST_TICKS = 20

STATES = [
    ("active", gettext_lazy("active")),
    ("overdue", gettext_lazy("overdue")),
    ("paused", gettext_lazy("paused")),
    ("withdrawn", gettext_lazy("withdrawn")),
    ("faulty", gettext_lazy("faulty")),
]
LABELS = dict(STATES)

CHANGED = "changed"
SOURCES = [
    ("code", gettext_lazy("code")),
    ("user", gettext_lazy("user")),
    (CHANGED, gettext_lazy("code, changed here")),
]


def shown_state() -> Case:
    """Return the state of a row, as state_of() has it, by the database's clock."""
    return Case(
        *(
            When(**{f"{column}__isnull": False}, then=Value(state))
            for state, column in RESTS
        ),
        When(next_tick__lt=Now() - OVERDUE, then=Value("overdue")),
        default=Value("active"),
        output_field=TextField(),
    )


class ScheduleFilters(FilterForm):
    """Parts of names, a state and a source."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
        "q": part_of("name"),
        "task": part_of("task", "message_name"),
        "state": equal("shown_state"),
        "source": lambda source: (
            Q(overridden_at__isnull=False) if source == CHANGED else Q(source=source)
        ),
    }

    task = text_field(gettext_lazy("Task"), gettext_lazy("part of its name"))
    state = choice_field(gettext_lazy("State"), STATES)
    source = choice_field(gettext_lazy("Source"), SOURCES)


@dataclass(frozen=True, slots=True)
class Run:
    """A tick that was dealt with, as the page of its schedule shows it."""

    due: Any
    job: Any
    took: str
    late: str
    missed: str
    asked_by: str


@admin.register(Schedule)
class ScheduleAdmin(ScheduleForms):
    """Each schedule, by name."""

    keyset = Keyset(("name",), is_by_time=False)
    list_per_page = 100
    filter_form = ScheduleFilters
    computed: ClassVar[Mapping[str, Any]] = {"shown_state": shown_state()}
    hidden_columns = ("declared",)
    acts = (RUN_NOW, *pausing(SCHEDULE), RESET, DELETE)
    named_by = (
        *("name", "source", "paused_at", "paused_by", "pause_reason"),
        *("withdrawn_at", "overridden_at"),
    )
    payload_columns = ("args", "kwargs", "message_payload")
    list_display = ("title", "when", "state", "next_due", "last_due", "task_name")
    list_reads = (
        *("name", "source", "task", "expression", "every_seconds", "tz"),
        *("paused_at", "paused_by", "pause_reason", "withdrawn_at", "overridden_at"),
        *("ticks_from", "last_tick", "next_tick", "error", "message_name"),
    )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may look: to be allowed to change is not enough."""
        return may(request, "view_schedule")

    # What is read ----------------------------------------------------------------

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add to each schedule its last tick."""
        found = _latest([row.pk for row in rows], 1)
        latest = {tick.schedule_id: tick for tick in found}
        for row in rows:
            row.latest = latest.get(row.pk)
        return rows

    def detailed(self, row: Any) -> Any:
        """Leave it: its page reads more ticks."""
        return row

    def detail_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Add what code declares as text, and what the schedule has instead."""
        rows = super().detail_rows(request)
        shown: QuerySet[Any] = rows.annotate(
            declared_text=payload.as_text("declared"),
            args_raw=payload.as_text("args"),
            kwargs_raw=payload.as_text("kwargs"),
            message_payload_raw=payload.as_text("message_payload"),
        )
        return shown

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Say that nobody issues ticks, and lead to the form of a new schedule."""
        # By the index of next ticks.
        late = self.get_queryset(request).filter(
            paused_at__isnull=True,
            withdrawn_at__isnull=True,
            error__isnull=True,
            next_tick__lt=Now() - OVERDUE,
        )
        tools = []
        if may(request, *ADD):
            tools.append((self._url(self.model, "new"), _("New schedule…")))
        return {
            "tools": tools,
            "notes": [_overdue()] if late.exists() else [],
        }

    # The list --------------------------------------------------------------------

    title = column(gettext_lazy("name"), lambda row: name(row.name))

    @admin.display(description=gettext_lazy("task"))
    def task_name(self, row: Any) -> str:
        """Show the task, where the schedule is not called as that, or the message."""
        if row.message_name is not None:
            return format_html("{} {}", _("publishes"), name(row.message_name))
        return "" if row.task == row.name else name(row.task)

    when = column(
        gettext_lazy("when"),
        lambda row: format_html("<code>{}</code>", human.timetable(row)),
    )

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> SafeString:
        """Show state and source; of a pause who, when and why; of a fault what."""
        shown = _badges(row)
        if row.shown_state == "faulty":
            return format_html(
                '{}<br><span class="quiet pgqueue-text">{}</span>', shown, row.error
            )
        if row.paused_at is None:
            return shown
        return format_html(
            '{}<br><span class="quiet pgqueue-text">{}{} {} {}{}</span>',
            shown,
            # A badge of another state says nothing of the pause.
            "" if row.shown_state == "paused" else _("paused") + " ",
            moments.short(row.paused_at, row.clock),
            _("by"),
            row.paused_by or "?",
            f": {row.pause_reason}" if row.pause_reason else "",
        )

    @admin.display(description=gettext_lazy("next"))
    def next_due(self, row: Any) -> SafeString | str:
        """Show when it is due next: in how long, and by its own clock."""
        if row.shown_state not in ("active", "overdue"):
            return ""
        tick = row.next_tick or reckoned(row)
        return "" if tick is None else self._moment(row, human.in_utc(tick))

    @admin.display(description=gettext_lazy("last"))
    def last_due(self, row: Any) -> SafeString | str:
        """Show its last tick, with what became of its job."""
        if row.latest is None:
            return ""
        return format_html(
            "{} {}",
            self._job(row.latest),
            moments.short(row.latest.due_at, row.clock),
        )

    # The page of one schedule ----------------------------------------------------

    change_form_template = "admin/pgqueue/schedule.html"

    def heading(self, row: Any) -> SafeString:
        """Show state and source beside the title."""
        return _badges(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say when it is due, what it runs, and who did what to it."""
        clock = row.clock
        return [
            (_("Cron expression"), _code(row.expression)),
            (
                _("Period"),
                f"{row.every_seconds:,} s" if row.every_seconds is not None else None,
            ),
            (_("Time zone"), row.tz),
            *_subject(row),
            (_("Catch up"), _catch_up(row.catch_up)),
            (_("Overlap"), None if row.message_name else OVERLAPS[row.overlap]),
            (
                _("Jitter"),
                _("up to %(time)s") % {"time": human.duration(row.jitter_seconds)}
                if row.jitter_seconds
                else None,
            ),
            (_("Error"), row.error),
            (_("Paused"), moments.full(row.paused_at, clock)),
            (_("Paused by"), row.paused_by),
            (_("Pause reason"), row.pause_reason),
            (_("Changed here"), moments.full(row.overridden_at, clock)),
            (_("Changed by"), row.overridden_by),
            (_("Last tick"), moments.full(row.last_tick, clock)),
            (_("Made"), moments.full(row.created_at, clock)),
            (_("Made by"), row.created_by),
            (_("Declared last"), moments.full(row.last_declared_at, clock)),
            (_("Withdrawn"), moments.full(row.withdrawn_at, clock)),
        ]

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the next ticks, the last ones, and what differs from the code."""
        may_see = payload.may_see(request)
        latest = _latest([row.pk], LATEST_TICKS)
        has_seconds = any(tick.due_at.second for tick in latest)
        return {
            "media": self.media,
            "notes": _notes(row),
            "preview": preview(row, row.clock),
            "rests": row.shown_state in ("paused", "withdrawn"),
            "runs": [self._run(row, tick, has_seconds) for tick in latest],
            "drift": drift(row, may_see=may_see),
        }

    def carried(self, row: Any) -> tuple[str, ...]:
        """Return what its job or its message carries: arguments, or a payload."""
        if row.message_name is not None:
            return ("message_payload",)
        return ("args", "kwargs")

    def _run(self, row: Any, tick: TickRow, has_seconds: bool) -> Run:
        late = (tick.ticked_at - tick.due_at).total_seconds()
        return Run(
            due=self._moment(row, human.in_utc(tick.due_at), has_seconds),
            job=self._job(tick),
            took=human.duration(tick.ran_seconds),
            late=human.duration(late) if late >= 1 and not tick.asked_by else "",
            missed=_missed(tick.missed),
            asked_by=tick.asked_by or "",
        )

    def _moment(self, row: Any, tick: Any, has_seconds: bool = False) -> SafeString:
        """Return a moment of a schedule: relative, and by its own clock."""
        return format_html(
            '<time datetime="{}">{}</time><br>'
            '<span class="quiet pgqueue-clock">{}</span>',
            tick.isoformat(),
            human.distance(tick, human.in_utc(row.clock)),
            moments.by_clock(tick, zone_of(row), has_seconds=has_seconds),
        )

    def _job(self, tick: TickRow) -> SafeString:
        """Return the state of a tick's job, as a link; or why there is none."""
        if tick.message_id is not None:
            return format_html(
                "{} {}",
                badge(tick.outcome, TickOutcome(tick.outcome).label),
                _("message %(message)s") % {"message": tick.message_id},
            )
        if tick.job_id is None:
            return badge(tick.outcome, TickOutcome(tick.outcome).label)
        if tick.state is None:
            return format_html(
                '<span class="quiet">{}</span>',
                _("job %(job)s, no longer kept") % {"job": tick.job_id},
            )
        model: type[Model] = PAGES.get(tick.state, Job)
        if not self.has_page(model):
            return badge(tick.state)
        return format_html(
            '<a href="{}" title="{}">{}</a>',
            self._url(model, "change", tick.job_id),
            _("job %(job)s") % {"job": tick.job_id},
            badge(tick.state),
        )


PAGES: dict[str, type[Model]] = {
    **dict.fromkeys(("succeeded", "cancelled", "expired"), ArchivedJob),
    "dead": DeadLetter,
}

OVERLAPS = {
    "skip": gettext_lazy("skip a tick while a job of an earlier one is not done"),
    "queue": gettext_lazy("queue a job at each tick, whatever runs"),
}


def _subject(row: Any) -> list[Fact]:
    """Return what a schedule does: which task it enqueues, or what it publishes."""
    if row.message_name is not None:
        return [(_("Publishes"), row.message_name)]
    return [
        (_("Task"), row.task),
        (_("Queue"), row.queue or _("the task's")),
        (
            _("Priority"),
            _("the task's") if row.priority is None else str(row.priority),
        ),
    ]


def _badges(row: Any) -> SafeString:
    """Return the state of a schedule, who made it, and whether it was changed here."""
    said = [
        badge(row.shown_state, LABELS[row.shown_state]),
        badge(f"of-{row.source}", dict(SOURCES)[row.source]),
    ]
    if row.overridden_at is not None:
        said.append(badge("changed", _("changed here")))
    return format_html_join(" ", "{}", ((each,) for each in said))


def _catch_up(policy: str) -> str:
    if policy == "skip":
        return _("skip missed ticks")
    if policy == "one":
        return _("make up for the latest missed tick")
    return _("%(policy)s: make up for so many of the latest missed ticks") % {
        "policy": policy
    }


def _missed(count: int) -> str:
    if not count:
        return ""
    return human.count(count, is_more=count >= MISSED_MAX)


def _code(text: str | None) -> SafeString | None:
    return None if text is None else format_html("<code>{}</code>", text)


def _latest(keys: list[int], limit: int) -> list[TickRow]:
    with database.cursor() as cursor:
        return ticks.latest(cursor, keys, limit)


def _overdue() -> Note:
    return Note(
        _("Ticks are overdue: no living worker issues them. Start one:"),
        START,
    )


def _notes(row: Any) -> list[Note]:
    """Return what somebody should know about a schedule first."""
    notes = []
    if row.shown_state == "overdue":
        notes.append(_overdue())
    if row.shown_state == "withdrawn":
        text = _(
            "The code that was migrated last does not declare it any more, so it has "
            "no ticks. It goes on when it is declared in a migration again; if that is "
            "not to be, delete it."
        )
        notes.append(Note(text))
    if row.source == "user" and row.name in {each.name for each in declared()}:
        text = _(
            "Code declares a schedule of this name. It has no ticks while this one, "
            "made by a user, is there."
        )
        notes.append(Note(text))
    return notes

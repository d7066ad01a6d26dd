"""Schedules: when each is due, what came of its last ticks, and what was changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, DELETION
from django.db.models import Case, Model, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import ActingAdmin, column, limited
from django_pgqueue.admin.acts import (
    Act,
    Confirm,
    Outcome,
    Work,
    log,
    may,
    on_each,
    pausing,
    who,
)
from django_pgqueue.admin.cells import badge, name, resting
from django_pgqueue.admin.edit import NEEDS_PAYLOAD, VIEW_PAYLOAD, signature_of
from django_pgqueue.admin.keyset_list import FilterForm, choice_field, text_field
from django_pgqueue.admin.run_permissions import may_call
from django_pgqueue.admin.schedule_form import (
    ScheduleForm,
    drift,
    is_plain,
    preview,
    reckoned,
    zone_of,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Schedule
from django_pgqueue.models.schedule import TickOutcome
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import equal, part_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import SCHEDULE
from django_pgqueue.schedules import operate, ticks
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.definition import Definition
from django_pgqueue.schedules.store import database_now
from django_pgqueue.schedules.ticks import TickRow
from django_pgqueue.schedules.timetables import OVERDUE, RESTS
from django_pgqueue.tasks import database
from django_pgqueue.tasks.registry import declared_names
from django_pgqueue.timetable.catch_up import MISSED_MAX
from django_pgqueue.timetable.zones import zone_names


def _run_now(row: Any, work: Work) -> Any:
    """Enqueue the job of a schedule, or publish its message."""
    issued = operate.run_now(row.name, by=work.by)
    if issued is None:
        return None
    if issued.message_id is not None:
        return {1: [issued.message_id]}
    return {2: ()} if issued.job_id is None else {0: [issued.job_id]}


RUN_NOW = Act(
    name="run-now",
    permissions=("run_schedule",),
    label=_("Run now"),
    help=_("Does once what its ticks do; those go on as they were."),
    run=on_each(_run_now, outcomes=3),
    outcomes=[
        Outcome(
            _("%(count)d enqueued: job %(names)s."),
            _("Run now: job %(names)s."),
        ),
        Outcome(
            _("%(count)d published: message %(names)s."),
            _("Run now: message %(names)s."),
        ),
        Outcome(
            _("%(count)d not: another job has the dedup key of the task."),
            is_left=True,
        ),
    ],
    left=_("%(count)d gone."),
    form=Confirm,
    warning=_(
        "Its job is enqueued, or its message published, now, also while it is paused "
        "or an earlier job runs. Its ticks go on as they were."
    ),
)

RESET = Act(
    name="reset",
    permissions=("change_schedule",),
    label=_("Reset to code"),
    help=_("Takes back what was changed here."),
    run=on_each(lambda row, work: operate.reset(row.name)),
    done=_("%(count)d reset to code."),
    entry=_("Reset to code."),
    left=_("%(count)d not changed here."),
    order="name",
    form=Confirm,
    warning=_(
        "What was changed here is taken back: all is as code declares it. Ticks that "
        "another timetable would have had are not made up for."
    ),
    offered=lambda row: row.overridden_at is not None,
)

ADD = ("add_schedule",)

EDIT = Act(
    name="edit",
    permissions=("change_schedule",),
    label=_("Edit"),
    help=_("Of one that code declares: it holds instead, until it is reset."),
    view="edit",
)

SAVE, PREVIEW = "save", "preview"
SUBMITS = [(SAVE, _("Save")), (PREVIEW, _("Preview"))]
FORM = "admin/pgqueue/schedule_form.html"

POLICIES = ("one", "skip", "all(10)")

# Not "delete": that is the form of Django's, which is closed.
DELETE = Act(
    name="remove",
    permissions=("delete_schedule",),
    label=_("Delete"),
    help=_("For good, with the list of its ticks."),
    run=on_each(lambda row, work: operate.delete(row.name)),
    done=_("%(count)d deleted."),
    entry=_("Deleted."),
    flag=DELETION,
    left=_("%(count)d left, declared by code: pause instead."),
    order="name",
    form=Confirm,
    warning=_(
        "It is deleted for good, with the list of its ticks. Jobs that it has enqueued "
        "go on. What code declares stays."
    ),
    offered=lambda row: row.source == "user" or row.withdrawn_at is not None,
    is_grave=True,
)


# Ticks that the page of a schedule lists, the latest.
LATEST_TICKS = 20

STATES = [
    ("active", _("active")),
    ("overdue", _("overdue")),
    ("paused", _("paused")),
    ("withdrawn", _("withdrawn")),
    ("faulty", _("faulty")),
]
LABELS = dict(STATES)

CHANGED = "changed"
SOURCES = [
    ("code", _("code")),
    ("user", _("user")),
    (CHANGED, _("code, changed here")),
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

    meanings = {
        "q": part_of("name"),
        "task": part_of("task", "message_name"),
        "state": equal("shown_state"),
        "source": lambda source: (
            Q(overridden_at__isnull=False) if source == CHANGED else Q(source=source)
        ),
    }

    task = text_field(_("Task"), _("part of its name"))
    state = choice_field(_("State"), STATES)
    source = choice_field(_("Source"), SOURCES)


OVERLAPS = {
    "skip": _("skip a tick while a job of an earlier one is not done"),
    "queue": _("queue a job at each tick, whatever runs"),
}
# Where a schedule says nothing of its own.
OF_TASK = _("the task's")


def _badges(row: Any) -> SafeString:
    """Return the state of a schedule, who made it, and whether it was changed here."""
    said = [
        badge(row.shown_state, LABELS[row.shown_state]),
        badge(f"of-{row.source}", dict(SOURCES)[row.source]),
    ]
    if row.paused_at is not None and row.shown_state != "paused":
        said.append(badge("paused", LABELS["paused"]))
    if row.overridden_at is not None:
        said.append(badge("changed", _("changed here")))
    return format_html_join(" ", "{}", ((each,) for each in said))


@admin.register(Schedule)
class ScheduleAdmin(ActingAdmin):
    """Each schedule, by name."""

    keyset = Keyset(("name",), is_by_time=False)
    list_per_page = 100
    filter_form = ScheduleFilters
    computed = {"shown_state": shown_state()}
    hidden_columns = ("declared",)
    acts = (RUN_NOW, EDIT, *pausing(SCHEDULE), RESET, DELETE)
    named_by = (
        *("name", "source", "paused_at", "paused_by", "pause_reason"),
        *("withdrawn_at", "overridden_at"),
    )
    payload_columns = ("args", "kwargs", "message_payload")
    list_display = ("name", "when", "state", "next_due", "last_due", "task_name")
    list_reads = (
        *("name", "source", "task", "expression", "every_seconds", "tz"),
        *("paused_at", "paused_by", "pause_reason", "withdrawn_at", "overridden_at"),
        *("ticks_from", "last_tick", "next_tick", "error", "message_name"),
    )

    fields = (
        *("cron", "period", "tz", "publishes", "its_task", "its_queue", "its_priority"),
        *("policy", "on_overlap", "jitter", "error", "paused_at", "paused_by"),
        *("pause_reason", "overridden_at", "overridden_by", "last_tick", "created_at"),
        *("created_by", "last_declared_at", "withdrawn_at"),
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
            "is_overdue": late.exists(),
        }

    # The list --------------------------------------------------------------------

    @admin.display(description=_("task"))
    def task_name(self, row: Any) -> str:
        """Show the task, where the schedule is not called as that, or the message."""
        if row.message_name is not None:
            return format_html("{} {}", _("publishes"), name(row.message_name))
        return "" if row.task == row.name else name(row.task)

    when = column(
        _("when"),
        lambda row: format_html("<code>{}</code>", human.timetable(row)),
    )

    @admin.display(description=_("state"))
    def state(self, row: Any) -> SafeString:
        """Show state and source; of a pause who, when and why; of a fault what."""
        shown = _badges(row)
        if row.shown_state == "faulty":
            return format_html(
                '{}<br><span class="quiet pgqueue-text">{}</span>', shown, row.error
            )
        return resting(shown, row, SCHEDULE)

    @admin.display(description=_("next"))
    def next_due(self, row: Any) -> str:
        """Show when it is due next: in how long, and by its own clock."""
        if row.shown_state not in ("active", "overdue"):
            return ""
        tick = row.next_tick or reckoned(row)
        return "" if tick is None else self._moment(row, human.in_utc(tick))

    @admin.display(description=_("last"))
    def last_due(self, row: Any) -> str:
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

    heading = column(None, _badges)
    cron = column(
        _("cron expression"),
        lambda row: row.expression and format_html("<code>{}</code>", row.expression),
    )
    period = column(
        _("period"), lambda row: row.every_seconds and f"{row.every_seconds:,} s"
    )
    # What it does: a message is published, or a job of a task enqueued.
    publishes = column(_("publishes"), lambda row: row.message_name)
    its_task = column(_("task"), lambda row: None if row.message_name else row.task)
    its_queue = column(
        _("queue"), lambda row: None if row.message_name else row.queue or OF_TASK
    )
    its_priority = column(
        _("priority"),
        lambda row: (
            None
            if row.message_name
            else (OF_TASK if row.priority is None else str(row.priority))
        ),
    )
    policy = column(_("catch up"), lambda row: _catch_up(row.catch_up))
    on_overlap = column(
        _("overlap"), lambda row: None if row.message_name else OVERLAPS[row.overlap]
    )
    jitter = column(
        _("jitter"),
        lambda row: (
            (
                row.jitter_seconds
                and _("up to %(time)s") % {"time": human.duration(row.jitter_seconds)}
            )
            or None
        ),
    )

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the next ticks, the last ones, and what differs from the code."""
        may_see = payload.may_see(request)
        latest = _latest([row.pk], LATEST_TICKS)
        has_seconds = any(tick.due_at.second for tick in latest)
        return {
            "is_overdue": row.shown_state == "overdue",
            "hides_code": row.source == "user"
            and row.name in {each.name for each in declared()},
            "preview": preview(row, row.clock),
            "rests": row.shown_state in ("paused", "withdrawn"),
            "runs": [
                (
                    tick,
                    self._moment(row, human.in_utc(tick.due_at), has_seconds),
                    self._job(tick),
                    (tick.ticked_at - tick.due_at).total_seconds(),
                )
                for tick in latest
            ],
            "missed_max": MISSED_MAX,
            "drift": drift(row, may_see=may_see),
        }

    def carried(self, row: Any) -> tuple[str, ...]:
        """Return what its job or its message carries: arguments, or a payload."""
        if row.message_name is not None:
            return ("message_payload",)
        return ("args", "kwargs")

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

    def offers(self, request: HttpRequest, act: Act, row: Any) -> bool:
        """Offer the form to those who may see arguments: it shows all."""
        may_open = act is not EDIT or payload.may_see(request)
        return may_open and super().offers(request, act, row)

    def get_urls(self) -> list[URLPattern]:
        """Add the form of a new one, before whatever takes any text for an id."""
        return [self.own_url("new", self._new, ADD, of_row=False), *super().get_urls()]

    # New ---------------------------------------------------------------------------

    def _new(self, request: HttpRequest) -> HttpResponse:
        form = ScheduleForm(None, request.POST if request.method == "POST" else None)
        with limited():
            context = self._form_context(request, form)
            if form.is_bound and SAVE in request.POST and form.is_valid():
                made = self._add(request, form)
                if made is not None:
                    return self.to_row(made)
        told = _(
            "Whoever may add schedules can let any declared task run with any "
            "arguments, and any message be published."
        )
        context |= {"told": told, "back": self.list_url(request)}
        context["title"] = _("New schedule")
        return self.form_page(request, form, FORM, **context)

    def _add(self, request: HttpRequest, form: ScheduleForm) -> int | None:
        definition = form.definition
        assert definition is not None
        self._check(request, definition)
        made = operate.add(definition, by=who(request))
        if made is None:
            form.add_error("name", _("There is a schedule of this name already."))
            return None
        row = self.get_queryset(request).only("name").get(pk=made)
        made_for = (
            _("Made, for the task %(task)s.") % {"task": definition.task}
            if definition.message_name is None
            else _("Made, for the message %(name)s.")
            % {"name": definition.message_name}
        )
        log(request, [row], made_for, flag=ADDITION)
        text = _("The schedule %(name)s was made.")
        messages.success(request, text % {"name": definition.name})
        return made

    # Edit --------------------------------------------------------------------------

    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a schedule, or store what it says."""
        if not may(request, VIEW_PAYLOAD):
            messages.error(request, NEEDS_PAYLOAD)
            return self.to_row(object_id)
        with limited():
            return self._edit_row(request, object_id)

    def _edit_row(self, request: HttpRequest, object_id: str) -> HttpResponse:
        is_post = request.method == "POST"
        texts = {
            "args_text": "args",
            "kwargs_text": "kwargs",
            "message_text": "message_payload",
        }
        rows = self.get_queryset(request).defer(*texts.values(), "declared")
        row = self.row_to_edit(rows, object_id, is_locked=is_post, **texts)
        if row is None:
            return self.elsewhere(request, object_id)
        if not is_plain(row):
            text = _(
                "Its arguments cannot be shown in a form: they are too long, or of "
                "both kinds, or none that Python can read."
            )
            messages.warning(request, text)
            return self.to_row(row.pk)
        form = ScheduleForm(row, request.POST if is_post else None)
        context = self._form_context(request, form, row)
        if is_post and SAVE in request.POST and form.is_valid():
            return self._change(request, row, form)
        context |= {
            "title": _("Edit %(row)s") % {"row": row}
            if row.source == "user"
            else _("Change %(row)s here") % {"row": row},
            "told": ""
            if row.source == "user"
            else _(
                "Code declares this schedule. What is saved here holds instead, also "
                "after the next deploy, until it is reset to code."
            ),
            "original": row,
            "hint": None if row.message_name else signature_of(row.task) or None,
        }
        return self.form_page(request, form, FORM, **context)

    def _change(
        self, request: HttpRequest, row: Any, form: ScheduleForm
    ) -> HttpResponse:
        assert form.definition is not None
        self._check(request, form.definition)
        # The row is locked, and its revision that of the form.
        changed = operate.change(
            form.definition, revision=row.revision, by=who(request)
        )
        if changed:
            # Names and no values: a history is shown without view_payload.
            log(request, [row], _("Edited: %s") % ", ".join(changed))
            messages.success(request, _("The schedule was stored."))
        else:
            messages.warning(request, _("Nothing was stored: nothing was changed."))
        return self.to_row(row.pk)

    # Both --------------------------------------------------------------------------

    def _check(self, request: HttpRequest, definition: Definition) -> None:
        """Refuse a pipeline job that takes out what the user may not view."""
        given = definition.args, definition.kwargs
        self.require(request, may_call(request, definition.task, *given))

    def _form_context(
        self, request: HttpRequest, form: ScheduleForm, row: Any = None
    ) -> dict[str, Any]:
        """Return what the form's page shows; a form that was sent has been read."""
        with database.cursor() as cursor:
            now = database_now(cursor)
        shown = None
        if form.is_bound:
            if form.is_valid():
                shown = form.preview(now)
        elif row is not None:
            shown = preview(row, now)
        return {
            "submits": SUBMITS,
            "preview": shown,
            "task_names": declared_names(),
            "zone_names": zone_names(),
            "policies": POLICIES,
        }


PAGES: dict[str, type[Model]] = {
    **dict.fromkeys(("succeeded", "cancelled", "expired"), ArchivedJob),
    "dead": DeadLetter,
}


def _catch_up(policy: str) -> Any:
    if policy == "skip":
        return _("skip missed ticks")
    if policy == "one":
        return _("make up for the latest missed tick")
    return _("%(policy)s: make up for so many of the latest missed ticks") % {
        "policy": policy
    }


def _latest(keys: list[int], limit: int) -> list[TickRow]:
    with database.cursor() as cursor:
        return ticks.latest(cursor, keys, limit)

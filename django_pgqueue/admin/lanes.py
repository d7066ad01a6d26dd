"""The lanes in which jobs wait: for whom, and what an operator has said of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import ActingAdmin, column
from django_pgqueue.admin.acts import (
    Act,
    Came,
    Confirm,
    Outcome,
    Work,
    on_each,
    pausing,
)
from django_pgqueue.admin.cells import badge, resting
from django_pgqueue.admin.keyset_list import KeysetList
from django_pgqueue.bounds import LANE_CAPACITY_MAX, LANE_WEIGHT_MAX
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.models import Job, Lane
from django_pgqueue.operators import human
from django_pgqueue.operators.lanes import (
    kind,
    kind_word,
    paused,
    release_told,
    taken,
    waits_for,
)
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import LANE, PERMISSION
from django_pgqueue.queues.lane_stats import LaneStats, find_lanes, lane_stats
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database
from django_pgqueue.tasks import operate_queues as operate

Run = Callable[[Work], Sequence[Came]]


def _jobs_form(label: Any, most: int, help_text: Any) -> type[forms.Form]:
    """Return a form with a number of jobs, or nothing."""
    jobs = forms.IntegerField(
        label=label,
        min_value=1,
        max_value=most,
        required=False,
        help_text=help_text,
    )
    return type("JobsForm", (forms.Form,), {"jobs": jobs})


def _held(run: Run) -> Run:
    """Return *run* with all lanes locked before it: two who act do not deadlock."""

    def held(work: Work) -> Sequence[Came]:
        operate.hold([row.name for row in work.rows.values()])
        return run(work)

    return held


def _set(number: Callable[[str, int | None], bool]) -> Run:
    """Return what sets a number of jobs for lanes, or takes it back."""

    def run(work: Work) -> Sequence[Came]:
        jobs = work.data["jobs"]
        done = [key for key, row in work.rows.items() if number(row.name, jobs)]
        return [done, []] if jobs is not None else [[], done]

    return _held(run)


def _release(row: Any, work: Work) -> Any:
    released = operate.release(row.name)
    if released.job is None:
        raise InvalidOption(f"{row}: {release_told(released, row.stats)}")
    put_off = {} if released.put_off is None else {1: [released.put_off]}
    return {0: [released.job], **put_off}


CAPACITY = Act(
    name="capacity",
    permissions=(PERMISSION,),
    label=_("Set capacity"),
    help=_("So many at a time, whatever its jobs say."),
    run=_set(operate.set_capacity),
    outcomes=[
        Outcome(
            _("%(count)d changed to %(jobs)s at a time."),
            _("Capacity: %(jobs)s at a time."),
        ),
        Outcome(
            _("%(count)d changed to what the jobs say."),
            _("Capacity: what its jobs say."),
        ),
    ],
    left=_("%(count)d took so many already."),
    order="name",
    form=_jobs_form(
        _("Jobs at a time"), LANE_CAPACITY_MAX, _("Empty: what its jobs say.")
    ),
    said=lambda row: {"jobs": row.stats.own_capacity},
    offered=lambda row: not (row.stats.is_group or row.stats.is_fair),
    warning=_(
        "So many of it are let through at a time, on all workers together, until "
        "somebody says otherwise. What was let through before goes on. Of a limit: a "
        "group takes one at a time."
    ),
)

WEIGHT = Act(
    name="weight",
    permissions=(PERMISSION,),
    label=_("Set weight"),
    help=_("So many of its jobs start in each of its turns."),
    run=_set(operate.set_weight),
    outcomes=[
        Outcome(
            _("%(count)d changed to %(jobs)s in a turn."),
            _("Weight: %(jobs)s in a turn."),
        ),
        Outcome(
            _("%(count)d changed to one in a turn, as others have."),
            _("Weight: one in a turn, as others."),
        ),
    ],
    left=_("%(count)d had so many already."),
    order="name",
    form=_jobs_form(
        _("Jobs in a turn"), LANE_WEIGHT_MAX, _("Empty: one, as of other lanes.")
    ),
    said=lambda row: {"jobs": row.stats.weight},
    offered=lambda row: row.stats.is_fair or not row.stats.waiting,
    warning=_(
        "Each time its turn comes, so many of its jobs are claimed before those of the "
        "next lane, until somebody says otherwise. Of a fair lane: others have none."
    ),
)

RELEASE = Act(
    name="release",
    permissions=(PERMISSION,),
    label=_("Release the next job"),
    help=_("Lets it through at once, one time, whatever holds it back."),
    run=_held(on_each(_release, InvalidOption, outcomes=2)),
    outcomes=[
        Outcome(
            _("%(count)d let through: %(names)s."),
            _("Released: job %(names)s."),
        ),
        Outcome(
            _("%(count)d let through after the next attempt: %(names)s."),
            _("Passed by: job %(names)s."),
        ),
    ],
    order="name",
    form=Confirm,
    warning=_(
        "Its next due job is let through at once, also while it is paused. A limit has "
        "one more at a time then, a fair lane one before its turn. A group never has: "
        "a job that waits for its next attempt is passed by until then, and one that "
        "is ready or runs is waited for."
    ),
    offered=lambda row: row.stats.waiting > 0,
)

ACTS = (
    *(dataclasses.replace(act, run=_held(act.run)) for act in pausing(LANE)),
    CAPACITY,
    WEIGHT,
    RELEASE,
)


class LaneList(KeysetList):
    """A page of lanes, which are found by their jobs and not by rows of their own."""

    def find(self, start: str, *, rising: bool) -> tuple[list[Any], str | None]:
        """Walk along the names."""
        if not self.filter_form.is_readable:
            return [], None
        after = self.model_admin.keyset.values(self.model, start)[0] if start else ""
        with database.cursor() as cursor:
            found = find_lanes(
                cursor,
                after=after,
                limit=self.list_per_page + 1,
                looks=LOOK_ROWS_MAX,
                text=self.filter_form.given("q"),
                is_back=rising,
            )
        rows = [Lane(name=each) for each in found.lanes]
        return rows, found.after if found.is_cut else None


def read_lanes(names: Sequence[str]) -> dict[str, Any]:
    """Return lanes with their stats, by their names; without those that are none."""
    with database.cursor() as cursor:
        clock = database_now(cursor)
        found = lane_stats(cursor, names)
    lanes = {}
    for stats in found:
        # There need not be a row in the table.
        row: Any = Lane(
            name=stats.name,
            capacity=stats.own_capacity,
            weight=stats.weight,
            paused_at=moments.as_clock(stats.paused_at, clock),
            paused_until=moments.as_clock(stats.paused_until, clock),
            paused_by=stats.paused_by,
            pause_reason=stats.pause_reason,
        )
        row.stats, row.clock = stats, clock
        lanes[stats.name] = row
    return lanes


def _badge(row: Any) -> SafeString:
    if row.stats.breaker_trips is not None:
        is_open = (row.stats.pause_seconds or 0) > 0
        text = _("breaker open") if is_open else _("breaker half-open")
        return badge("paused", text, "lane-paused")
    if row.paused_at is not None or row.stats.task_pause is not None:
        return badge("paused", _("paused"), "lane-paused")
    return badge("active", _("open"), "lane-open")


def _count(row: Any, which: str) -> str:
    number = getattr(row.stats, which)
    return human.count(number, is_more=row.stats.is_more(number))


def _oldest(row: Any) -> str:
    seconds = row.stats.due_seconds
    return human.age(seconds) if seconds is not None and seconds >= 0 else ""


def _kind(row: Any) -> str | None:
    """Return what kind of lane it is, by what its waiting jobs say."""
    stats: LaneStats = row.stats
    if not stats.waiting:
        return None
    terms = stats.capacity, stats.spacing, stats.policy, stats.weight
    return kind(*terms, is_task=stats.is_task)


@admin.register(Lane)
class LaneAdmin(ActingAdmin):
    """Each lane in which jobs wait, or of which somebody has said something."""

    keyset = Keyset(("name",), is_by_time=False)
    acts = ACTS
    list_display = (
        *("name", "state", "lane_kind", "waiting", "let_through", "running"),
        *("oldest", "waits_for"),
    )
    list_reads = ("name",)
    fields = (
        *("name", "full_kind", "waiting", "let_through", "running", "oldest"),
        *("waits_for", "head_task", "head_queue", "own_capacity", "weight"),
        *("paused_at", "paused_until", "paused_by", "pause_reason", "trips", "why"),
    )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Arguments make the names, so they are for those who may see payloads."""
        return super().has_view_permission(request, obj) and payload.may_see(request)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that knows where lanes are."""
        return LaneList

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add what waits in each, and what was said of it."""
        found = read_lanes([row.name for row in rows])
        # Without those whose jobs have just gone.
        return [found[row.name] for row in rows if row.name in found]

    def rows_by_key(self, request: HttpRequest, keys: Sequence[Any]) -> dict[Any, Any]:
        """Return those of the lanes in which jobs wait, or of which somebody said."""
        return read_lanes(keys)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the lane, or None when there is none."""
        key = self._key(object_id)
        return None if key is None else read_lanes([key]).get(key)

    # The list --------------------------------------------------------------------

    heading = column(_("state"), _badge)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> SafeString:
        """Show whether it lets jobs through; of a pause until when, who and why."""
        return resting(_badge(row), row, LANE)

    lane_kind = column(_("kind"), lambda row: kind_word(row.stats))
    waiting = column(_("waiting"), lambda row: _count(row, "waiting"))
    let_through = column(_("taken"), lambda row: taken(row.stats))
    running = column(_("running"), lambda row: _count(row, "running"))
    oldest = column(_("oldest"), _oldest)
    full_kind = column(_("kind"), _kind)
    head_task = column(_("task"), lambda row: row.stats.head and row.stats.head.task)
    head_queue = column(_("queue"), lambda row: row.stats.head and row.stats.head.queue)
    own_capacity = column(_("capacity set here"), lambda row: row.stats.own_capacity)
    trips = column(
        _("breaker opened, times in a row"), lambda row: row.stats.breaker_trips
    )
    why = column(
        _("waits because"), lambda row: row.stats.task_pause and paused(row.stats)
    )

    @admin.display(description=_("waits for"))
    def waits_for(self, row: Any) -> str:
        """Show the job that the others wait for, and what it does."""
        head = row.stats.head
        if head is None:
            return ""
        return format_html("{} {}", self.link_to(Job, head.id), waits_for(row.stats))

"""The consumer groups: how far each has read, who reads, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work, pausing
from django_pgqueue.admin.cells import Note, name
from django_pgqueue.admin.group_seek import SeekableAdmin
from django_pgqueue.admin.keyset_list import FilterForm, text_field
from django_pgqueue.admin.listeners import (
    LISTED_GROUPS,
    group_badge,
    listed_behind,
    read_lags,
    read_plans,
    resting,
    state_badge,
    where_of,
)
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX, PartitionLag
from django_pgqueue.log.names import TOPIC_CHARACTERS_MAX
from django_pgqueue.models import ConsumerGroup, DeadLetter, Message, Position, Topic
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import Meaning, equal, part_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import GROUP
from django_pgqueue.operators.states import behind_of, partition_state
from django_pgqueue.operators.workers import START_FOR
from django_pgqueue.topics import operate_groups as operate


class GroupFilters(FilterForm):
    """A part of the group's name, and a topic."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
        "q": part_of("name"),
        "topic": equal("topic"),
    }

    topic = text_field(
        gettext_lazy("Topic"),
        gettext_lazy("its whole name"),
        characters=TOPIC_CHARACTERS_MAX,
    )


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition, as the page of its group shows it."""

    partition: str
    state: Any
    position: Any
    unread: Any
    age: str
    reader: str
    until: Any
    failures: str
    next_try: Any


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong in one partition since its position moved last."""

    partition: int
    failures: list[payload.Failure]


def _read_on(work: Work) -> list[dict[int, list[int]]]:
    """Let the halted partitions of groups be read again."""
    found = {}
    for key, row in work.rows.items():
        try:
            found[key] = operate.read_on(row)
        except MessagesLost as error:
            # In English, as every error: it says what was lost, and the ways out.
            work.problems.append(f"{row}: {error}")
    return [{key: done for key, done in found.items() if done}]


READ_ON = Act(
    name="read-on",
    permissions=("pause",),
    label=gettext_lazy("Read halted partitions on"),
    help=gettext_lazy("From the message that they were halted at, with all attempts."),
    run=_read_on,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d halted partition is read on, with all attempts.",
                "%(count)d halted partitions are read on, with all attempts.",
                "count",
            ),
            gettext_lazy("Halted partitions read on: %(names)s"),
        )
    ],
    left=ngettext_lazy(
        "%(count)d group had none.", "%(count)d groups had none.", "count"
    ),
    form=Confirm,
    warning=gettext_lazy(
        "Its halted partitions are read again, from the message that they were halted "
        "at. Without a change of the code or the data, they are likely to halt again. "
        "To leave that message out, seek past it."
    ),
    # In a list it is not known, so it is offered there; lags are those of the page.
    offered=lambda row: any(each.halted_at is not None for each in row.lags),
)


@admin.register(ConsumerGroup)
class ConsumerGroupAdmin(SeekableAdmin):
    """Each group, by topic and name."""

    keyset = Keyset(("topic", "name", "id"), is_by_time=False)
    # For each of them, the messages behind its positions are counted.
    list_per_page = LISTED_GROUPS
    filter_form = GroupFilters
    acts = (*pausing(GROUP), READ_ON)
    change_form_template = "admin/pgqueue/consumer_group.html"
    named_by = ("topic", "name", "paused_at", "paused_by", "pause_reason")
    list_display = ("title", "state", "unread", "oldest", "task_name", "queue_name")
    list_reads = (
        *("topic_id", "topic", "name", "task", "queue"),
        *("paused_at", "paused_by", "pause_reason"),
    )

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add how far behind each is."""
        for row, behind in zip(rows, listed_behind(rows), strict=True):
            row.behind = behind
        return rows

    def detailed(self, row: Any) -> Any:
        """Add the lag of its partitions, counted further than in a list."""
        row.lags = read_lags([row], limit=COUNTED_MESSAGES_MAX)[row.pk]
        row.behind = behind_of(row, row.lags, read_plans())
        return row

    def partitions_of(self, row: Any) -> list[int]:
        """Return the partitions in which the group has a position."""
        rows = Position.objects.using(get_settings().database).filter(group_id=row.pk)
        return list(rows.order_by("partition").values_list("partition", flat=True))

    # The list --------------------------------------------------------------------

    title = column(gettext_lazy("group"), lambda row: name(str(row)))

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> SafeString:
        """Show what it does; of a pause who, when and why."""
        return resting(group_badge(row.behind), row, GROUP)

    unread = column(gettext_lazy("lag"), lambda row: str(row.behind.shown))
    oldest = column(
        gettext_lazy("oldest unread"), lambda row: human.age(row.behind.seconds)
    )
    task_name = column(gettext_lazy("task"), lambda row: name(row.task))
    queue_name = column(gettext_lazy("queue"), lambda row: name(_queue(row)))

    # The page of one -------------------------------------------------------------

    def heading(self, row: Any) -> SafeString:
        """Show the state beside the title."""
        return state_badge(row.behind.state)

    def facts(self, row: Any) -> list[Fact]:
        """Say how far it is, what it calls, and who did what to it."""
        clock = row.clock
        where = where_of(row)
        return [
            (_("Topic"), self.link(Topic, row.topic, row.topic_id)),
            (_("Group"), row.name),
            (_("Lag"), row.behind.shown),
            (_("Oldest unread"), human.age(row.behind.seconds)),
            (_("Task"), row.task or _("none: read by receive() or SQL")),
            (_("Queue"), _queue(row)),
            (_("Dead letters"), self._letters(row)),
            (_("Messages per batch"), str(row.batch) if row.task else None),
            (_("Atomic"), _atomic(row)),
            (_("Where"), format_html("<code>{}</code>", where) if where else None),
            (_("On error"), row.get_on_error_display()),
            (_("Maximum attempts"), str(row.max_attempts)),
            (_("Lease"), human.duration(row.lease_seconds)),
            (_("Began with"), row.start),
            (_("Paused"), moments.full(row.paused_at, clock)),
            (_("Paused by"), row.paused_by),
            (_("Pause reason"), row.pause_reason),
            (_("Declared last"), moments.full(row.last_declared_at, clock)),
            (_("Made"), moments.full(row.created_at, clock)),
        ]

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the partitions, and what went wrong in them."""
        may_see = payload.may_see(request)
        rows = Position.objects.using(get_settings().database)
        rows = rows.filter(group_id=row.pk, errors__isnull=False).order_by("partition")
        texts = rows.values_list(
            "partition", payload.as_text("errors", payload.ERRORS_CHARACTERS_MAX)
        )
        return {
            "notes": _notes(row),
            "partitions": [self._line(row, each) for each in row.lags],
            "troubles": [
                Trouble(
                    partition,
                    payload.failures(text, clock=row.clock, may_see=may_see),
                )
                for partition, text in texts
            ],
        }

    def _line(self, row: Any, each: PartitionLag) -> PartitionLine:
        clock = row.clock
        state = state_badge(partition_state(each, is_served=row.behind.is_served))
        if each.halted_at is not None:
            state = format_html(
                '{}<br><span class="quiet">{} {}</span>',
                state,
                HALTED_FOR.get(each.halted_for or "", each.halted_for or ""),
                moments.short(moments.as_clock(each.halted_at, clock), clock),
            )
        return PartitionLine(
            partition=str(each.partition),
            state=state,
            position=self._unread(row, each, str(each.position)),
            unread=self._unread(
                row,
                each,
                human.count(each.unread, is_more=each.unread >= COUNTED_MESSAGES_MAX),
            ),
            age=human.age(each.seconds),
            reader=each.leased_by or "",
            until=moments.short(moments.as_clock(each.leased_until, clock), clock),
            failures=str(each.failures or ""),
            next_try=moments.short(moments.as_clock(each.retry_at, clock), clock)
            if each.is_backing_off
            else "",
        )

    def _unread(self, row: Any, each: PartitionLag, text: str) -> SafeString | str:
        """Return *text* as a link to what comes after the position."""
        asked = {"partition": each.partition, "after": each.position}
        return self.link(Message, text, topic=row.topic, **asked)

    def _letters(self, row: Any) -> SafeString | str | None:
        if not row.task or not self.has_page(DeadLetter):
            return None
        return self.link(DeadLetter, _("of its task"), queue=row.queue, q=row.task)


HALTED_FOR = {
    "error": gettext_lazy("by an error,"),
    "retention": gettext_lazy("by retention,"),
}


def _atomic(row: Any) -> Any:
    """Return whether its task and its position are one transaction."""
    if not row.task:
        return None
    return _("yes") if row.is_atomic else _("no")


def _queue(row: Any) -> str:
    """Return which workers read for a group; of one without a task, none do."""
    return str(row.queue) if row.task else ""


def _notes(row: Any) -> list[Note]:
    """Return what somebody should know about a group first."""
    notes = []
    causes = {each.halted_for for each in row.lags if each.halted_at is not None}
    if "retention" in causes:
        text = _(
            "Retention has removed messages that it had not read, in partitions that "
            "are halted now. Nothing is passed over silently: seek to the earliest "
            "message to read what is left."
        )
        notes.append(Note(text))
    if causes - {"retention"}:
        text = _(
            "A message failed on each attempt, so its partition is halted: what comes "
            "after it waits. See the errors below; then read on, or seek past it."
        )
        notes.append(Note(text))
    if row.behind.state == "unserved":
        text = _(
            "No living worker serves the queue %(queue)s: what is unread waits until "
            "there is one. Start it:"
        )
        command = f"{START_FOR}{row.queue}"
        notes.append(Note(text % {"queue": row.queue}, command))
    return notes

"""The consumer groups: how far each has read, who reads, and what went wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_pgqueue.admin import payload
from django_pgqueue.admin.acting import ActingAdmin, column, limited
from django_pgqueue.admin.acts import (
    Act,
    Confirm,
    TypedForm,
    Work,
    log,
    pausing,
)
from django_pgqueue.admin.cells import name, resting
from django_pgqueue.admin.keyset_list import FilterForm, text_field
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.admin.subscriptions import (
    LISTED_GROUPS,
    group_badge,
    listed_behind,
    read_lags,
    read_plans,
    state_badge,
    where_shown,
)
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX
from django_pgqueue.log.names import TOPIC_CHARACTERS_MAX
from django_pgqueue.log.seek import EARLIEST, LATEST
from django_pgqueue.models import ConsumerGroup, DeadLetter, Position, Topic
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import equal, part_of
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import GROUP
from django_pgqueue.operators.states import behind_of, partition_state, seek_preview
from django_pgqueue.operators.workers import START_FOR
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.topics import operate_groups as operate


class GroupFilters(FilterForm):
    """A part of the group's name, and a topic."""

    meanings = {
        "q": part_of("name"),
        "topic": equal("topic"),
    }

    topic = text_field(
        _("Topic"),
        _("its whole name"),
        characters=TOPIC_CHARACTERS_MAX,
    )


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
    label=_("Read halted partitions on"),
    help=_("From the message that they were halted at, with all attempts."),
    run=_read_on,
    done=_("Halted partitions that are read on: %(count)d."),
    entry=_("Halted partitions read on: %(names)s"),
    left=_("%(count)d had none."),
    form=Confirm,
    warning=_(
        "Its halted partitions are read again, from the message that they were halted "
        "at. Without a change of the code or the data, they are likely to halt again. "
        "To leave that message out, seek past it."
    ),
    # In a list it is not known, so it is offered there; lags are those of the page.
    offered=lambda row: any(each.halted_at is not None for each in row.lags),
)


TIME, ID = "time", "id"
WAYS = [
    (EARLIEST, _("earliest: all that retention has left")),
    (LATEST, _("latest: what is published from now on")),
    (TIME, _("a time: what was published then or later")),
    (ID, _("an id: what comes after that message")),
]

ID_MAX = 2**63 - 1


class SeekForm(TypedForm):
    """Where a group is to read on; a seek is confirmed by the name of the group."""

    way = forms.ChoiceField(label=_("To"), choices=WAYS, widget=forms.RadioSelect)
    time = MomentField(label=_("Time"), required=False)
    message = forms.IntegerField(
        label=_("Id"),
        required=False,
        min_value=0,
        max_value=ID_MAX,
        widget=forms.TextInput({"placeholder": "4711"}),
    )
    partition = forms.TypedChoiceField(
        label=_("Partition"), required=False, coerce=int, empty_value=None
    )
    field_order = ("way", "time", "message", "partition")

    def __init__(self, row: Any, data: Any, *, partitions: list[int]) -> None:
        super().__init__(row, data, initial={"way": EARLIEST})
        self.fields["partition"].choices = [  # type: ignore[attr-defined]
            ("", _("all %(count)d") % {"count": len(partitions)}),
            *((str(each), str(each)) for each in partitions),
        ]

    @property
    def place(self) -> int | str | datetime:
        """Return where to, as seek() takes it."""
        way = self.cleaned_data["way"]
        if way == TIME:
            return in_utc(self.cleaned_data["time"])
        if way == ID:
            return int(self.cleaned_data["message"])
        return str(way)

    def clean(self) -> dict[str, Any]:
        """Ask for the time or the id that was chosen."""
        data: dict[str, Any] = super().clean() or {}
        for way, field in ((TIME, "time"), (ID, "message")):
            is_missing = data.get(field) is None and field not in self.errors
            if data.get("way") == way and is_missing:
                self.add_error(field, ValidationError(_("This field is required.")))
        return data


SEEK, PREVIEW = "seek", "preview"
SUBMITS = [
    (PREVIEW, _("Show what happens")),
    (SEEK, _("Seek")),
]


SEEK_ACT = Act(
    name=SEEK,
    permissions=("seek",),
    label=_("Seek…"),
    help=_("It reads on from another place."),
    view="seek",
)


def _atomic(row: Any) -> Any:
    """Return whether its task and its position are one transaction."""
    if not row.task:
        return None
    return _("yes") if row.is_atomic else _("no")


def _queue(row: Any) -> str:
    """Return which workers read for a group; of one without a task, none do."""
    return str(row.queue) if row.task else ""


@admin.register(ConsumerGroup)
class ConsumerGroupAdmin(ActingAdmin):
    """Each group, by topic and name."""

    keyset = Keyset(("topic", "name", "id"), is_by_time=False)
    # For each of them, the messages behind its positions are counted.
    list_per_page = LISTED_GROUPS
    filter_form = GroupFilters
    acts = (*pausing(GROUP), READ_ON, SEEK_ACT)
    change_form_template = "admin/pgqueue/consumer_group.html"
    named_by = ("topic", "name", "paused_at", "paused_by", "pause_reason")
    list_display = ("title", "state", "unread", "oldest", "task_name", "queue_name")
    list_reads = (
        *("topic_id", "topic", "name", "task", "queue"),
        *("paused_at", "paused_by", "pause_reason"),
    )
    fields = (
        *("topic_link", "name", "unread", "oldest", "kind_of_task", "queue_name"),
        *("letters", "batch_size", "atomic", "where", "on_error_shown"),
        *("max_attempts", "lease", "start", "paused_at", "paused_by"),
        *("pause_reason", "last_declared_at", "created_at"),
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

    title = column(_("group"), lambda row: name(str(row)))

    @admin.display(description=_("state"))
    def state(self, row: Any) -> SafeString:
        """Show what it does; of a pause who, when and why."""
        return resting(group_badge(row.behind), row, GROUP)

    unread = column(_("lag"), lambda row: str(row.behind.shown))
    oldest = column(_("oldest unread"), lambda row: human.age(row.behind.seconds))
    task_name = column(_("task"), lambda row: name(row.task))
    queue_name = column(_("queue"), lambda row: name(_queue(row)))

    # The page of one -------------------------------------------------------------

    heading = column(None, lambda row: state_badge(row.behind.state))
    kind_of_task = column(
        _("task"), lambda row: row.task or _("none: read by receive() or SQL")
    )
    batch_size = column(
        _("messages per batch"), lambda row: str(row.batch) if row.task else None
    )
    atomic = column(_("atomic"), _atomic)
    where = column(_("where"), where_shown)
    on_error_shown = column(_("on error"), lambda row: row.get_on_error_display())
    lease = column(_("lease"), lambda row: human.duration(row.lease_seconds))

    @admin.display(description=_("topic"))
    def topic_link(self, row: Any) -> str:
        """Lead to the topic."""
        return self.link(Topic, row.topic, row.topic_id)

    @admin.display(description=_("dead letters"))
    def letters(self, row: Any) -> str | None:
        """Lead to those of its task."""
        if not row.task or not self.has_page(DeadLetter):
            return None
        return self.link(DeadLetter, _("of its task"), queue=row.queue, q=row.task)

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add the partitions, and what went wrong in them."""
        may_see = payload.may_see(request)
        causes = {each.halted_for for each in row.lags if each.halted_at is not None}
        rows = Position.objects.using(get_settings().database)
        rows = rows.filter(group_id=row.pk, errors__isnull=False).order_by("partition")
        texts = rows.values_list(
            "partition", payload.as_text("errors", payload.ERRORS_CHARACTERS_MAX)
        )
        return {
            "is_lost": "retention" in causes,
            "has_failed": bool(causes - {"retention"}),
            "start": START_FOR,
            "partitions": [
                (
                    each,
                    state_badge(partition_state(each, is_served=row.behind.is_served)),
                    human.count(
                        each.unread, is_more=each.unread >= COUNTED_MESSAGES_MAX
                    ),
                )
                for each in row.lags
            ],
            "troubles": [
                (each, payload.failures(text, clock=row.clock, may_see=may_see))
                for each, text in texts
            ],
        }

    # Seek ------------------------------------------------------------------------

    def seek(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form that moves a group, what would happen, or do it."""
        with limited(Plans.IN_ORDER):
            row = self.named_row(request, object_id)
            if row is None:
                return self.elsewhere(request, object_id)
            return self._seek_row(request, row)

    def _seek_row(self, request: HttpRequest, row: Any) -> HttpResponse:
        is_post = request.method == "POST"
        form = SeekForm(
            row,
            request.POST if is_post else None,
            partitions=self.partitions_of(row),
        )
        foreseen = None
        if is_post and form.is_valid():
            try:
                foreseen = operate.preview_seek(
                    row, form.place, partition=form.cleaned_data["partition"]
                )
                if SEEK in request.POST and form.confirms():
                    return self._sought(request, row, form)
            except (MessagesLost, TopicError) as error:
                form.add_error(None, str(error))
        return self.form_page(
            request,
            form,
            "admin/pgqueue/seek.html",
            title=_("Seek %(row)s") % {"row": row},
            told=_(
                "The group goes on from another place, also while it is read: what is "
                "being handled now is refused when it is done; what it did outside of "
                "the database stays done. Halted partitions are read on."
            ),
            original=row,
            submits=SUBMITS,
            foreseen=foreseen and seek_preview(foreseen),
        )

    def _sought(self, request: HttpRequest, row: Any, form: SeekForm) -> HttpResponse:
        partition = form.cleaned_data["partition"]
        done = operate.seek(row, form.place, partition=partition)
        moved = ", ".join(
            f"{each.partition}: {each.before} → {each.now}" for each in done
        )
        place = getattr(form.place, "isoformat", form.place.__str__)()
        told = _("Sought to %(place)s. Positions: %(moved)s.")
        log(request, [row], told % {"place": place, "moved": moved})
        text = ngettext(
            "%(count)d partition reads on from there.",
            "%(count)d partitions read on from there.",
            len(done),
        )
        messages.success(request, text % {"count": len(done)})
        return self.to_row(row.pk)

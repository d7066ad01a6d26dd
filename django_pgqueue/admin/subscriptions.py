"""The subscriptions: which messages become jobs, of which task and in which queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import DELETION
from django.db.models import Model, Q
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm, Outcome, on_each, pausing
from django_pgqueue.admin.cells import Note, name
from django_pgqueue.admin.keyset_list import (
    FilterForm,
    choice_field,
    queue_field,
    text_field,
)
from django_pgqueue.admin.listeners import (
    is_stale,
    resting,
    subscription_badge,
    where_of,
)
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.conf import get_settings
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.names import MESSAGE_NAME_CHARACTERS_MAX
from django_pgqueue.log.subscriptions import STALE_AFTER
from django_pgqueue.models import Job, Message, Subscription, Topic
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import Meaning, equal, part_of
from django_pgqueue.operators.lanes import kind
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import SUBSCRIPTION
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_subscriptions as operate

STATES = [
    ("enabled", gettext_lazy("enabled")),
    ("disabled", gettext_lazy("disabled")),
    ("stale", gettext_lazy("stale")),
    ("full", gettext_lazy("held or full")),
    ("backfill", gettext_lazy("back-filling")),
]


class SubscriptionFilters(FilterForm):
    """A part of the pattern, a queue, a part of the task's name, and a state."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
        "q": part_of("pattern"),
        "queue": equal("queue"),
        "task": part_of("task"),
        "state": {
            "enabled": Q(disabled_at=None),
            "disabled": Q(disabled_at__isnull=False),
            "stale": Q(is_stale=True),
            "full": Q(held_at__isnull=False) | Q(full_at__isnull=False),
            "backfill": Q(backfill_position__isnull=False),
        }.__getitem__,
    }

    q = text_field(gettext_lazy("Pattern"), characters=MESSAGE_NAME_CHARACTERS_MAX)
    queue = queue_field()
    task = text_field(gettext_lazy("Task"), gettext_lazy("part of its name"))
    state = choice_field(gettext_lazy("State"), STATES)


def lane_told(row: Any) -> str | None:
    """Say whom its jobs wait for: "limit of 5, by key"; None: for nobody."""
    if row.lane_by is None:
        return None
    told = {
        "kind": kind(row.lane_capacity, row.lane_spacing, row.lane_policy),
        "parts": ", ".join(row.lane_by),
    }
    return (_("%(kind)s, by %(parts)s") if row.lane_by else "%(kind)s") % told


POLICIES = {
    "pause": gettext_lazy("then messages stay in the log"),
    "drop_oldest": gettext_lazy("then the oldest are cancelled"),
    "refuse": gettext_lazy("then messages are refused"),
}


def backlog_told(row: Any) -> str | None:
    """Say how many jobs wait of how many: "82 of 100: …"; None: any number may."""
    if row.backlog_max is None:
        return None
    there_is = human.share(row.backlog or 0, row.backlog_max)
    return f"{there_is}: {POLICIES.get(row.backlog_on_full, '')}"


# Not "delete": that is the form of Django's, which is closed.
DELETE = Act(
    name="remove",
    permissions=("purge",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For good. What code declares stays."),
    run=on_each(lambda row, work: operate.delete(row.pk)),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d subscription was deleted.",
                "%(count)d subscriptions were deleted.",
                "count",
            ),
            gettext_lazy("Deleted."),
            DELETION,
        )
    ],
    left=ngettext_lazy(
        "%(count)d stays: code has declared it lately. Disable it instead.",
        "%(count)d stay: code has declared them lately. Disable them instead.",
        "count",
    ),
    form=Confirm,
    warning=gettext_lazy(
        "It is deleted for good. Jobs that it has made go on. What code has declared "
        "within a week stays."
    ),
    offered=lambda row: (
        row.source == "user" or row.is_stale or row.disabled_at is not None
    ),
    is_grave=True,
)


@admin.register(Subscription)
class SubscriptionAdmin(ActingAdmin):
    """Each subscription, by pattern."""

    keyset = Keyset(("pattern", "id"), is_by_time=False)
    list_per_page = 100
    filter_form = SubscriptionFilters
    computed: ClassVar[Mapping[str, Any]] = {"is_stale": is_stale()}
    acts = (*pausing(SUBSCRIPTION), DELETE)
    named_by = ("pattern", "queue", "task", "disabled_by", "disabled_reason")
    list_display = ("title", "state", "queue_name", "task_name", "where", "declared")
    list_reads = (
        *("pattern", "source", "queue", "task", "payload_filter", "last_declared_at"),
        *("disabled_at", "disabled_by", "disabled_reason", "backfill_position"),
        *("held_at", "full_at"),
    )

    # The list --------------------------------------------------------------------

    title = column(gettext_lazy("pattern"), lambda row: name(row.pattern))

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> SafeString:
        """Show the state; who disabled it, when and why; how far the back-fill is."""
        shown = resting(subscription_badge(row), row, SUBSCRIPTION)
        if row.disabled_at is not None or row.backfill_position is None:
            return shown
        place = _("up to id %(id)s") % {"id": row.backfill_position}
        return format_html('{}<br><span class="quiet">{}</span>', shown, place)

    queue_name = column(
        gettext_lazy("queue"),
        lambda row: format_html(
            '<a class="pgqueue-name" href="?{}">{}</a>',
            urlencode({"queue": row.queue}),
            row.queue,
        ),
    )
    task_name = column(gettext_lazy("task"), lambda row: name(row.task))

    @admin.display(description=gettext_lazy("where"))
    def where(self, row: Any) -> SafeString | str:
        """Show what a payload must contain."""
        text = where_of(row)
        return format_html('<code class="pgqueue-text">{}</code>', text) if text else ""

    @admin.display(description=gettext_lazy("last declared"))
    def declared(self, row: Any) -> SafeString | str:
        """Show when code declared it last."""
        if row.source != "code":
            return _("by a user")
        return moments.short(row.last_declared_at, row.clock)

    # The page of one -------------------------------------------------------------

    def heading(self, row: Any) -> SafeString:
        """Show the state beside the title."""
        return subscription_badge(row)

    def facts(self, row: Any) -> list[Fact]:
        """Say what it selects, what comes of it, and who did what to it."""
        clock = row.clock
        where = where_of(row)
        return [
            (_("Pattern"), row.pattern),
            (_("Topic"), self._topic(row)),
            (_("Where"), format_html("<code>{}</code>", where) if where else None),
            (_("Task"), row.task),
            (_("Queue"), self._of_queue(row)),
            (_("Priority"), str(row.priority)),
            (_("Maximum attempts"), str(row.max_attempts)),
            (_("Lane"), lane_told(row)),
            (_("Backlog"), backlog_told(row)),
            (_("Full"), moments.full(row.full_at, clock)),
            (_("Held"), moments.full(row.held_at, clock)),
            (_("Began with"), row.start),
            (_("Back-fill"), self._back_fill(row)),
            (_("Lost"), row.lost["message"] if row.lost else None),
            (_("Disabled"), moments.full(row.disabled_at, clock)),
            (_("Disabled by"), row.disabled_by),
            (_("Reason"), row.disabled_reason),
            (_("Source"), row.get_source_display()),
            (_("Declared last"), moments.full(row.last_declared_at, clock)),
            (_("Made"), moments.full(row.created_at, clock)),
        ]

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Say what is to be known first."""
        notes = []
        if row.is_stale:
            text = _(
                "No code that runs has declared it for %(days)d days. It still makes a "
                "job of each message; nobody may be there to run these. If it is not "
                "to come back, disable or delete it."
            )
            notes.append(Note(text % {"days": STALE_AFTER.days}))
        if row.disabled_at is not None:
            text = _(
                "Messages that are published now make no job of it, and none is made "
                "up for when it is enabled again."
            )
            notes.append(Note(text))
        if row.held_at is not None and row.disabled_at is None:
            text = _(
                "As many of its jobs wait as its backlog says. Messages that are "
                "published now stay in the log; their jobs are made when there is "
                "room, unless retention is faster."
            )
            notes.append(Note(text))
        return {"notes": notes}

    def _back_fill(self, row: Any) -> str | None:
        if row.backfill_position is None:
            return None
        with database.cursor() as cursor:
            highest = horizons(cursor).highest
        told = _(
            "messages of before it began have their jobs up to id %(id)s of %(end)s"
        )
        if row.missed is not None:
            told = _(
                "messages that it missed have their jobs up to id %(id)s of %(end)s"
            )
        return told % {
            "id": f"{row.backfill_position:,}",
            "end": f"{highest:,}",
        }

    def _topic(self, row: Any) -> SafeString | str:
        if row.topic is None:
            return _("any")
        if not self.has_page(Message):
            return str(row.topic)
        url = self._url(Message, "changelist")
        if self.has_page(Topic):
            topics = Topic.objects.using(get_settings().database)
            topic = topics.filter(name=row.topic).values_list("pk", flat=True).first()
            if topic is None:
                return _("%(topic)s, not known yet") % {"topic": row.topic}
            url = self._url(Topic, "change", topic)
        return format_html('<a href="{}">{}</a>', url, row.topic)

    def _of_queue(self, row: Any) -> SafeString | str:
        model: type[Model] = Job
        if not self.has_page(model):
            return str(row.queue)
        asked = urlencode({"queue": row.queue, "q": row.task})
        url = self._url(model, "changelist")
        return format_html(
            '{} (<a href="{}?{}">{}</a>)', row.queue, url, asked, _("its jobs")
        )

"""
The subscriptions, and who else gets the messages of a topic.

A subscription makes jobs of messages, of one task in one queue; a group reads a log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import DELETION
from django.db.models import BooleanField, Case, Model, Q, QuerySet, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin, column
from django_pgqueue.admin.acts import Act, Confirm, on_each, pausing
from django_pgqueue.admin.cells import badge, narrowed, resting
from django_pgqueue.admin.keyset_list import (
    FilterForm,
    choice_field,
    queue_field,
    text_field,
)
from django_pgqueue.admin.payload import redact_json
from django_pgqueue.conf import get_settings
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.lag import PartitionLag, lags
from django_pgqueue.log.names import MESSAGE_NAME_CHARACTERS_MAX
from django_pgqueue.log.subscriptions import STALE_AFTER
from django_pgqueue.models import ConsumerGroup, Job, Message, Subscription, Topic
from django_pgqueue.operators import human
from django_pgqueue.operators.filters import equal, part_of
from django_pgqueue.operators.lanes import kind
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.operators.pausable import SUBSCRIPTION
from django_pgqueue.operators.states import Behind, behind_of, subscription_state
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_subscriptions as operate
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import living_plans

# Listeners of a topic that its page lists.
LISTENERS_MAX = 100

# Messages that lists count, per partition; the page of a group counts further. Where
# more groups than that stand in a list, fewer of each: they are counted together.
LISTED_MESSAGES_MAX = 1_000
LISTED_GROUPS = 25

LABELS = {
    "beyond": _("beyond"),
    "halted": _("halted"),
    "paused": _("paused"),
    "reading": _("reading"),
    "retrying": _("retrying"),
    "idle": _("idle"),
    "held back": _("held back"),
    "waiting": _("waiting"),
    "unserved": _("unserved"),
}


# Of a subscription: the colour of each state's badge, and its word.
BADGES = {
    "disabled": ("paused", _("disabled")),
    "stale": ("stale", _("stale")),
    "held": ("subscription-held", _("held")),
    "full": ("subscription-full", _("full")),
    "back-filling": ("running", _("back-filling")),
    "enabled": ("active", _("enabled")),
}


def is_stale() -> Case:
    """Return whether code has declared a row, and long no more; by the clock."""
    return Case(
        When(
            Q(source="code", disabled_at=None)
            & Q(last_declared_at__lt=Now() - STALE_AFTER),
            then=Value(True),
        ),
        default=Value(False),
        output_field=BooleanField(),
    )


def subscriptions_of(topic: Any) -> list[tuple[Any, SafeString, str]]:
    """Return the subscriptions that can match messages of *topic*, with states."""
    rows = _rows(Subscription).filter(Q(topic=topic.name) | Q(topic=None))
    rows = rows.annotate(is_stale=is_stale()).order_by("queue", "pattern", "task")
    return [
        (row, subscription_badge(row), where_of(row)) for row in rows[:LISTENERS_MAX]
    ]


def groups_of(topic: Any) -> list[tuple[Any, Behind, SafeString]]:
    """Return the groups that read the log of *topic*, with their lag and state."""
    rows = list(_rows(ConsumerGroup).filter(topic_id=topic.pk)[:LISTENERS_MAX])
    rows.sort(key=lambda row: row.name)
    return [
        (row, behind, group_badge(behind))
        for row, behind in zip(rows, listed_behind(rows), strict=True)
    ]


def listed_behind(rows: Sequence[Any]) -> list[Behind]:
    """Return how far the groups of a list are behind, in its order."""
    if not rows:
        return []
    plans = read_plans()
    limit = LISTED_MESSAGES_MAX * LISTED_GROUPS // max(len(rows), LISTED_GROUPS)
    found = read_lags(rows, limit=limit)
    return [behind_of(row, found[row.pk], plans, limit=limit) for row in rows]


def read_lags(rows: Sequence[Any], *, limit: int) -> dict[int, list[PartitionLag]]:
    """Return how far groups are behind in each of their partitions, by their ids."""
    with database.cursor() as cursor:
        return lags(cursor, [row.pk for row in rows], limit=limit)


def read_plans() -> set[QueuePlan]:
    """Return what living workers serve."""
    with database.cursor() as cursor:
        return living_plans(cursor)


def group_badge(behind: Behind) -> SafeString:
    """Return what a group does, and how many of its partitions are halted."""
    shown = state_badge(behind.state)
    if not behind.halted:
        return shown
    told = _("%(halted)d of %(count)d partitions") % {
        "halted": len(behind.halted),
        "count": behind.partitions,
    }
    if behind.state != "halted":
        told = _("halted: %(told)s") % {"told": told}
    return format_html('{} <span class="quiet">{}</span>', shown, told)


def state_badge(state: str) -> SafeString:
    """Return the state of a partition or a group."""
    return badge(f"group-{state.replace(' ', '-')}", LABELS[state])


def subscription_badge(row: Any) -> SafeString:
    """Return whether a subscription routes messages, and is still declared."""
    return badge(*BADGES[subscription_state(row)])


def where_of(row: Any) -> str:
    """Return what a payload must contain, without the values of secret names."""
    if row.payload_filter is None:
        return ""
    return redact_json(json.dumps(row.payload_filter, ensure_ascii=False))


def where_shown(row: Any) -> SafeString | None:
    """Return the same for the page of a row."""
    where = where_of(row)
    return format_html("<code>{}</code>", where) if where else None


def _rows(model: type[Model]) -> QuerySet[Any]:
    rows: QuerySet[Any] = model._default_manager.using(get_settings().database).all()
    return rows


STATES = [
    ("enabled", _("enabled")),
    ("disabled", _("disabled")),
    ("stale", _("stale")),
    ("full", _("held or full")),
    ("backfill", _("back-filling")),
]


class SubscriptionFilters(FilterForm):
    """A part of the pattern, a queue, a part of the task's name, and a state."""

    meanings = {
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

    q = text_field(_("Pattern"), characters=MESSAGE_NAME_CHARACTERS_MAX)
    queue = queue_field()
    task = text_field(_("Task"), _("part of its name"))
    state = choice_field(_("State"), STATES)


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
    "pause": _("then messages stay in the log"),
    "drop_oldest": _("then the oldest are cancelled"),
    "refuse": _("then messages are refused"),
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
    label=_("Delete"),
    help=_("For good. What code declares stays."),
    run=on_each(lambda row, work: operate.delete(row.pk)),
    done=_("%(count)d deleted."),
    entry=_("Deleted."),
    flag=DELETION,
    left=_("%(count)d left, declared by code lately: disable instead."),
    form=Confirm,
    warning=_(
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
    change_form_template = "admin/pgqueue/subscription.html"
    filter_form = SubscriptionFilters
    computed = {"is_stale": is_stale()}
    acts = (*pausing(SUBSCRIPTION), DELETE)
    named_by = ("pattern", "queue", "task", "disabled_by", "disabled_reason")
    list_display = ("pattern", "state", "queue_name", "task", "where", "declared")
    list_reads = (
        *("pattern", "source", "queue", "task", "payload_filter", "last_declared_at"),
        *("disabled_at", "disabled_by", "disabled_reason", "backfill_position"),
        *("held_at", "full_at"),
    )
    fields = (
        *("pattern", "topic_link", "payload_filter_shown", "task", "queue_jobs"),
        *("priority", "max_attempts", "lane", "backlog_share", "full_at", "held_at"),
        *("start", "back_fill", "lost_told", "disabled_at", "disabled_by"),
        *("disabled_reason", "source_shown", "last_declared_at", "created_at"),
    )

    # The list --------------------------------------------------------------------

    @admin.display(description=_("state"))
    def state(self, row: Any) -> SafeString:
        """Show the state; who disabled it, when and why; how far the back-fill is."""
        shown = resting(subscription_badge(row), row, SUBSCRIPTION)
        if row.disabled_at is not None or row.backfill_position is None:
            return shown
        place = _("up to id %(id)s") % {"id": row.backfill_position}
        return format_html('{}<br><span class="quiet">{}</span>', shown, place)

    queue_name = column(_("queue"), lambda row: narrowed(row.queue, queue=row.queue))

    @admin.display(description=_("where"))
    def where(self, row: Any) -> str:
        """Show what a payload must contain."""
        text = where_of(row)
        return format_html('<code class="pgqueue-text">{}</code>', text) if text else ""

    @admin.display(description=_("last declared"))
    def declared(self, row: Any) -> Any:
        """Show when code declared it last."""
        if row.source != "code":
            return _("by a user")
        return moments.short(row.last_declared_at, row.clock)

    # The page of one -------------------------------------------------------------

    heading = column(None, subscription_badge)
    payload_filter_shown = column(_("where"), where_shown)
    lane = column(_("lane"), lane_told)
    backlog_share = column(_("backlog"), backlog_told)
    lost_told = column(_("lost"), lambda row: row.lost and row.lost["message"])
    source_shown = column(_("source"), lambda row: row.get_source_display())

    @admin.display(description=_("topic"))
    def topic_link(self, row: Any) -> Any:
        """Lead to the topic, if it is known; to all messages without its page."""
        if row.topic is None:
            return _("any")
        if not self.has_page(Message) or not self.has_page(Topic):
            return self.link(Message, row.topic)
        topics = Topic.objects.using(get_settings().database)
        topic = topics.filter(name=row.topic).values_list("pk", flat=True).first()
        if topic is None:
            return _("%(topic)s, not known yet") % {"topic": row.topic}
        return self.link(Topic, row.topic, topic)

    @admin.display(description=_("queue"))
    def queue_jobs(self, row: Any) -> str:
        """Show the queue, and lead to the jobs in it."""
        if not self.has_page(Job):
            return str(row.queue)
        jobs = self.link(Job, _("its jobs"), queue=row.queue, q=row.task)
        return format_html("{} ({})", row.queue, jobs)

    @admin.display(description=_("back-fill"))
    def back_fill(self, row: Any) -> str | None:
        """Show how far it is."""
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

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add after how many days code counts as gone."""
        return {"stale_days": STALE_AFTER.days}

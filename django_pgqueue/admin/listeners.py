"""Listeners: who gets the messages of a topic, as rows of a table on its page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import BooleanField, Case, Model, Q, QuerySet, Value, When
from django.db.models.functions import Now
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.cells import badge
from django_pgqueue.admin.payload import redact_json
from django_pgqueue.conf import get_settings
from django_pgqueue.log.lag import PartitionLag, lags
from django_pgqueue.log.subscriptions import STALE_AFTER
from django_pgqueue.models import ConsumerGroup, Subscription
from django_pgqueue.operators import human
from django_pgqueue.operators.pausable import Pausable
from django_pgqueue.operators.states import Behind, behind_of, subscription_state
from django_pgqueue.tasks import database
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import living_plans

if TYPE_CHECKING:
    from django_pgqueue.admin.acting import ActingAdmin

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


def subscription_lines(page: ActingAdmin, topic: Any) -> list[dict[str, Any]]:
    """Return the subscriptions that can match messages of *topic*."""
    rows = _rows(Subscription).filter(Q(topic=topic.name) | Q(topic=None))
    rows = rows.annotate(is_stale=is_stale()).order_by("queue", "pattern", "task")
    return [
        {
            "title": _link(page, Subscription, row.pk, row.pattern),
            "state": subscription_badge(row),
            "queue": row.queue,
            "task": row.task,
            "where": where_of(row),
        }
        for row in rows[:LISTENERS_MAX]
    ]


def group_lines(page: ActingAdmin, topic: Any) -> list[dict[str, Any]]:
    """Return the groups that read the log of *topic*, with their lag."""
    rows = list(_rows(ConsumerGroup).filter(topic_id=topic.pk)[:LISTENERS_MAX])
    rows.sort(key=lambda row: row.name)
    return [
        {
            "title": _link(page, ConsumerGroup, row.pk, row.name),
            "state": group_badge(behind),
            "queue": row.queue,
            "task": row.task,
            "lag": behind.shown,
            "age": human.age(behind.seconds),
        }
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


def resting(shown: SafeString, row: Any, kind: Pausable) -> SafeString:
    """Return the state of a row with when, by whom and why it is paused, if it is."""
    at, by, reason = (getattr(row, name) for name in kind.columns)
    if at is None:
        return shown
    if kind.can_end and row.paused_until is not None:
        until = moments.short(row.paused_until, row.clock)
        shown = format_html(
            '{} <span class="quiet">{} {}</span>', shown, _("ends"), until
        )
    return format_html(
        '{}<br><span class="quiet pgqueue-text">{} {} {}: {}</span>',
        shown,
        moments.short(at, row.clock),
        _("by"),
        by or "?",
        reason or "?",
    )


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


def _link(page: ActingAdmin, model: type[Model], key: int, text: str) -> str:
    if not page.has_page(model):
        return text
    url = page._row_url(key, model)
    return format_html('<a class="pgqueue-name" href="{}">{}</a>', url, text)

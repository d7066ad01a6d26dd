"""The topics: how much their logs hold, who reads them, and who holds them back."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.db import connections
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_pgqueue.admin.acting import ActingAdmin, column, limited
from django_pgqueue.admin.acts import Act, on_each
from django_pgqueue.admin.cells import Difference, badge
from django_pgqueue.admin.send import PUBLISH
from django_pgqueue.admin.subscriptions import groups_of, subscriptions_of
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.browse import COUNTED_MESSAGES_MAX, Day, count_since, days, ends
from django_pgqueue.log.generations import former_numbers, numbers_of, spans
from django_pgqueue.log.lag import PUBLISHING_SECONDS_MAX, Holder, holders
from django_pgqueue.log.names import PARTITIONS_MAX
from django_pgqueue.log.start import first_id
from django_pgqueue.models import ConsumerGroup, Message, Subscription, Topic
from django_pgqueue.operators import human
from django_pgqueue.operators.bulk_acts import permission_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups as operate


class PartitionsForm(forms.Form):
    """How many."""

    partitions = forms.IntegerField(
        label=_("Partitions"), min_value=1, max_value=PARTITIONS_MAX
    )


REPARTITION = Act(
    name="repartition",
    permissions=("seek",),
    label=_("Repartition…"),
    help=_("So many readers of a group can work at a time."),
    run=on_each(
        lambda row, work: operate.repartition(row.name, work.data["partitions"]),
        TopicError,
    ),
    done=_("%(count)d changed to %(partitions)d partitions."),
    entry=_("Repartitioned: %(partitions)d partitions."),
    left=_("%(count)d had so many already."),
    order="name",
    form=PartitionsForm,
    said=lambda row: {"partitions": row.partitions},
    warning=_(
        "What is published from now on goes to new partitions. Groups read the former "
        "ones to their end beside them, so that each key keeps its order; nobody "
        "waits, and nothing is lost. A halted partition holds up what shares its keys. "
        "Say the same count where code declares the topic."
    ),
)


LATELY = timedelta(days=1)

REPLAY = Act(
    name="replay",
    permissions=(permission_of("replay"),),
    label=_("Replay…"),
    help=_("A subscription or a group gets messages once more."),
    view="replay",
)


def _bytes(row: Any) -> str:
    """Say how many bytes of messages there are; "": nobody has measured them."""
    return "" if row.log_bytes is None else human.size(row.log_bytes)


def drift(row: Any) -> list[Difference]:
    """Return what code declares of a topic otherwise than the topic has it."""
    said = row.declared if isinstance(row.declared, dict) else {}
    retain, waits = (
        None if value is None else value.total_seconds()
        for value in (row.retain, row.wait_for_ingest)
    )
    # What code declares, what the row has, how it is shown, and whether code that says
    # nothing of it declares nothing.
    terms = (
        (_("partitions"), "partitions", row.partitions, str, False),
        (_("retention"), "retain_seconds", retain, _seconds, False),
        (_("wait for ingest"), "wait_for_ingest_seconds", waits, _seconds, True),
        (_("bytes kept"), "retain_bytes", row.retain_bytes, _most, True),
    )
    return [
        Difference(label, text(said.get(key)), text(here))
        for label, key, here, text, is_declared in terms
        if ((is_declared and said) or key in said) and said.get(key) != here
    ]


def _who_says(row: Any) -> Any:
    if row.retain is None:
        return _("the setting RETENTION")
    said = row.declared if isinstance(row.declared, dict) else {}
    if said.get("retain_seconds") == row.retain.total_seconds():
        return _("declared by code")
    return _("set in its row")


def _span(length: timedelta | None) -> Any:
    if length is None:
        return _("for ever")
    return human.age(length.total_seconds())


def _kept(row: Any) -> Any:
    """Say for how long messages stay, and how many bytes of them."""
    most = row.retain_bytes
    kept = get_settings().retention.log if row.retain is None else row.retain
    return _span(kept) + ("" if most is None else f", {human.size(most)}")


def _measured(row: Any) -> Any:
    if row.log_bytes is None:
        return None
    told = _bytes(row)
    if row.retain_bytes is not None:
        told = _("%(size)s of %(most)s") % {
            "size": told,
            "most": human.size(row.retain_bytes),
        }
    return _("%(size)s, estimated %(when)s") % {
        "size": told,
        "when": human.distance(row.log_bytes_at, row.clock),
    }


def _waits(row: Any) -> Any:
    """Say how much longer messages stay that the pipeline job ingest has not read."""
    waits = row.wait_for_ingest
    if waits is None:
        waits = get_settings().retention.wait_for_ingest
    return _span(waits) if waits else None


def _most(value: Any) -> Any:
    return human.size(value) if isinstance(value, int) else _("any number")


def _seconds(value: Any) -> Any:
    if value is None:
        return _("the setting RETENTION")
    if isinstance(value, (int, float)):
        return human.age(value)
    return str(value)


def _size(log: list[Day], now: datetime) -> Any:
    begun = [each for each in log if each.day <= now.astimezone(UTC).date()]
    if not begun:
        return _("no day")
    told = ngettext(
        "%(count)d day since %(first)s, %(size)s",
        "%(count)d days since %(first)s, %(size)s",
        len(begun),
    )
    return told % {
        "count": len(begun),
        "first": begun[0].day.isoformat(),
        "size": _of_most(sum(each.bytes for each in begun)),
    }


def _of_most(size: int) -> Any:
    most = get_settings().retention.log_bytes
    return human.size(size) + (_(" of %s") % human.size(most) if most else "")


def _partitions(row: Any) -> Any:
    if not row.first_partition:
        return str(row.partitions)
    numbers = range(row.first_partition, row.first_partition + row.partitions)
    told = {"count": row.partitions, "numbers": spans(numbers)}
    return _("%(count)d, %(numbers)s") % told


def _former(numbers: list[int]) -> Any:
    if not numbers:
        return None
    told = _("%(numbers)s, until every group has read them")
    return told % {"numbers": spans(numbers)}


def _is_long(holder: Holder) -> bool:
    return holder.is_longer(PUBLISHING_SECONDS_MAX)


def _for(holder: Holder) -> Any:
    if holder.seconds is None:
        return _("for an unknown time")
    return _("for %(span)s") % {"span": human.age(holder.seconds)}


def _held_by(holder: Holder | None) -> Any:
    if holder is None:
        return None
    told = _("%(span)s, by the transaction of pid %(pid)s (%(application)s, %(state)s)")
    return told % {
        "span": _for(holder),
        "pid": holder.pid or "?",
        "application": holder.application_name or _("no name"),
        "state": holder.state or "?",
    }


@admin.register(Topic)
class TopicAdmin(ActingAdmin):
    """Each topic, by name."""

    acts = (PUBLISH, REPARTITION, REPLAY)
    named_by = ("name", "partitions")
    links = (
        (Message, _("Messages")),
        (Subscription, _("Subscriptions")),
        (ConsumerGroup, _("Consumer groups")),
    )
    keyset = Keyset(("name",), is_by_time=False)
    change_form_template = "admin/pgqueue/topic.html"
    list_display = (
        *("name", "partition_count", "retention", "bytes", "lately"),
        *("subscriptions", "groups", "held"),
    )
    list_reads = (
        *("name", "partitions", "retain", "retain_bytes", "log_bytes"),
        *("declared", "removed_to", "wait_for_ingest"),
    )

    # What is read ----------------------------------------------------------------

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add what each had lately, who listens, and who holds it back."""
        settings = get_settings()
        with connections[settings.database].cursor() as cursor:
            held = {each.topic_id: each for each in reversed(holders(cursor))}
            counts = {}
            if rows:
                since = human.in_utc(rows[0].clock) - LATELY
                counts = count_since(
                    cursor, [row.pk for row in rows], first_id(cursor, since), since
                )
        topics = [row.name for row in rows]
        wanting = Subscription.objects.using(settings.database)
        subscriptions = Counter(
            wanting.filter(Q(topic__in=topics) | Q(topic=None)).values_list(
                "topic", flat=True
            )
        )
        reading = ConsumerGroup.objects.using(settings.database)
        groups = Counter(
            reading.filter(topic_id__in=[row.pk for row in rows]).values_list(
                "topic_id", flat=True
            )
        )
        for row in rows:
            row.holder = held.get(row.pk)
            row.count = counts.get(row.pk, 0)
            row.subscription_count = subscriptions[row.name] + subscriptions[None]
            row.group_count = groups[row.pk]
        return rows

    # Replay ----------------------------------------------------------------------

    def replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a replay, or begin it."""
        from django_pgqueue.admin.bulk_form import replay_page

        with limited():
            row = self.named_row(request, object_id)
            if row is None:
                return self.elsewhere(request, object_id)
            return replay_page(self, request, row)

    # The list --------------------------------------------------------------------

    @admin.display(description=_("partitions"))
    def partition_count(self, row: Any) -> str:
        """Show how many it has, marked where code declares another number."""
        said = row.declared if isinstance(row.declared, dict) else {}
        if said.get("partitions", row.partitions) == row.partitions:
            return str(row.partitions)
        return format_html(
            "{} {}", str(row.partitions), badge("changed", _("not as declared"))
        )

    retention = column(
        _("retention"),
        lambda row: format_html(
            '{}<br><span class="quiet">{}</span>', _kept(row), _who_says(row)
        ),
    )

    bytes = column(_("size"), _bytes)

    @admin.display(description=_("messages in 24 h"))
    def lately(self, row: Any) -> str:
        """Show how many there were, as a link to them."""
        text = human.count(row.count, is_more=row.count >= COUNTED_MESSAGES_MAX)
        return self.link(Message, text, topic=row.name)

    subscriptions = column(_("subscriptions"), lambda row: str(row.subscription_count))
    groups = column(_("groups"), lambda row: str(row.group_count))

    @admin.display(description=_("held back"))
    def held(self, row: Any) -> str:
        """Show for how long a transaction has held its readers back."""
        if row.holder is None:
            return ""
        state = "group-held-back" if _is_long(row.holder) else "held"
        return badge(state, _for(row.holder))

    # The page of one topic -------------------------------------------------------

    fields = (
        *("name", "its_partitions", "former", "kept", "waits", "measured", "schema"),
        *("lately", "oldest", "newest", "removed", "log", "held_by"),
        *("last_declared_at", "created_at"),
    )
    its_partitions = column(_("partitions"), _partitions)
    former = column(_("former partitions"), lambda row: _former(row.former))
    kept = column(_("retention"), lambda row: f"{_kept(row)} ({_who_says(row)})")
    waits = column(_("waits for ingest"), _waits)
    measured = column(_("size"), _measured)
    removed = column(_("removed up to id"), lambda row: row.removed_to or None)
    log = column(
        _("log of all topics"), lambda row: _size(row.log, human.in_utc(row.clock))
    )
    held_by = column(_("held back"), lambda row: _held_by(row.holder))

    @admin.display(description=_("oldest message"))
    def oldest(self, row: Any) -> str | None:
        """Lead to the first message that the log has."""
        return self.link_to(Message, row.ends[0])

    @admin.display(description=_("newest message"))
    def newest(self, row: Any) -> str | None:
        """Lead to the last one."""
        return self.link_to(Message, row.ends[1])

    def detailed(self, row: Any) -> Any:
        """Add what the log holds of it, and of all topics."""
        with database.cursor() as cursor:
            row.ends = ends(cursor, row.pk, numbers_of(cursor, row.pk))
            row.former = former_numbers(cursor, row.pk)
            row.log = days(cursor)
        return super().detailed(row)

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add who listens, and what differs from the code."""
        return {
            "is_held_long": row.holder is not None and _is_long(row.holder),
            "drift": drift(row),
            "subscriptions": subscriptions_of(row),
            "groups": groups_of(row),
        }

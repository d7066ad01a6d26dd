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
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_pgqueue.admin import moments
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Button, Outcome, Work, may
from django_pgqueue.admin.cells import Difference, Note, badge, name
from django_pgqueue.admin.listeners import group_lines, subscription_lines
from django_pgqueue.admin.read_only import Fact, column, limited
from django_pgqueue.admin.send import PUBLISH
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.browse import (
    COUNTED_MESSAGES_MAX,
    Day,
    count_since,
    days,
    ends,
)
from django_pgqueue.log.generations import former_numbers, numbers_of, spans
from django_pgqueue.log.lag import PUBLISHING_SECONDS_MAX, Holder, holders
from django_pgqueue.log.names import PARTITIONS_MAX
from django_pgqueue.log.start import first_id
from django_pgqueue.models import (
    ConsumerGroup,
    Message,
    Subscription,
    Topic,
)
from django_pgqueue.operators import human
from django_pgqueue.operators.bulk_acts import permission_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups as operate


class PartitionsForm(forms.Form):
    """How many."""

    partitions = forms.IntegerField(
        label=gettext_lazy("Partitions"), min_value=1, max_value=PARTITIONS_MAX
    )


def _repartition(work: Work) -> list[Any]:
    done = []
    for key, row in work.rows.items():
        try:
            if operate.repartition(row.name, work.data["partitions"]):
                done.append(key)
        except TopicError as error:
            work.problems.append(str(error))
    return [done]


REPARTITION = Act(
    name="repartition",
    permissions=("seek",),
    label=gettext_lazy("Repartition…"),
    help=gettext_lazy("So many readers of a group can work at a time."),
    run=_repartition,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d topic has %(partitions)d partitions now.",
                "%(count)d topics have %(partitions)d partitions now.",
                "count",
            ),
            gettext_lazy("Repartitioned: %(partitions)d partitions."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had so many already.", "%(count)d had so many already.", "count"
    ),
    order="name",
    form=PartitionsForm,
    said=lambda row: {"partitions": row.partitions},
    warning=gettext_lazy(
        "What is published from now on goes to new partitions. Groups read the former "
        "ones to their end beside them, so that each key keeps its order; nobody "
        "waits, and nothing is lost. A halted partition holds up what shares its keys. "
        "Say the same count where code declares the topic."
    ),
)


LATELY = timedelta(days=1)

REPLAY = "replay"
NEEDED = (permission_of(REPLAY),)


def _bytes(row: Any) -> str:
    """Say how many bytes of messages there are; "": nobody has measured them."""
    return "" if row.log_bytes is None else human.size(row.log_bytes)


@admin.register(Topic)
class TopicAdmin(ActingAdmin):
    """Each topic, by name."""

    acts = (PUBLISH, REPARTITION)
    named_by = ("name", "partitions")
    keyset = Keyset(("name",), is_by_time=False)
    change_form_template = "admin/pgqueue/topic.html"
    list_display = (
        *("title", "partition_count", "retention", "bytes", "lately"),
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

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Lead to what is published and who listens."""
        pages = [
            (Message, _("Messages")),
            (Subscription, _("Subscriptions")),
            (ConsumerGroup, _("Consumer groups")),
        ]
        return {
            "tools": [
                (self._url(model, "changelist"), label)
                for model, label in pages
                if self.has_page(model)
            ]
        }

    # Replay ----------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the form of a replay."""
        return [self.own_url(REPLAY, self._replay, NEEDED), *super().get_urls()]

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """Offer to replay."""
        offered = super().buttons(request, row)
        if may(request, *NEEDED):
            offered.append(
                Button(
                    url=self.act_url(request, REPLAY, row),
                    label=_("Replay…"),
                    help=_("A subscription or a group gets messages once more."),
                    is_post=False,
                )
            )
        return offered

    def _replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        from django_pgqueue.admin.bulk_form import ReplayPage

        with limited():
            key = self._key(object_id)
            row = self.rows_by_key(request, [key]).get(key) if key is not None else None
            if row is None:
                return self.elsewhere(request, object_id)
            return ReplayPage(self, request, row).answer()

    # The list --------------------------------------------------------------------

    title = column(gettext_lazy("name"), lambda row: name(row.name))

    @admin.display(description=gettext_lazy("partitions"))
    def partition_count(self, row: Any) -> SafeString | str:
        """Show how many it has, marked where code declares another number."""
        if not any(each.label == _("partitions") for each in drift(row)):
            return str(row.partitions)
        return format_html(
            "{} {}", str(row.partitions), badge("changed", _("not as declared"))
        )

    retention = column(
        gettext_lazy("retention"),
        lambda row: format_html(
            '{}<br><span class="quiet">{}</span>', _kept(row), _who_says(row)
        ),
    )

    bytes = column(gettext_lazy("size"), _bytes)

    @admin.display(description=gettext_lazy("messages in 24 h"))
    def lately(self, row: Any) -> SafeString | str:
        """Show how many there were, as a link to them."""
        text = human.count(row.count, is_more=row.count >= COUNTED_MESSAGES_MAX)
        return self.link(Message, text, topic=row.name)

    subscriptions = column(
        gettext_lazy("subscriptions"), lambda row: str(row.subscription_count)
    )
    groups = column(gettext_lazy("groups"), lambda row: str(row.group_count))

    @admin.display(description=gettext_lazy("held back"))
    def held(self, row: Any) -> SafeString | str:
        """Show for how long a transaction has held its readers back."""
        if row.holder is None:
            return ""
        state = "group-held-back" if _is_long(row.holder) else "held"
        return badge(state, _for(row.holder))

    # The page of one topic -------------------------------------------------------

    def facts(self, row: Any) -> list[Fact]:
        """Say what the log holds, for how long, and who declared it."""
        with database.cursor() as cursor:
            numbers = numbers_of(cursor, row.pk)
            oldest, newest = ends(cursor, row.pk, numbers)
            former = former_numbers(cursor, row.pk)
            log = days(cursor)
        clock = row.clock
        return [
            (_("Name"), row.name),
            (_("Partitions"), _partitions(row)),
            (_("Former partitions"), _former(former)),
            (_("Retention"), f"{_kept(row)} ({_who_says(row)})"),
            (_("Waits for ingest"), _waits(row)),
            (_("Size"), _measured(row)),
            (_("Schema"), row.schema),
            (_("Messages in 24 h"), self.lately(row)),
            (_("Oldest message"), self.link_to(Message, oldest)),
            (_("Newest message"), self.link_to(Message, newest)),
            (_("Removed up to id"), str(row.removed_to) if row.removed_to else None),
            (_("Log of all topics"), _size(log, human.in_utc(clock))),
            (_("Held back"), _held_by(row.holder)),
            (_("Declared last"), moments.full(row.last_declared_at, clock)),
            (_("Made"), moments.full(row.created_at, clock)),
        ]

    def detail_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Add who listens, and what differs from the code."""
        return {
            "media": self.media,
            "notes": _notes(row),
            "drift": drift(row),
            "subscriptions": subscription_lines(self, row),
            "groups": group_lines(self, row),
        }


def drift(row: Any) -> list[Difference]:
    """Return what code declares of a topic otherwise than the topic has it."""
    said = row.declared if isinstance(row.declared, dict) else {}
    found = []
    if "partitions" in said and said["partitions"] != row.partitions:
        found.append(
            Difference(_("partitions"), str(said["partitions"]), str(row.partitions))
        )
    if "retain_seconds" in said:
        here = None if row.retain is None else row.retain.total_seconds()
        if said["retain_seconds"] != here:
            told = _seconds(said["retain_seconds"])
            found.append(Difference(_("retention"), told, _seconds(here)))
    waits = None if row.wait_for_ingest is None else row.wait_for_ingest.total_seconds()
    if said and said.get("wait_for_ingest_seconds") != waits:
        told = _seconds(said.get("wait_for_ingest_seconds"))
        found.append(Difference(_("wait for ingest"), told, _seconds(waits)))
    if said and said.get("retain_bytes") != row.retain_bytes:
        told, holds = _most(said.get("retain_bytes")), _most(row.retain_bytes)
        found.append(Difference(_("bytes kept"), told, holds))
    return found


def kept(row: Any) -> timedelta | None:
    """Return how long a topic's messages stay; None: for ever."""
    return log_retention() if row.retain is None else row.retain


def log_retention() -> timedelta | None:
    """Return how long messages stay where their topic says nothing; None: for ever."""
    return get_settings().retention.log


def _who_says(row: Any) -> str:
    if row.retain is None:
        return _("the setting RETENTION")
    said = row.declared if isinstance(row.declared, dict) else {}
    if said.get("retain_seconds") == row.retain.total_seconds():
        return _("declared by code")
    return _("set in its row")


def _span(length: timedelta | None) -> str:
    if length is None:
        return _("for ever")
    return human.age(length.total_seconds())


def _kept(row: Any) -> str:
    """Say for how long messages stay, and how many bytes of them."""
    most = row.retain_bytes
    return _span(kept(row)) + ("" if most is None else f", {human.size(most)}")


def _measured(row: Any) -> str | None:
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


def _waits(row: Any) -> str | None:
    """Say how much longer messages stay that the pipeline job ingest has not read."""
    waits = row.wait_for_ingest
    if waits is None:
        waits = get_settings().retention.wait_for_ingest
    return _span(waits) if waits else None


def _most(value: Any) -> str:
    return human.size(value) if isinstance(value, int) else _("any number")


def _seconds(value: Any) -> str:
    if value is None:
        return _("the setting RETENTION")
    if isinstance(value, (int, float)):
        return human.age(value)
    return str(value)


def _size(log: list[Day], now: datetime) -> str:
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


def _of_most(size: int) -> str:
    most = get_settings().retention.log_bytes
    return human.size(size) + (_(" of %s") % human.size(most) if most else "")


def _partitions(row: Any) -> str:
    if not row.first_partition:
        return str(row.partitions)
    numbers = range(row.first_partition, row.first_partition + row.partitions)
    told = {"count": row.partitions, "numbers": spans(numbers)}
    return _("%(count)d, %(numbers)s") % told


def _former(numbers: list[int]) -> str | None:
    if not numbers:
        return None
    told = _("%(numbers)s, until every group has read them")
    return told % {"numbers": spans(numbers)}


def _is_long(holder: Holder) -> bool:
    return holder.is_longer(PUBLISHING_SECONDS_MAX)


def _for(holder: Holder) -> str:
    if holder.seconds is None:
        return _("for an unknown time")
    return _("for %(span)s") % {"span": human.age(holder.seconds)}


def _held_by(holder: Holder | None) -> str | None:
    if holder is None:
        return None
    told = _("%(span)s, by the transaction of pid %(pid)s (%(application)s, %(state)s)")
    return told % {
        "span": _for(holder),
        "pid": holder.pid or "?",
        "application": holder.application_name or _("no name"),
        "state": holder.state or "?",
    }


def _notes(row: Any) -> list[Note]:
    if row.holder is None or not _is_long(row.holder):
        return []
    text = _(
        "A transaction has published to this topic and is still open, so its groups "
        "read nothing that is newer. Nothing is lost: they go on when it ends. If it "
        "was forgotten, end it:"
    )
    return [Note(text, row.holder.ended_by)]

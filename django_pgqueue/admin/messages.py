"""Messages of topics, and the inbox: what was published and what came in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import payload
from django_pgqueue.admin.acting import ActingAdmin, column
from django_pgqueue.admin.cells import name, narrowed
from django_pgqueue.admin.keyset_list import FilterForm, KeysetList, text_field
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.bounds import EXTERNAL_ID_CHARACTERS_MAX, SOURCE_CHARACTERS_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.log.browse import ID_MAX, Wanted, browse
from django_pgqueue.log.generations import numbers_of
from django_pgqueue.log.names import (
    KEY_CHARACTERS_MAX,
    MESSAGE_NAME_CHARACTERS_MAX,
    TOPIC_CHARACTERS_MAX,
)
from django_pgqueue.log.start import first_id
from django_pgqueue.models import InboxEntry, Message, Topic
from django_pgqueue.operators.filters import equal, id_or, part_of
from django_pgqueue.operators.human import in_utc
from django_pgqueue.tasks import database

# Characters of an external id that the list shows.
ID_SHOWN_CHARACTERS_MAX = 60


class InboxFilters(FilterForm):
    """An external id, and a source."""

    meanings = {
        "q": equal("external_id"),
        "source": equal("source"),
    }

    q = text_field(
        _("External id"),
        _("the whole id"),
        characters=EXTERNAL_ID_CHARACTERS_MAX,
        strip=False,
    )
    source = text_field(
        _("Source"),
        _("its whole name"),
        characters=SOURCE_CHARACTERS_MAX,
        strip=False,
    )


@admin.register(InboxEntry)
class InboxEntryAdmin(ActingAdmin):
    """What inbox() has noted, the newest first."""

    filter_form = InboxFilters
    list_display = ("id", "received_at", "source_name", "title")
    fields = ("source_name", "external_id", "received_at")
    list_reads = ("source", "external_id", "received_at")

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return the one row of a source and an id, of however many there are."""
        source, known_as = filter_form.given("source"), filter_form.given("q")
        if source is None or known_as is None:
            return None
        rows = InboxEntry.objects.using(get_settings().database)
        found = rows.filter(source=source, external_id=known_as)
        return list(found.values_list("pk", flat=True))

    title = column(
        _("external id"),
        lambda row: name(Truncator(row.external_id).chars(ID_SHOWN_CHARACTERS_MAX)),
    )

    @admin.display(description=_("source"))
    def source_name(self, row: Any) -> Any:
        """Show who has sent it, as a link to all that came from there."""
        return self.link(InboxEntry, row.source, source=row.source)


class PlainMessageFilters(FilterForm):
    """An id or part of a name, a topic, a partition, and a time."""

    has_ids = True
    meanings = {
        "q": id_or(part_of("name")),
        "topic": lambda name: Q(topic_id__in=_topics(name).values("id")),
        "key": equal("key"),
        "partition": lambda text: Q(partition=int(text)),
        "since": equal("published_at__gte"),
    }

    q = text_field(
        _("Id or name"),
        _("4711, or part of a name"),
        characters=MESSAGE_NAME_CHARACTERS_MAX,
    )
    topic = text_field(_("Topic"), _("its whole name"), characters=TOPIC_CHARACTERS_MAX)
    partition = forms.RegexField(
        r"\A[0-9]{1,4}\Z", label=_("Partition"), required=False, empty_value=""
    )
    since = MomentField(label=_("From"), required=False)


class MessageFilters(PlainMessageFilters):
    """A key besides: for those who may see keys."""

    field_order = ("q", "topic", "key", "partition", "since")

    key = text_field(
        _("Key"), _("the whole key"), characters=KEY_CHARACTERS_MAX, strip=False
    )


class MessageList(KeysetList):
    """A page of messages."""

    filter_form: PlainMessageFilters

    # From this id on, where a time is asked for.
    first_id: int | None = None

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: Any = None
    ) -> QuerySet[Any]:
        """Leave out, by their ids, messages of before the time that is asked for."""
        rows = super().get_queryset(request, exclude_parameters)
        since = self.filter_form.given("since")
        if since is None:
            return rows
        self.first_id = _first_id(since)
        # What is looked through when no topic is chosen ends there, too.
        self.root_queryset = self.root_queryset.filter(pk__gte=self.first_id)
        return rows.filter(pk__gte=self.first_id)

    def find(self, start: str, *, rising: bool) -> tuple[list[Any], str | None]:
        """Look into the partitions of the topic, if one is chosen."""
        name = self.filter_form.given("topic")
        is_readable = self.filter_form.is_readable
        if name is None or self.filter_form.names_one_row or not is_readable:
            return super().find(start, rising=rising)
        wanted = self._wanted(name, start, rising=rising)
        if wanted is None:
            return [], None
        with database.cursor() as cursor:
            found = browse(
                cursor, wanted, limit=self.list_per_page + 1, is_oldest_first=rising
            )
        rows = self.queryset.filter(pk__in=found.ids).order_by(*self.order(rising))
        return list(rows), None if found.end is None else str(found.end)

    def _wanted(self, name: str, start: str, *, rising: bool) -> Wanted | None:
        topic = _topics(name).only("pk").first()
        if topic is None:
            return None
        partition = self.filter_form.given("partition")
        beyond: dict[str, int] = {}
        if start:
            (place,) = self.model_admin.keyset.values(self.model, start)
            beyond = {"above" if rising else "below": place}
        if self.first_id is not None:
            beyond["above"] = max(beyond.get("above", -1), self.first_id - 1)
        with database.cursor() as cursor:
            numbers = numbers_of(cursor, topic.pk)
        return Wanted(
            topic_id=topic.pk,
            partitions=numbers
            if partition is None
            # A partition that no topic can have has no messages.
            else [each for each in [int(partition)] if each < 2**15],
            name_part=self.filter_form.given("q"),
            key=self.filter_form.given("key"),
            above=beyond.get("above", -1),
            below=beyond.get("below", ID_MAX),
        )


def _topics(name: str) -> QuerySet[Topic]:
    return Topic.objects.using(get_settings().database).filter(name=name)


def _first_id(since: datetime) -> int:
    with database.cursor() as cursor:
        return first_id(cursor, in_utc(since))


# Characters of a key that the list shows.
KEY_SHOWN_CHARACTERS_MAX = 60


@admin.register(Message)
class MessageAdmin(ActingAdmin):
    """The log of all topics, the newest first."""

    filter_form = MessageFilters
    payload_columns = ("payload", "headers")
    key_columns = ("key",)
    payload_display = ("key_shown",)
    links = ((Topic, _("Topics")),)
    list_display = ("id", "published_at", "topic", "name", "key_shown", "place")
    fields = (
        *("id", "name", "topic_link", "key_link", "partition_link", "published_at"),
        "epoch",
    )
    list_reads = ("published_at", "topic_id", "partition", "name", "key")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that knows the index of the log."""
        return MessageList

    def filters(self, request: HttpRequest) -> FilterForm:
        """Look for a key only where the user may see keys."""
        form = MessageFilters if payload.may_see(request) else PlainMessageFilters
        return form(request.GET)

    def listed(self, rows: list[Any]) -> list[Any]:
        """Add the names of the topics."""
        topics = Topic.objects.using(get_settings().database).only("name")
        names = {
            key: topic.name
            for key, topic in topics.in_bulk({row.topic_id for row in rows}).items()
        }
        for row in rows:
            row.topic_name = names.get(row.topic_id, "")
        return rows

    # The list --------------------------------------------------------------------

    topic = column(
        _("topic"),
        lambda row: row.topic_name and narrowed(row.topic_name, topic=row.topic_name),
    )

    @admin.display(description=_("key"))
    def key_shown(self, row: Any) -> str:
        """Show the beginning of the key, as a link to all messages that have it."""
        if row.key is None:
            return ""
        short = Truncator(row.key).chars(KEY_SHOWN_CHARACTERS_MAX)
        return narrowed(short, topic=row.topic_name, key=row.key)

    place = column(
        _("partition"),
        lambda row: narrowed(
            row.partition, topic=row.topic_name, partition=row.partition
        ),
    )

    # The page of one message -----------------------------------------------------

    @admin.display(description=_("topic"))
    def topic_link(self, row: Any) -> str:
        """Lead to the topic."""
        return self.link(Topic, row.topic_name or row.topic_id, row.topic_id)

    @admin.display(description=_("key"))
    def key_link(self, row: Any) -> Any:
        """Lead to all messages of the topic that have the key."""
        if row.key is None or row.key is payload.HIDDEN:
            return row.key
        return self.link(Message, row.key, topic=row.topic_name, key=row.key)

    @admin.display(description=_("partition"))
    def partition_link(self, row: Any) -> str:
        """Lead to all messages of the topic in the partition."""
        asked = {"topic": row.topic_name, "partition": row.partition}
        return self.link(Message, str(row.partition), **asked)

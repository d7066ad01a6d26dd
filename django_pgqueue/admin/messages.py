"""Messages of topics, and the inbox: what was published and what came in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.cells import name
from django_pgqueue.admin.keyset_list import FilterForm, KeysetList, text_field
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.admin.read_only import Fact, ReadOnlyAdmin, column
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
from django_pgqueue.operators.filters import Meaning, equal, id_or, part_of
from django_pgqueue.operators.human import in_utc
from django_pgqueue.tasks import database

# Characters of an external id that the list shows.
ID_SHOWN_CHARACTERS_MAX = 60


class InboxFilters(FilterForm):
    """An external id, and a source."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
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
class InboxEntryAdmin(ReadOnlyAdmin):
    """What inbox() has noted, the newest first."""

    filter_form = InboxFilters
    list_display = ("number", "received", "source_name", "title")
    list_reads = ("source", "external_id", "received_at")

    def few_rows(self, filter_form: FilterForm) -> list[int] | None:
        """Return the one row of a source and an id, of however many there are."""
        source, known_as = filter_form.given("source"), filter_form.given("q")
        if source is None or known_as is None:
            return None
        rows = InboxEntry.objects.using(get_settings().database)
        found = rows.filter(source=source, external_id=known_as)
        return list(found.values_list("pk", flat=True))

    number = column(_("id"), lambda row: str(row.pk))
    received = column(
        _("received"), lambda row: moments.short(row.received_at, row.clock)
    )
    title = column(
        _("external id"),
        lambda row: name(Truncator(row.external_id).chars(ID_SHOWN_CHARACTERS_MAX)),
    )

    @admin.display(description=_("source"))
    def source_name(self, row: Any) -> Any:
        """Show who has sent it, as a link to all that came from there."""
        return self.link(InboxEntry, row.source, source=row.source)

    def facts(self, row: Any) -> list[Fact]:
        """Say what came, and when."""
        return [
            (_("Source"), self.source_name(row)),
            (_("External id"), row.external_id),
            (_("Received"), moments.full(row.received_at, row.clock)),
        ]


class PlainMessageFilters(FilterForm):
    """An id or part of a name, a topic, a partition, and a time."""

    has_ids = True
    meanings: ClassVar[Mapping[str, Meaning]] = {
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
class MessageAdmin(ReadOnlyAdmin):
    """The log of all topics, the newest first."""

    filter_form = MessageFilters
    payload_columns = ("payload", "headers")
    key_columns = ("key",)
    list_display = ("number", "published", "topic", "title", "key_shown", "place")
    list_reads = ("published_at", "topic_id", "partition", "name", "key")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that knows the index of the log."""
        return MessageList

    def filters(self, request: HttpRequest) -> FilterForm:
        """Look for a key only where the user may see keys."""
        form = MessageFilters if payload.may_see(request) else PlainMessageFilters
        return form(request.GET)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Show keys to those who may see payloads."""
        return tuple(
            name
            for name in self.list_display
            if name != "key_shown" or payload.may_see(request)
        )

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

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Lead to the topics."""
        if not self.has_page(Topic):
            return {}
        return {"tools": [(self._url(Topic, "changelist"), _("Topics"))]}

    number = column(_("id"), lambda row: str(row.pk))
    published = column(
        _("published"), lambda row: moments.short(row.published_at, row.clock)
    )
    topic = column(
        _("topic"),
        lambda row: _narrowed(row.topic_name, row.topic_name) if row.topic_name else "",
    )
    title = column(_("name"), lambda row: name(row.name))

    @admin.display(description=_("key"))
    def key_shown(self, row: Any) -> SafeString | str:
        """Show the beginning of the key, as a link to all messages that have it."""
        if row.key is None:
            return ""
        short = Truncator(row.key).chars(KEY_SHOWN_CHARACTERS_MAX)
        return _narrowed(short, row.topic_name, key=row.key)

    place = column(
        _("partition"),
        lambda row: _narrowed(
            str(row.partition), row.topic_name, partition=str(row.partition)
        ),
    )

    # The page of one message -----------------------------------------------------

    def facts(self, row: Any) -> list[Fact]:
        """Say where the message stands."""
        return [
            (_("Id"), str(row.pk)),
            (_("Name"), row.name),
            (
                _("Topic"),
                self.link(Topic, row.topic_name or row.topic_id, row.topic_id),
            ),
            (
                _("Key"),
                row.key
                if row.key is payload.HIDDEN
                else self._all(row, row.key, key=row.key),
            ),
            (
                _("Partition"),
                self._all(row, str(row.partition), partition=row.partition),
            ),
            (_("Published"), moments.full(row.published_at, row.clock)),
            (_("Epoch"), str(row.epoch)),
        ]

    def _all(self, row: Any, text: str | None, **query: Any) -> SafeString | str | None:
        """Return *text* as a link to all messages of the topic that have it."""
        if text is None:
            return None
        return self.link(Message, text, topic=row.topic_name, **query)


def _narrowed(text: str, topic: str, **query: str) -> SafeString:
    """Return *text* as a link within the list."""
    return format_html(
        '<a class="pgqueue-name" href="?{}">{}</a>',
        urlencode({"topic": topic, **query}),
        text,
    )

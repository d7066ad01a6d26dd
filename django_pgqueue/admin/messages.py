"""The messages of topics: what was published, when, under which key."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.cells import name
from django_pgqueue.admin.filter_form import FilterForm
from django_pgqueue.admin.message_list import (
    MessageFilters,
    MessageList,
    PlainMessageFilters,
)
from django_pgqueue.admin.read_only import Fact, ReadOnlyAdmin, column
from django_pgqueue.conf import get_settings
from django_pgqueue.models import Message, Topic

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

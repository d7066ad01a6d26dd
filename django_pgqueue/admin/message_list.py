"""
The list of messages: of one topic by the index of its log, else by id.

The log holds the messages of all topics, by id; those of a small topic are far apart
there. With a topic chosen, its partitions are read instead: log/browse.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.filter_form import FilterForm, text_field
from django_pgqueue.admin.keyset_list import KeysetList
from django_pgqueue.admin.moments import MomentField
from django_pgqueue.conf import get_settings
from django_pgqueue.log.browse import ID_MAX, Wanted, browse
from django_pgqueue.log.generations import numbers_of
from django_pgqueue.log.names import (
    KEY_CHARACTERS_MAX,
    MESSAGE_NAME_CHARACTERS_MAX,
    TOPIC_CHARACTERS_MAX,
)
from django_pgqueue.log.start import first_id
from django_pgqueue.models import Topic
from django_pgqueue.operators.filters import Meaning, equal, id_or, part_of
from django_pgqueue.operators.human import in_utc
from django_pgqueue.tasks import database


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

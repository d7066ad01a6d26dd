"""
The list of messages: of one topic by the index of its log, else by id.

The log holds the messages of all topics, by id; those of a small topic are far apart
there. With a topic chosen, its partitions are read instead: topics/browse.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.db import connections
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.filter_form import FilterForm, is_number
from django_pgqueue.admin.keyset_list import KeysetList
from django_pgqueue.admin.moment_field import MomentField
from django_pgqueue.conf import get_settings
from django_pgqueue.models import Topic
from django_pgqueue.operators.human import in_utc
from django_pgqueue.topics.browse import ID_MAX, Wanted, browse
from django_pgqueue.topics.moment import first_id
from django_pgqueue.topics.names import (
    KEY_CHARACTERS_MAX,
    MESSAGE_NAME_CHARACTERS_MAX,
    TOPIC_CHARACTERS_MAX,
)


class PlainMessageFilters(FilterForm):
    """An id or part of a name, a topic, a partition, and a time."""

    q = forms.CharField(
        label=_("Id or name"),
        required=False,
        max_length=MESSAGE_NAME_CHARACTERS_MAX,
        empty_value="",
        widget=forms.TextInput({"placeholder": _("4711, or part of a name")}),
    )
    topic = forms.CharField(
        label=_("Topic"),
        required=False,
        max_length=TOPIC_CHARACTERS_MAX,
        empty_value="",
        widget=forms.TextInput({"placeholder": _("its whole name")}),
    )
    partition = forms.RegexField(
        r"\A[0-9]{1,4}\Z", label=_("Partition"), required=False, empty_value=""
    )
    since = MomentField(label=_("From"), required=False)

    @property
    def names_one_row(self) -> bool:
        """Whether "q" is an id."""
        return self.is_readable and is_number(self.cleaned_data["q"])

    def condition(self, name: str, value: Any) -> Q:
        """Take a number in "q" for an id, and a topic for those of its messages."""
        if name == "q" and is_number(value):
            return Q(pk=int(value))
        if name == "topic":
            topics = Topic.objects.using(get_settings().database).filter(name=value)
            return Q(topic_id__in=topics.values("id"))
        if name == "partition":
            return Q(partition=int(value))
        if name == "since":
            return Q(published_at__gte=value)
        return super().condition(name, value)


class MessageFilters(PlainMessageFilters):
    """A key besides: for those who may see keys."""

    field_order = ("q", "topic", "key", "partition", "since")

    key = forms.CharField(
        label=_("Key"),
        required=False,
        max_length=KEY_CHARACTERS_MAX,
        strip=False,
        empty_value="",
        widget=forms.TextInput({"placeholder": _("the whole key")}),
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
        since = self._asked("since")
        if since is None:
            return rows
        self.first_id = _first_id(since)
        # What is looked through when no topic is chosen ends there, too.
        self.root_queryset = self.root_queryset.filter(pk__gte=self.first_id)
        return rows.filter(pk__gte=self.first_id)

    def find(self, start: str, *, rising: bool) -> tuple[list[Any], str | None]:
        """Look into the partitions of the topic, if one is chosen."""
        name = self._asked("topic")
        if name is None or self.filter_form.names_one_row:
            return super().find(start, rising=rising)
        wanted = self._wanted(name, start, rising=rising)
        if wanted is None:
            return [], None
        with connections[get_settings().database].cursor() as cursor:
            found = browse(
                cursor, wanted, limit=self.list_per_page + 1, is_oldest_first=rising
            )
        rows = self.queryset.filter(pk__in=found.ids).order_by(*self.order(rising))
        return list(rows), None if found.end is None else str(found.end)

    def _wanted(self, name: str, start: str, *, rising: bool) -> Wanted | None:
        topics = Topic.objects.using(get_settings().database)
        topic = topics.only("partitions").filter(name=name).first()
        if topic is None:
            return None
        partition = self._asked("partition")
        beyond: dict[str, int] = {}
        if start:
            (place,) = self.model_admin.keyset.values(self.model, start)
            beyond = {"above" if rising else "below": place}
        if self.first_id is not None:
            beyond["above"] = max(beyond.get("above", -1), self.first_id - 1)
        return Wanted(
            topic_id=topic.pk,
            partitions=range(topic.partitions)
            if partition is None
            # A partition that no topic can have has no messages.
            else [each for each in [int(partition)] if each < 2**15],
            name_part=self._asked("q"),
            key=self._asked("key"),
            above=beyond.get("above", -1),
            below=beyond.get("below", ID_MAX),
        )

    def _asked(self, field: str) -> Any:
        """Return what a field asks for; None: nothing, or nothing readable."""
        if not self.filter_form.is_readable:
            return None
        return self.filter_form.cleaned_data.get(field) or None


def _first_id(since: datetime) -> int:
    with connections[get_settings().database].cursor() as cursor:
        return first_id(cursor, in_utc(since))

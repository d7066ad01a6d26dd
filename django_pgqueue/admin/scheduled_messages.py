"""The messages that are published later: what, when, and taking it back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import DELETION
from django.db.models import Q
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.admin import moments, payload
from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work
from django_pgqueue.admin.cells import badge, name
from django_pgqueue.admin.keyset_list import FilterForm, text_field
from django_pgqueue.admin.messages import KEY_SHOWN_CHARACTERS_MAX
from django_pgqueue.admin.read_only import Fact, column
from django_pgqueue.log import scheduled
from django_pgqueue.log.names import MESSAGE_NAME_CHARACTERS_MAX, TOPIC_CHARACTERS_MAX
from django_pgqueue.models import Message, ScheduledMessage, Topic
from django_pgqueue.operators.filters import Meaning, equal, part_of
from django_pgqueue.operators.paging import Keyset
from django_pgqueue.tasks import database

ID = re.compile(r"-[0-9]{1,19}", re.ASCII)


def _id_or_name(text: str) -> Q:
    return Q(pk=int(text)) if ID.fullmatch(text) else part_of("name")(text)


class ScheduledFilters(FilterForm):
    """An id or part of a name, and a topic."""

    meanings: ClassVar[Mapping[str, Meaning]] = {
        "q": _id_or_name,
        "topic": equal("topic"),
    }

    q = text_field(
        _("Id or name"),
        _("-4711, or part of a name"),
        characters=MESSAGE_NAME_CHARACTERS_MAX,
    )
    topic = text_field(_("Topic"), _("its whole name"), characters=TOPIC_CHARACTERS_MAX)

    @property
    def names_one_row(self) -> bool:
        """Whether the primary key finds what is asked for: an id is below zero."""
        return self.is_readable and bool(ID.fullmatch(self.given("q") or ""))


def _cancel(work: Work) -> list[list[int]]:
    with database.transaction() as (_connection, cursor):
        return [scheduled.cancel(cursor, list(work.rows))]


CANCEL = Act(
    name="cancel",
    permissions=("cancel",),
    label=_("Cancel"),
    help=_("It is never published."),
    run=_cancel,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d message was cancelled.",
                "%(count)d messages were cancelled.",
                "count",
            ),
            _("Cancelled."),
            DELETION,
        )
    ],
    left=ngettext_lazy(
        "%(count)d had been published, or cancelled before.",
        "%(count)d had been published, or cancelled before.",
        "count",
    ),
    form=Confirm,
    warning=_("It is deleted for good, and never published."),
    is_grave=True,
)


@admin.register(ScheduledMessage)
class ScheduledMessageAdmin(ActingAdmin):
    """What waits for its moment, the next first."""

    keyset = Keyset(("due_at", "id"), is_by_time=False)
    filter_form = ScheduledFilters
    acts = (CANCEL,)
    named_by = ("name",)
    payload_columns = ("payload", "headers")
    key_columns = ("key", "error")
    list_display = ("number", "due", "topic_name", "title", "key_shown", "created")
    list_reads = (
        *("due_at", "run_after", "topic", "name", "key", "failures", "created_at"),
    )

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Show keys to those who may see payloads."""
        return tuple(
            name
            for name in self.list_display
            if name != "key_shown" or payload.may_see(request)
        )

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Lead to what is published."""
        pages = [(Topic, _("Topics")), (Message, _("Messages"))]
        return {
            "tools": [
                (self._url(model, "changelist"), label)
                for model, label in pages
                if self.has_page(model)
            ]
        }

    number = column(_("id"), lambda row: str(row.pk))
    title = column(_("name"), lambda row: name(row.name))
    created = column(_("created"), lambda row: moments.short(row.created_at, row.clock))

    @admin.display(description=_("due"))
    def due(self, row: Any) -> SafeString:
        """Show its moment; and, where that has passed, that it could not be done."""
        moment = moments.short(row.run_after, row.clock)
        return format_html("{} {}", moment, self.heading(row))

    @admin.display(description=_("topic"))
    def topic_name(self, row: Any) -> Any:
        """Show the topic, as a link to all that is published to it later."""
        return self.link(ScheduledMessage, row.topic, topic=row.topic)

    @admin.display(description=_("key"))
    def key_shown(self, row: Any) -> str:
        """Show the beginning of the key."""
        return Truncator(row.key or "").chars(KEY_SHOWN_CHARACTERS_MAX)

    def heading(self, row: Any) -> Any:
        """Say beside the title that it could not be published."""
        return badge("retrying", _("could not be published")) if row.failures else ""

    def facts(self, row: Any) -> list[Fact]:
        """Say when it is published, and why it was not."""
        error = row.error
        if error is not None and error is not payload.HIDDEN:
            error = payload.without_secrets(error)
        return [
            (_("Id"), str(row.pk)),
            (_("Name"), row.name),
            (_("Topic"), self.topic_name(row)),
            (_("Key"), row.key),
            (_("Due"), moments.full(row.run_after, row.clock)),
            (
                _("Tried again at"),
                moments.full(row.due_at, row.clock) if row.failures else None,
            ),
            (_("Failures"), str(row.failures) if row.failures else None),
            (_("Error"), error),
            (_("Created"), moments.full(row.created_at, row.clock)),
        ]

"""The inbox: what has come in from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.admin.cells import name
from django_pgqueue.admin.filter_form import FilterForm, text_field
from django_pgqueue.admin.read_only import Fact, ReadOnlyAdmin, column
from django_pgqueue.bounds import EXTERNAL_ID_CHARACTERS_MAX, SOURCE_CHARACTERS_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.models import InboxEntry
from django_pgqueue.operators.filters import Meaning, equal

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

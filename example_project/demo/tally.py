"""
Tally: whether each outcome was published, and counted by both who are told.

Workers are killed while they count, too. The jobs of the subscriptions and the batches
of the consumer group are atomic, so the numbers must be equal, and not only near.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

COUNT_SECONDS_MAX = 30.0  # Until a lease of a killed reader has lapsed, and more.
LOOK_SECONDS = 0.2

KINDS = ("sent", "failed")


@dataclass(frozen=True, slots=True)
class Tally:
    """How many there are of each kind, told by those who should know."""

    # Rows of mails that say so.
    mails: Mapping[str, int]
    # Messages in the log.
    published: Mapping[str, int]
    by_jobs: Mapping[str, int]
    by_group: Mapping[str, int]

    def findings(self) -> list[str]:
        """Return a sentence for each number that is another one."""
        return [
            f"{told} say {counted[kind]} {kind}, and {self.mails[kind]} mails are."
            for told, counted in (
                ("The messages", self.published),
                ("The jobs of the subscriptions", self.by_jobs),
                ("The batches of the group", self.by_group),
            )
            for kind in KINDS
            if counted[kind] != self.mails[kind]
        ]

    def line(self) -> str:
        """Return the closing line."""
        return (
            f"published {_told(self.published)}; counted by jobs "
            f"{_told(self.by_jobs)}, by a consumer group {_told(self.by_group)}"
        )


def wait_for_tally() -> Tally:
    """Return the numbers once they are equal, or as they are after half a minute."""
    until = time.monotonic() + COUNT_SECONDS_MAX
    while True:
        tally = read_tally()
        if not tally.findings() or time.monotonic() > until:
            return tally
        time.sleep(LOOK_SECONDS)


def read_tally() -> Tally:
    """Ask the database."""
    from counters.views import totals
    from django.db.models import Count
    from postoffice import events
    from postoffice.models import EmailMessage, Status

    from django_pgqueue.models import Message

    statuses: dict[str, str] = {Status.SENT: "sent", Status.ERROR: "failed"}
    names = {events.SENT: "sent", events.FAILED: "failed"}
    rows = EmailMessage.objects.values_list("status").annotate(Count("pk")).order_by()
    messages = Message.objects.values_list("name").annotate(Count("pk")).order_by()
    counted = totals()
    return Tally(
        mails=_of(statuses, dict(rows)),
        published=_of(names, dict(messages)),
        by_jobs={kind: by_jobs for kind, by_jobs, _ in counted},
        by_group={kind: by_group for kind, _, by_group in counted},
    )


def _of(kinds: Mapping[str, str], counted: Mapping[str, int]) -> dict[str, int]:
    return {kind: counted.get(name, 0) for name, kind in kinds.items()}


def _told(counted: Mapping[str, int]) -> str:
    return f"{counted['sent']} + {counted['failed']}"

"""Emitted: the latest values of a job's output, as its page shows them."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

from django_pgqueue.admin import moments, payload
from django_pgqueue.queues import output
from django_pgqueue.tasks import database

# On a page.
VALUES_SHOWN = 20
CHARACTERS_MAX = 1_000


class Attempt(NamedTuple):
    """What one attempt has emitted, a value on a line, redacted."""

    number: str
    until: Any  # When it has emitted the last of it, as HTML.
    text: str


def emitted(row: Any) -> list[Attempt]:
    """Return what a job has emitted latest, in its order, by one query."""
    with database.cursor() as cursor:
        found = output.latest(
            cursor,
            row.pk,
            limit=VALUES_SHOWN,
            characters=payload.CHARACTERS_MAX + 1,
        )
    deliveries = (list(each) for _, each in groupby(found, lambda it: it.delivery))
    return [
        Attempt(
            str(rows[-1].attempt),
            moments.full(rows[-1].emitted_at, row.clock),
            "\n".join(_shown(each.value) for each in rows),
        )
        for rows in deliveries
    ]


def _shown(text: str) -> str:
    value = payload.payload("", text, characters_max=CHARACTERS_MAX)
    return f"{value.text} …" if value.is_cut else value.text

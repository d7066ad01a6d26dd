"""
Redaction on pages: what PGQUEUE["REDACT"] hides is replaced on every one.

redaction/ says how. Only the forms that edit arguments show all of them, to those who
have the permissions to edit and to view payloads.
"""

from __future__ import annotations

from django_pgqueue.conf import get_settings
from django_pgqueue.redaction import values
from django_pgqueue.redaction.names import Names
from django_pgqueue.tasks.redact import secret_places


def redact_json(text: str, *, task: str | None = None) -> str:
    """
    Return JSON *text* with its secrets replaced; all of it, if Python cannot parse it.

    Args:
        text: A column as PostgreSQL writes it.
        task: When it is the column args: whose parameters name the places.
    """
    patterns = get_settings().redact
    places = () if task is None else secret_places(task, patterns)
    return values.redact_json(text, patterns, secret_places=places)


def is_secret(key: str) -> bool:
    """Return whether the value under *key* is hidden."""
    return Names(get_settings().redact).hides(key)

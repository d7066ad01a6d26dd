"""
Kinds: which failure a dead letter died of, and which dead letters died of one.

By the fingerprint of the last error that counts, without its secrets, just as the
pipeline job failures makes it. No column holds that, so dead letters are gone through:
a fixed number of the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import F, Func, JSONField, QuerySet, TextField
from django.db.models.functions import Cast, Left

from django_pgqueue.conf import get_settings
from django_pgqueue.redaction.values import redact

if TYPE_CHECKING:
    from django_pgqueue.spark.fingerprint import Fingerprint

# Dead letters that are gone through for one failure, the latest.
LETTERS_MAX = 1_000

# Characters of an error; as tasks/errors.py shortens it, there are fewer.
ERROR_CHARACTERS_MAX = 100_000


def kind_of(errors: str | None, reason: str) -> Fingerprint | None:
    """
    Return the fingerprint of what a dead letter died of.

    Args:
        errors: The column as text, all of it or what last_failed() made of it.
        reason: Why the job gave up; that of one without an error.
    """
    from django_pgqueue.spark.fingerprint import fingerprint
    from django_pgqueue.spark.jobs.failures import failed_entries

    entry = failed_entries(errors, reason)[-1]
    (shown,) = redact([entry], get_settings().redact)
    return fingerprint(shown) if isinstance(shown, dict) else None


def letters_of(letters: QuerySet[Any], asked: str) -> list[int]:
    """Return those of the latest LETTERS_MAX *letters* whose fingerprint is *asked*."""
    latest = letters.order_by("-finished_at", "-id")
    rows = latest.values_list("pk", "reason", last_failed())[:LETTERS_MAX]
    return [
        key
        for key, reason, errors in rows
        if (kind := kind_of(errors, reason)) is not None and kind.digest == asked
    ]


def last_failed() -> Left:
    """Return the last error that counts, in a list of its own, as text."""
    failed = Func(
        F("errors"),
        function="jsonb_path_query_array",
        template="""jsonb_build_array(%(function)s(%(expressions)s, '$[*] ? """
        """(@.kind == "error" || @.kind == "worker_lost")') -> -1)""",
        output_field=JSONField(),
    )
    return Left(Cast(failed, TextField()), ERROR_CHARACTERS_MAX)

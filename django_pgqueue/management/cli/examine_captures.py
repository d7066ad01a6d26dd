"""What the doctor asks of captures."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps

from django_pgqueue.conf import Settings
from django_pgqueue.log.captures import find_all
from django_pgqueue.operations import declared_captures
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.postgres.cursor import Cursor


def captures(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does every trigger fire that migrations made, and find its columns?"""
    installed = find_all(cursor)
    silent = [
        f"{each} (no trigger of {act})" for each in installed for act in each.missing_on
    ]
    silent += [
        f"{each} (its trigger of {act} is disabled)"
        for each in installed
        for act in sorted(each.disabled_on)
    ]
    there = {(each.table, each.capture.name) for each in installed}
    silent += [
        f"{table} to {topic} (no trigger at all)"
        for table, topic in _declared()
        if (table, topic) not in there
    ]
    yield finding(
        check="captures",
        wrong=silent,
        what=f"Changes are not captured, though migrations say so: {named(silent)}.",
        right="Every capture has its triggers, which fire.",
        severity="error",
        value=silent,
        way_out="Run manage.py migrate; or ALTER TABLE … ENABLE TRIGGER …; one that "
        "was dropped is made again by a migration with the same CaptureChanges(). What "
        "was written meanwhile is not published.",
    )
    gone = [
        f"{each}: {', '.join(each.gone_columns)}"
        for each in installed
        if each.gone_columns
    ]
    yield finding(
        check="captured_columns",
        wrong=gone,
        what=f"Captures name columns that their tables do not have: {named(gone)}.",
        right="Every column that a capture names is there.",
        value=gone,
        way_out="Say in a migration what is captured now, with a CaptureChanges() of "
        "the same topic.",
    )


def _declared() -> Iterator[tuple[str, str]]:
    """Yield the table and the topic of what migrations capture."""
    for label, found in declared_captures().items():
        try:
            table = apps.get_model(label)._meta.db_table
        except LookupError:
            continue  # Of a model that is no more in the code.
        for topic in found:
            yield table, topic

"""
Overview: what waits, runs, failed and is stuck, and what is wrong, at one moment.

For the first page of the admin and for those who scrape. In some twenty short
statements.
"""

from __future__ import annotations

from collections.abc import Collection

from django_pgqueue.findings import jobs, topics
from django_pgqueue.findings.look import Look
from django_pgqueue.findings.registry import REGISTRY, SEVERITIES
from django_pgqueue.postgres.cursor import Cursor

# What can be asked for, and what is read of it besides findings.
PARTS = {
    "jobs": ("queues",),
    "dead_letters": ("died",),
    "workers": ("workers", "held"),
    "groups": ("behind",),
    "schedules": ("schedules",),
    "workflows": (),
    "ingests": ("ingests",),
}

# Those of the registry that are cheap.
CHAPTERS = (jobs, topics)


class Overview(Look):
    """A look that has been taken, and what is not as it should be, the worst first."""

    def __init__(
        self,
        cursor: Cursor,
        parts: Collection[str] = tuple(PARTS),
        *,
        tells_keys: bool = True,
    ) -> None:
        """
        Read some *parts*.

        Who is not asked for workers is still told which queues none serves.

        Args:
            cursor: Django's, on the primary, in READ COMMITTED.
            parts: Names of PARTS.
            tells_keys: As of a Look.
        """
        super().__init__(cursor, is_bounded=True, tells_keys=tells_keys)
        self.parts = parts
        for name in ("clock", *(name for part in parts for name in PARTS[part])):
            getattr(self, name)
        self.findings = [
            each
            for check in REGISTRY.values()
            if check.part in parts
            for each in check.examine(self)
            if each.severity != "ok"
        ]
        self.findings.sort(key=lambda each: -SEVERITIES.index(each.severity))

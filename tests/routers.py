"""Where the tables of the tests are."""

from __future__ import annotations

from typing import Any

from django_pgqueue.models.router import APP_LABEL, QueueRouter


class BothDatabases(QueueRouter):
    """
    Reads and writes as QueueRouter does; but the queue tables exist in both.

    So a test may set PGQUEUE["DATABASE"] to "queue" and finds the tables there. All
    other tables are in "default" alone.
    """

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        return app_label == APP_LABEL or db == "default"

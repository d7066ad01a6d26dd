"""A database router that keeps the queue tables on PGQUEUE['DATABASE']."""

from __future__ import annotations

from typing import Any

from django_pgqueue.conf import get_settings

APP_LABEL = "pgqueue"


class QueueRouter:
    """
    Sends the models of this package to PGQUEUE['DATABASE'], and only there.

    Needed when jobs live on another alias than "default":

        DATABASE_ROUTERS = ["django_pgqueue.models.router.QueueRouter"]
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Return the queue's alias for this package's models, else no opinion."""
        return get_settings().database if model._meta.app_label == APP_LABEL else None

    db_for_write = db_for_read

    def allow_relation(self, left: Any, right: Any, **hints: Any) -> bool | None:
        """Have no opinion: no model of this package has a relation."""
        return None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        """Allow this package's migrations on the queue's alias alone."""
        return db == get_settings().database if app_label == APP_LABEL else None

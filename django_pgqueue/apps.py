"""The app: declares the tasks of every installed app when Django starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class PgQueueConfig(AppConfig):
    """Imports each app's tasks.py, so that every task is declared."""

    name = "django_pgqueue"
    label = "pgqueue"
    verbose_name = _("PostgreSQL queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the modules named by PGQUEUE['TASK_MODULES'] from every app."""
        from django_pgqueue.conf import get_settings

        autodiscover_modules(*get_settings().task_modules)

"""The app: declares the tasks of every installed app when Django starts."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules, import_string
from django.utils.translation import gettext_lazy as _

SCHEDULES = "pgqueue_schedule"
SUBSCRIPTIONS = "pgqueue_subscription"

# Where each app declares its pipeline jobs.
PIPELINES = "pipelines"


class PgQueueConfig(AppConfig):
    """Imports each app's tasks.py, so that every task is declared."""

    name = "django_pgqueue"
    label = "pgqueue"
    verbose_name = _("PostgreSQL queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Import the modules named by PGQUEUE['TASK_MODULES'], and pipelines, of each app.

        A wrong PGQUEUE does not keep Django from starting: the system checks say what
        is wrong with it, and whoever needs the settings raises SettingsError.
        """
        from django_pgqueue import checks
        from django_pgqueue.conf import readable_settings

        checks.register()
        post_migrate.connect(_declare_schedules, sender=self)
        post_migrate.connect(_declare_subscriptions, sender=self)
        modules = readable_settings().task_modules
        autodiscover_modules(*modules)
        autodiscover_modules(PIPELINES)
        if _has_our_backend():
            from django_pgqueue.backends.tasks import declare_found

            names = [
                f"{app.name}.{name}"
                for app in apps.get_app_configs()
                for name in modules
            ]
            declare_found(sys.modules[name] for name in names if name in sys.modules)


def _declare_schedules(
    *, using: str, verbosity: int = 1, stdout: Any = None, **told: Any
) -> None:
    """
    Write what the code declares with @cron and @every, after a migration.

    Raises:
        ScheduleError: settings.TIME_ZONE is no good for a schedule without tz=.
    """
    from django.db import connections, transaction

    from django_pgqueue.conf import readable_settings
    from django_pgqueue.schedules.sync import sync, tell_workers

    if using != readable_settings().database:
        return
    connection = connections[using]
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if SCHEDULES not in connection.introspection.table_names(cursor):
            return  # Migrated back, or not so far.
        synced = sync(cursor, migrates=True)
        if synced.changed or synced.withdrawn:
            tell_workers(connection)
    if verbosity < 1:
        return
    for names, what in ((synced.changed, "declared"), (synced.withdrawn, "withdrawn")):
        for name in names:
            print(f"  Schedule {name} {what}", file=stdout or sys.stdout)


def _declare_subscriptions(
    *, using: str, verbosity: int = 1, stdout: Any = None, **told: Any
) -> None:
    """
    Write what the code declares with @subscribe, after a migration.

    Raises:
        InvalidOption: The options of a task and PGQUEUE do not go together.
    """
    from django.db import connections, transaction

    from django_pgqueue.conf import readable_settings
    from django_pgqueue.subscriptions.sync import sync

    if using != readable_settings().database:
        return
    connection = connections[using]
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if SUBSCRIPTIONS not in connection.introspection.table_names(cursor):
            return  # Migrated back, or not so far.
        done = sync(cursor, migrates=True)
    if verbosity < 1:
        return
    for told_of, what in ((done.added, "added"), (done.changed, "changed")):
        for name in told_of:
            print(f"  Subscription {name} {what}", file=stdout or sys.stdout)


def _has_our_backend() -> bool:
    """Whether TASKS, the setting of django.tasks, names our backend or a heir of it."""
    entries = getattr(settings, "TASKS", None) or {}
    for entry in entries.values():
        try:
            backend = import_string(entry["BACKEND"])
        except (ImportError, KeyError, TypeError):
            continue  # Django says so itself.
        if getattr(backend, "is_pgqueue", False):
            return True
    return False

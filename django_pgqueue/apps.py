"""The app: declares the tasks of every installed app when Django starts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

CHECKS_TAG = "pgqueue"

SCHEDULES = "pgqueue_schedule"
TOPICS = "pgqueue_topic"
WORKFLOWS = "pgqueue_workflow"

# Where each app declares its pipeline jobs.
PIPELINES = "pipelines"

# Declares the task that publishes messages for later.
LATER_TASK = "django_pgqueue.topics.later"

# Declares the task that sends what our e-mail backend stores; workers load it anyway.
MAIL_TASK = "django_pgqueue.backends.mail_connections"


class PgQueueConfig(AppConfig):
    """Imports each app's tasks.py, so that every task is declared."""

    name = "django_pgqueue"
    label = "pgqueue"
    verbose_name = _("PostgreSQL queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """
        Import the modules named by PGQUEUE['TASK_MODULES'], and pipelines, of each app.

        A wrong PGQUEUE does not keep Django from starting, nor does a module that
        cannot be imported: the system checks say what is wrong, whoever needs the
        settings raises SettingsError, and workers do not start.
        """
        from django_pgqueue.conf import readable_settings, stores_mail
        from django_pgqueue.tasks.registry import import_modules

        _register_checks()
        post_migrate.connect(_declare, sender=self)
        connection_created.connect(_attend)
        modules = readable_settings().task_modules
        import_module(LATER_TASK)
        import_modules([*modules, PIPELINES])
        if stores_mail():
            import_module(MAIL_TASK)
        if _has_our_backend():
            from django_pgqueue.backends.tasks import declare_found

            names = [
                f"{app.name}.{name}"
                for app in apps.get_app_configs()
                for name in modules
            ]
            declare_found(sys.modules[name] for name in names if name in sys.modules)


def _register_checks() -> None:
    """Make checks.py known to Django, which is loaded where checks are run."""

    def named(name: str) -> Callable[..., list[checks.CheckMessage]]:
        def check(**told: Any) -> list[checks.CheckMessage]:
            from django_pgqueue import checks as ours

            found: list[checks.CheckMessage] = getattr(ours, name)(**told)
            return found

        return check

    checks.register(named("check_configuration"), CHECKS_TAG)
    checks.register(named("check_deployment"), CHECKS_TAG, deploy=True)
    # Not by our own tag: Django would run it without being told a database.
    checks.register(named("check_database"), checks.Tags.database)


def _attend(*, connection: Any, **told: Any) -> None:
    """Let a connection to the jobs' database hear of changes that are captured."""
    from django_pgqueue.conf import readable_settings

    is_ours = connection.alias == readable_settings().database
    # Not psycopg 2, of which a check tells.
    if is_ours and hasattr(connection.connection, "add_notice_handler"):
        from django_pgqueue.topics.captured import attend

        attend(connection)


def _declare(
    *, using: str, verbosity: int = 1, stdout: Any = None, **told: Any
) -> None:
    """
    Write what the code declares of topics, schedules and subscriptions.

    Called after a migration. Nothing is written while a module cannot be imported.

    Raises:
        InvalidOption: The options of a subscribed task and PGQUEUE do not fit.
        ScheduleError: settings.TIME_ZONE is no good for a schedule without tz=.
    """
    from django.db import connections, transaction

    from django_pgqueue.conf import readable_settings
    from django_pgqueue.schedules.sync import sync as sync_schedules
    from django_pgqueue.schedules.sync import tell_workers
    from django_pgqueue.tasks.pull_queues import sync_queues
    from django_pgqueue.tasks.registry import failed_modules, import_problem
    from django_pgqueue.topics.sync import sync_groups, sync_subscriptions, sync_topics
    from django_pgqueue.workflows.versions import others_under_way

    if using != readable_settings().database:
        return
    for path, error in failed_modules().items():
        # What it declares must not count as withdrawn.
        (stdout or sys.stdout).write(
            f"  Nothing declared: {import_problem(path, error)}\n"
        )
        return
    connection = connections[using]
    done: list[tuple[str, list[str], str]] = []
    with transaction.atomic(using=using), connection.cursor() as cursor:
        # A table is missing that was migrated back, or not so far.
        tables = connection.introspection.table_names(cursor)
        if TOPICS in tables:
            done.append(("Topic", sync_topics(cursor), "declared"))
            subscribed = sync_subscriptions(cursor, migrates=True)
            done.append(("Subscription", subscribed.added, "added"))
            done.append(("Subscription", subscribed.changed, "changed"))
            done.append(("Consumer group", sync_groups(cursor), "added"))
            sync_queues(cursor)
        if SCHEDULES in tables:
            synced = sync_schedules(cursor, migrates=True)
            if synced.changed or synced.withdrawn:
                tell_workers(connection)
            done.append(("Schedule", synced.changed, "declared"))
            done.append(("Schedule", synced.withdrawn, "withdrawn"))
        if WORKFLOWS in tables and _has_versions(connection, cursor):
            found = others_under_way(cursor)
            names = [f"{name}: {count:,} under way" for name, count in found.items()]
            done.append(("Saga", names, "began with other steps, and keep them"))
    if verbosity < 1:
        return
    for what, names, became in done:
        for name in names:
            # Not print(), whose end Django's wrapper writes as one more line.
            (stdout or sys.stdout).write(f"  {what} {name} {became}\n")


def _has_versions(connection: Any, cursor: Any) -> bool:
    """Whether workflows have versions; not, where that was migrated back."""
    columns = connection.introspection.get_table_description(cursor, WORKFLOWS)
    return any(column.name == "version" for column in columns)


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

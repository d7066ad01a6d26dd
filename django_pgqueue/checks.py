"""
System checks: what is wrong before a job is, each with its fix.

`manage.py check` and every command of Django run them. An error (E) keeps the queue
from working; a warning (W) is a trap that somebody fell into. Those that ask the
database run where Django is told which one: `check --database default`, `migrate`,
`test`. The commands of this package verify what they need themselves, so that a worker
says one line and not this list.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage
from django.db import connections, router
from django.utils.module_loading import module_has_submodule

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.conf import (
    MODES,
    OF_DEPTH,
    Settings,
    problems,
    readable_settings,
    stores_mail,
)
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidArgument,
    MissingExtra,
    PgQueueError,
    SchemaError,
    SettingsError,
    did_you_mean,
)
from django_pgqueue.log.captures import Installed, find_all
from django_pgqueue.operators.human import duration
from django_pgqueue.postgres.connect import DEFAULTS
from django_pgqueue.redaction.names import Names
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.definition import default_zone
from django_pgqueue.tasks.errors import check_alias
from django_pgqueue.tasks.options import as_middleware, pull_queues
from django_pgqueue.tasks.registry import (
    declared_names,
    failed_modules,
    find_task,
    import_problem,
)
from django_pgqueue.tasks.walk import TAG
from django_pgqueue.topics.consume import mistyped_handlers
from django_pgqueue.topics.subscribe import declared as subscriptions
from django_pgqueue.topics.sync import overlaps

ADD_CAPTURE = (
    "Add a migration with CaptureChanges(…), of django_pgqueue.operations, which says "
    "the same."
)

# What PgBouncer listens on unless told otherwise.
POOLER_PORT = "6432"

# A process's pool has this many connections unless OPTIONS["pool"] says so.
POOL_SIZE = 4


def check_configuration(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check PGQUEUE, and what it says about DATABASES, the tasks and the routers."""
    # Keys that are wrong have their default here: their error is told already.
    settings = readable_settings()
    return [each for check in CHECKS for each in check(settings)]


def check_deployment(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check what is right for development and wrong for production."""
    settings = readable_settings()
    found = []
    if settings.mode == "immediate":
        found.append(
            _warning(
                14,
                "PGQUEUE['MODE'] is 'immediate': every job runs inside the request "
                "that enqueues it, and no worker gets any.",
                f"Leave it out, or set it to {MODES[0]!r}; 'immediate' is for tests.",
            )
        )
    if not settings.redact:
        found.append(
            _warning(
                15,
                "PGQUEUE['REDACT'] is empty: passwords and tokens among arguments are "
                "shown to everyone with the permission pgqueue.view_payload.",
                "Leave it out for the default list, or name the keys to hide.",
            )
        )
    config = connections.settings.get(settings.database, {})
    if config.get("CONN_MAX_AGE", 0) != 0 and not config.get("CONN_HEALTH_CHECKS"):
        found.append(
            _warning(
                16,
                f"DATABASES[{settings.database!r}] has CONN_MAX_AGE "
                f"{config['CONN_MAX_AGE']!r} and no CONN_HEALTH_CHECKS: after a "
                f"restart of the database, each thread of a worker fails one job, and "
                f"each of a web server one request.",
                "Set CONN_HEALTH_CHECKS to True.",
            )
        )
    return found


def check_database(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """
    Check the schema, if Django was told to look at the database of the jobs.

    Nothing here is an error: `migrate`, which fixes most of it, runs these checks
    first and would refuse to start.
    """
    alias = readable_settings().database
    if alias not in (databases or ()) or not _is_postgresql(alias):
        return []
    # Django loads this module in every process, and needs these in few.
    from django_pgqueue.findings import server, topics
    from django_pgqueue.findings.look import Look

    messages: list[CheckMessage] = []
    with connections[alias].cursor() as cursor:
        look = Look(cursor)
        for check in (
            *(server.migrations, server.indexes, server.roles),
            *(topics.log_early, topics.captured_columns),
        ):
            wrong = [each for each in check.examine(look) if each.severity != "ok"]
            number = int(check.id.removeprefix("W"))
            messages += [_warning(number, each.what, each.way_out) for each in wrong]
            if wrong and check.is_fatal:
                # `migrate` is about to apply what is missing.
                return [] if sys.argv[1:2] == ["migrate"] else messages
        return [*messages, *_captures(find_all(cursor))]


def _captures(captures: Sequence[Installed]) -> Iterator[CheckMessage]:
    """Check what triggers tell of rows."""
    secret = Names(readable_settings().redact)
    for each in captures:
        told = [name for name in each.captured_columns if secret.hides(name)]
        if told:
            yield _warning(
                28,
                f"The capture of {each} tells {', '.join(told)}, which "
                f"PGQUEUE['REDACT'] hides: messages stand in the log for whoever may "
                f"read it.",
                "Say fields=[…] without them in a CaptureChanges() of the same topic; "
                "or silence this.",
            )


def _settings(settings: Settings) -> Iterator[CheckMessage]:
    for problem in problems(getattr(django_settings, "PGQUEUE", {})):
        yield _error(
            1,
            str(problem),
            "Fix it in your settings; docs/reference/settings.md lists every key with "
            "its limits. Workers do not start, and delay() raises SettingsError.",
        )


def _databases(settings: Settings) -> Iterator[CheckMessage]:
    alias, listens = settings.database, settings.listen_database
    if alias not in connections.settings:
        yield _error(2, _problem("DATABASE", alias), _known())
    elif not _is_postgresql(alias):
        yield _error(3, _problem("DATABASE", alias), _known())
    else:
        yield from _driver(alias)
        yield from _router(alias)
    if listens is not None and (problem := _problem("LISTEN_DATABASE", listens)):
        way_out = f"Name an alias that leads directly to the server of {alias!r}."
        yield _error(5, problem, f"{way_out} {_known()}")


def _problem(key: str, alias: str) -> str:
    """Return why an alias that PGQUEUE names is no database of jobs; "": it is one."""
    try:
        check_alias(key, alias)
    except SchemaError as error:
        return str(error)
    if _is_postgresql(alias):
        return ""
    kind = connections[alias].vendor
    return f"PGQUEUE[{key!r}] is {alias!r}, a database of {kind}, and not PostgreSQL."


def _known() -> str:
    return f"Known are: {', '.join(connections.settings)}."


def _driver(alias: str) -> Iterator[CheckMessage]:
    from django.db.backends.postgresql import psycopg_any

    if not psycopg_any.is_psycopg3:
        yield _error(
            4,
            f"Django uses psycopg2 for database {alias!r}; jobs need psycopg 3.",
            'Run: pip install "psycopg[binary]>=3.2"',
        )


def _router(alias: str) -> Iterator[CheckMessage]:
    from django_pgqueue.models import Job

    try:
        goes_to = router.db_for_write(Job)
    except SettingsError:
        return  # Our own router needs the settings whose error is told already.
    if goes_to != alias:
        problem = f"sends its models to {goes_to!r}"
    elif not router.allow_migrate_model(alias, Job):
        problem = "forbids its migrations there"
    else:
        return
    yield _error(
        7,
        f"PGQUEUE['DATABASE'] is {alias!r}, but DATABASE_ROUTERS {problem}.",
        "Put 'django_pgqueue.models.router.QueueRouter' first in DATABASE_ROUTERS.",
    )


def _traps(settings: Settings) -> Iterator[CheckMessage]:
    alias = settings.database
    if alias not in connections.settings or not _is_postgresql(alias):
        return
    yield from _short_lease(settings)
    yield from _short_archive(settings)
    for other, config in connections.settings.items():
        if other != alias and config.get("ATOMIC_REQUESTS"):
            yield _warning(
                5,
                f"DATABASES[{other!r}] has ATOMIC_REQUESTS, and jobs are stored in "
                f"{alias!r}: delay() in a view raises WrongDatabase, since the job "
                f"would not roll back with the request.",
                f"Enqueue with .on_commit().delay(…), or keep jobs in {other!r}.",
            )
    yield from _connection_traps(settings)
    yield from _listen_traps(settings)


def _short_lease(settings: Settings) -> Iterator[CheckMessage]:
    config = connections.settings[settings.database]
    options, host = config.get("OPTIONS", {}), config.get("HOST") or ""
    if not host or host.startswith("/"):
        return  # A socket of this machine does not go silent.
    milliseconds = options.get("tcp_user_timeout", DEFAULTS["tcp_user_timeout"])
    silent_seconds = int(milliseconds) / 1000
    if settings.lease_seconds < silent_seconds:
        yield _warning(
            3,
            f"PGQUEUE['LEASE_SECONDS'] is {settings.lease_seconds:g}, and a connection "
            f"that went silent is given up after {silent_seconds:g} s: when the "
            f"network drops packets for that long, leases run out and jobs run twice.",
            f"Set LEASE_SECONDS to {silent_seconds * 1.5:g} or more, or lower "
            f"OPTIONS['tcp_user_timeout'] (milliseconds).",
        )


def _short_archive(settings: Settings) -> Iterator[CheckMessage]:
    kept = settings.retention.archive
    if kept is not None and kept.total_seconds() < settings.result_ttl_seconds:
        yield _warning(
            4,
            f"PGQUEUE['RESULT_TTL_SECONDS'] is {settings.result_ttl_seconds:,.0f}, but "
            f"the archive, where results stand, is kept for "
            f"{duration(kept.total_seconds())}.",
            "Raise PGQUEUE['RETENTION']['archive'], or lower RESULT_TTL_SECONDS.",
        )


def _connection_traps(settings: Settings) -> Iterator[CheckMessage]:
    from django_pgqueue.worker.options import WorkerOptions

    alias, threads = settings.database, WorkerOptions(settings=settings).threads
    config = connections.settings[alias]
    options = config.get("OPTIONS", {})
    if config.get("AUTOCOMMIT") is False:
        yield _warning(
            6,
            f"DATABASES[{alias!r}] has AUTOCOMMIT False: Django runs no hooks after a "
            f"commit by hand, so workers find new jobs by their poll alone.",
            "Remove AUTOCOMMIT, and open transactions with transaction.atomic().",
        )
    level = options.get("isolation_level")
    if level is not None and int(level) > 2:  # psycopg: 2 is READ COMMITTED.
        yield _warning(
            7,
            f"DATABASES[{alias!r}] sets an isolation_level above read committed: an "
            f"enqueue with a dedup key, and the ack of an atomic task, can fail with "
            f"a serialization error (40001).",
            "Remove OPTIONS['isolation_level'], or give jobs an alias of their own.",
        )
    size = _pool_size(options.get("pool"))
    if size is not None and size < threads:
        yield _warning(
            8,
            f"DATABASES[{alias!r}] has a pool of {size} connections, and a worker "
            f"process has {threads} threads unless told otherwise: tasks wait for a "
            f"connection, and fail after the pool's time-out.",
            f"Set OPTIONS['pool']['max_size'] to --threads or more (here {threads}).",
        )


def _pool_size(pool: Any) -> int | None:
    if not pool:
        return None
    options = pool if isinstance(pool, dict) else {}
    size = options.get("max_size") or options.get("min_size", POOL_SIZE)
    return size if isinstance(size, int) else None


def _listen_traps(settings: Settings) -> Iterator[CheckMessage]:
    if not settings.listen:
        if settings.listen_database is not None:
            yield _warning(
                10,
                f"PGQUEUE['LISTEN_DATABASE'] is {settings.listen_database!r}, and "
                f"PGQUEUE['LISTEN'] is False: nobody listens there.",
                "Remove one of the two.",
            )
        return
    alias = settings.listen_database or settings.database
    config = connections.settings.get(alias)
    if config is None or not _is_postgresql(alias):
        return
    signs = {
        f"PORT {POOLER_PORT}": str(config.get("PORT")) == POOLER_PORT,
        "DISABLE_SERVER_SIDE_CURSORS": config.get("DISABLE_SERVER_SIDE_CURSORS"),
    }
    if any(signs.values()):
        seen = " and ".join(sign for sign, is_there in signs.items() if is_there)
        yield _warning(
            9,
            f"Workers LISTEN on database {alias!r}, which looks like a transaction "
            f"pooler ({seen}): they would hear nothing, and find jobs by their poll "
            f"every {duration(settings.poll_interval_seconds)}.",
            "Name an alias with a direct connection in PGQUEUE['LISTEN_DATABASE'], or "
            "set PGQUEUE['LISTEN'] to False. `manage.py pgqueue doctor` tries it.",
        )
    main = connections.settings[settings.database]
    if config.get("NAME") != main.get("NAME"):
        yield _warning(
            11,
            f"PGQUEUE['LISTEN_DATABASE'] is {alias!r}, a database called "
            f"{config.get('NAME')!r}; jobs are in {main.get('NAME')!r}. A NOTIFY is "
            f"heard in its own database alone.",
            f"Give {alias!r} the NAME of {settings.database!r}, unless a pooler "
            f"renames it.",
        )


def _mail(settings: Settings) -> Iterator[CheckMessage]:
    """Check that mails which are put into the queue leave it, where any are."""
    if not stores_mail():
        return
    # Nobody else needs Django's mail for a check.
    from django_pgqueue.backends import mail

    try:
        mail.check_route(settings.email.through)
    except SettingsError as error:
        yield _error(
            12,
            str(error),
            "docs/howto/send-every-mail-through-the-queue.md shows what to write, with "
            "MAILERS and without. No mail is stored meanwhile.",
        )
        return
    if mail.waits_for_ever(settings.email.through):
        yield _warning(
            19,
            "Mails leave the queue by SMTP without a time-out: a server that does not "
            "answer holds a thread of a worker for ever.",
            "Set EMAIL_TIMEOUT, or OPTIONS['timeout'] in MAILERS, to 30, say.",
        )


def _tasks(settings: Settings) -> Iterator[CheckMessage]:
    for path, error in failed_modules().items():
        # No error: the web server and migrate run these checks, and need no task.
        yield _warning(
            20,
            f"{import_problem(path, error)}. Its tasks are unknown, and no worker "
            f"starts.",
            f"Fix it: `python -c 'import {path}'`, in a shell of manage.py, says more.",
        )
    bad = [*_middleware(settings)]
    yield from bad
    tasks = [find_task(name) for name in declared_names()]
    used = {task.options.queue or QUEUE_DEFAULT for task in tasks}
    used.add(settings.email.queue)
    for name in settings.queues:
        if name in pull_queues:
            yield from _pull_queue(name)
        elif name not in used:
            yield _warning(
                1,
                f"PGQUEUE['QUEUES'] has {name!r}, and no declared task is in that "
                f"queue.{did_you_mean(name, sorted(used))}",
                "Correct or remove it; or silence this if calls choose that queue.",
            )
    for place, rule in enumerate(settings.reprocess):
        if rule.task is not None and rule.task not in declared_names():
            yield _warning(
                21,
                f"PGQUEUE['REPROCESS'][{place}] has the task {rule.task!r}, and no "
                f"such task is declared.{did_you_mean(rule.task, declared_names())}",
                "Correct or remove it: its rule redrives what else has this name.",
            )
    for module in settings.task_modules:
        if module != "tasks" and not _is_in_an_app(module):
            yield _warning(
                2,
                f"PGQUEUE['TASK_MODULES'] has {module!r}, and no installed app has "
                f"such a module.",
                "Write it as inside of an app: 'tasks' for shop/tasks.py.",
            )
    if not bad:
        yield from _options(tasks, settings)


def _pull_queue(name: str) -> Iterator[CheckMessage]:
    """Check that nothing is said of a pull queue that is for jobs of tasks alone."""
    said = getattr(django_settings, "PGQUEUE", {})["QUEUES"][name]
    idle = [option for option in said if option not in OF_DEPTH]
    if idle:
        yield _error(
            13,
            f"PGQUEUE['QUEUES'][{name!r}] has {', '.join(map(repr, idle))}, and "
            f"{name!r} is a pull queue: no worker claims from it, so that would do "
            f"nothing.",
            f"Remove it: of a pull queue, {', '.join(OF_DEPTH)} apply to it. "
            f"To keep its consumers under a rate, receive less often.",
        )


def _schedules(settings: Settings) -> Iterator[CheckMessage]:
    """Check TIME_ZONE, by which schedules without tz= go."""
    without = [each.name for each in declared() if each.tz is None]
    if without:
        try:
            default_zone()
        except PgQueueError as error:
            yield _error(
                10,
                f"{error} The schedule {without[0]!r} has none.",
                "Say tz='Europe/Berlin', or whichever place, in each @cron; or in "
                "TIME_ZONE.",
            )


def _subscriptions(settings: Settings) -> Iterator[CheckMessage]:
    """Check that no message makes two jobs in one queue."""
    for one, other in overlaps():
        both = " and ".join(
            f"{each.task.name} ({each.pattern.text!r})" for each in (one, other)
        )
        yield _error(
            11,
            f"{both} meet in the queue {one.queue!r}: a message that both select makes "
            f"two jobs there.",
            "Give one of them another queue, or both a where= of which no message "
            "has both; or narrow a pattern.",
        )


def _types(settings: Settings) -> Iterator[CheckMessage]:
    """Check type hints: that those which are checked can be, and what handlers say."""
    for task in map(find_task, declared_names()):
        try:
            if task.resolve(task.options.queue or QUEUE_DEFAULT, settings).check_types:
                _ = task.hints.adapter
                for each in declared():
                    # What stands for another value is looked at in the worker.
                    if each.task == task.name and TAG not in str(each):
                        task.check_types(each.args, each.kwargs, settings)
        except InvalidArgument as error:
            yield _error(
                20,
                f"The arguments of a schedule are not what its task takes: {error}",
                "Change args= of the schedule.",
            )
        except (DeclarationError, MissingExtra) as error:
            yield _error(
                20,
                f"{task.name} has check_types, and {error}",
                "Mend the hint, or declare the task with check_types=False.",
            )
        except PgQueueError:
            continue  # Told by _options() already.
    for handler in mistyped_handlers():
        means = "topic(…)" if handler.topic is None else f"topic({handler.topic!r})"
        yield _warning(
            31,
            f"{handler.task} expects {handler.expects} by its type hint, and is given "
            f"{handler.gets}.",
            f"Take {handler.gets}; {means}.read(message) makes of it an instance of "
            f"the schema.",
        )


def _contract(settings: Settings) -> Iterator[CheckMessage]:
    """Check that code breaks nobody who goes by the committed document."""
    if settings.contract is None or failed_modules():
        return
    from django_pgqueue.contract.breaks import WRITE, compare

    try:
        found = compare(settings.contract).breaks
    except PgQueueError as error:
        yield _warning(
            30,
            f"PGQUEUE['CONTRACT'] cannot be compared with code: {error}",
            f"Run: {WRITE} > {settings.contract}",
        )
        return
    for each in found:
        yield _warning(
            30,
            f"{each.subject}: {each.problem}.",
            f"{each.way_out}. If it is meant: {WRITE} > {settings.contract}",
        )


def _changes(settings: Settings) -> Iterator[CheckMessage]:
    """Check that migrations capture what code subscribes to."""
    wanted = [each for each in subscriptions() if each.changes is not None]
    if not wanted:
        return
    # Reading all migrations takes a while.
    from django_pgqueue.operations import declared_captures

    captured = declared_captures()
    for each in wanted:
        if (changes := each.changes) is None:
            continue
        captures = captured.get(changes.label_lower, {})
        capture = captures.get(changes.topic)
        if capture is None:
            known = ", ".join(f"topic={topic!r}" for topic in captures)
            lacks = f"as {changes.topic!r}"
            way_out = f"Captured it is with {known}: say so." if known else ADD_CAPTURE
        elif changes.act not in capture.on:
            lacks, way_out = f"on {changes.act!r}", ADD_CAPTURE
        elif missing := set(changes.fields) - set(capture.fields or changes.fields):
            lacks = f"with the field {min(missing)!r}"
            way_out = ADD_CAPTURE
        else:
            continue
        yield _error(
            18,
            f"{each.task.name} is subscribed to changes of {changes.label}, and no "
            f"migration captures them {lacks}: it gets none.",
            way_out,
        )


def _middleware(settings: Settings) -> Iterator[CheckMessage]:
    places = {"PGQUEUE['DEFAULTS']": settings.defaults}
    for name, options in settings.queues.items():
        places[f"PGQUEUE['QUEUES'][{name!r}]"] = options
    for place, options in places.items():
        for item in options.get("middleware", ()):
            try:
                as_middleware([item])
            except (PgQueueError, ImportError) as error:
                yield _error(
                    6,
                    f"{place}['middleware'] has {item!r}: {error}",
                    "Name a function by its import path: 'shop.middleware.timed'.",
                )


def _options(tasks: Iterable[Any], settings: Settings) -> Iterator[CheckMessage]:
    for task in tasks:
        try:
            task.resolve(task.options.queue or QUEUE_DEFAULT, settings)
        except PgQueueError as error:
            yield _error(
                8,
                f"The options of task {task.name!r} and of PGQUEUE do not go "
                f"together: {error}",
                "Change the option of the task, of its queue, or PGQUEUE['DEFAULTS'].",
            )


def _is_in_an_app(module: str) -> bool:
    return any(
        app.module is not None and module_has_submodule(app.module, module)
        for app in apps.get_app_configs()
    )


def _is_postgresql(alias: str) -> bool:
    return connections[alias].vendor == "postgresql"


def _error(number: int, problem: str, hint: str) -> CheckMessage:
    return checks.Error(problem, hint=hint, id=f"pgqueue.E{number:03}")


def _warning(number: int, problem: str, hint: str) -> CheckMessage:
    return checks.Warning(problem, hint=hint, id=f"pgqueue.W{number:03}")


CHECKS = (
    *(_settings, _databases, _traps, _mail, _tasks, _schedules, _subscriptions),
    *(_types, _contract, _changes),
)

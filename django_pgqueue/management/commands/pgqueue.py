"""pgqueue: what an operator asks and does, one subcommand each."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import django.db
import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    PayloadTooLarge,
    PgQueueError,
    SchemaError,
    SparkOptionError,
    TopicError,
)
from django_pgqueue.management.cli import (
    acting,
    asyncapi,
    doctor,
    enqueue,
    flows,
    groups,
    jobs,
    lanes,
    messages,
    pull,
    queues,
    schedules,
    show,
    topics,
    workers,
)
from django_pgqueue.management.cli.output import Output, Subcommand
from django_pgqueue.operators.human import shown
from django_pgqueue.tasks.errors import check_aliases, check_engine

SUBCOMMANDS: dict[str, ModuleType | Subcommand] = {
    "stats": queues.STATS,
    "jobs": jobs.JOBS,
    "show": show,
    "dead": jobs.DEAD,
    "enqueue": enqueue,
    "send": pull.SEND,
    "receive": pull.RECEIVE,
    "ack": pull.ACK,
    "nack": pull.NACK,
    "reject": pull.REJECT,
    "extend": pull.EXTEND,
    "publish": messages.PUBLISH,
    "retry": acting.RETRY,
    "redrive": acting.REDRIVE,
    "purge": acting.PURGE,
    "cancel": acting.CANCEL,
    "acts": acting.ACTS,
    "pause": queues.PAUSE,
    "resume": queues.RESUME,
    "limit": queues.LIMIT,
    "flows": flows,
    "lanes": lanes,
    "workers": workers,
    "watch": doctor.WATCH,
    "schedules": schedules,
    "topics": topics.TOPICS,
    "peek": messages.PEEK,
    "groups": groups.GROUPS,
    "lag": groups.LAG,
    "seek": groups.SEEK,
    "replay": topics.REPLAY,
    "repartition": topics.REPARTITION,
    "asyncapi": asyncapi,
    "doctor": doctor.DOCTOR,
}

EXIT_USAGE, EXIT_UNUSABLE, EXIT_INTERRUPTED = 2, 3, 130

# What is wrong with the command line.
WRONG = (InvalidArgument, InvalidOption, PayloadTooLarge, SparkOptionError, TopicError)

EPILOG = """
Exit status: 0 done; 1 nothing matched, a named job was passed over, the doctor found an
error, a lag is above --max, something is wrong by the watch, a change breaks the
contract, or a promise is broken; 2 wrong command line; 3 the settings or the database
cannot be used; 130 interrupted.
"""

# Django's own options, which every command has; they work, and are not listed.
DJANGO_OPTIONS = (
    "--version", "-v", "--verbosity", "--settings", "--pythonpath", "--traceback",
    "--no-color", "--force-color", "--skip-checks",
)  # fmt: skip


class Command(BaseCommand):
    """Runs one subcommand."""

    help = "Look at queues and jobs, and fix what went wrong."
    epilog = EPILOG
    subcommands: Mapping[str, ModuleType | Subcommand] = SUBCOMMANDS
    requires_system_checks: Any = []
    suppressed_base_arguments = set(DJANGO_OPTIONS)

    def create_parser(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the epilog's lines as they are."""
        kwargs["formatter_class"] = argparse.RawDescriptionHelpFormatter
        return super().create_parser(*args, epilog=self.epilog, **kwargs)

    def add_arguments(self, parser: Any) -> None:
        """Declare the subcommands."""
        subparsers = parser.add_subparsers(
            dest="subcommand", required=True, metavar="SUBCOMMAND", title="subcommands"
        )
        for name, module in self.subcommands.items():
            own = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
            module.add_arguments(own)
            own.add_argument(
                "--json", action="store_true", help="Print one JSON object."
            )
            _add_django_options(own)
            for action in actions_of(own).values():
                # Behind an action too; without a default, so that it is not undone.
                action.add_argument(
                    "--json",
                    action="store_true",
                    default=argparse.SUPPRESS,
                    help="Print one JSON object.",
                )
                _add_django_options(action)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it; end with its status."""
        status = EXIT_INTERRUPTED
        _print_anything()
        try:
            status = self._run(options)
            self.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has seen enough. Nothing may be written at exit.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 0
        except KeyboardInterrupt:
            self.stderr.write("Interrupted.", style_func=str)
        if status:
            sys.exit(status)

    def _run(self, options: dict[str, Any]) -> int:
        module = self.subcommands[options["subcommand"]]
        out = Output(
            self.stdout,
            # Plain: what goes there is seldom an error.
            self.stderr._out if hasattr(self.stderr, "_out") else self.stderr,
            as_json=options["json"],
            color=not options["no_color"] and "NO_COLOR" not in os.environ,
        )
        try:
            check_aliases(get_settings())
            # The commands speak English, and scripts read them.
            with translation.override(None):
                status: int = module.run(options, out)
            return status
        except WRONG as error:
            raise CommandError(shown(error), returncode=EXIT_USAGE) from error
        except PgQueueError as error:
            raise CommandError(str(error), returncode=EXIT_UNUSABLE) from error
        except (django.db.Error, psycopg.Error, ImproperlyConfigured) as error:
            raise CommandError(
                _database_problem(error), returncode=EXIT_UNUSABLE
            ) from error


def _database_problem(error: Exception) -> str:
    alias = get_settings().database
    try:
        check_engine(alias)
    except SchemaError as wrong:
        return str(wrong)
    detail = " ".join(str(error).split())
    way_out = ""
    if isinstance(error.__cause__ or error, psycopg.errors.InsufficientPrivilege):
        way_out = " Run it as the role that owns the tables, or GRANT it what it needs."
    elif isinstance(error, (django.db.ProgrammingError, psycopg.ProgrammingError)):
        way_out = f" Run: python manage.py migrate pgqueue --database {alias}"
    return f"Database {alias!r} cannot be used: {detail}{way_out}"


def _print_anything() -> None:
    """Let a terminal that is not UTF-8 show escapes, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def actions_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the parsers of a subcommand's own actions, by name."""
    found = [
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(found[0]) if found else {}


def _add_django_options(parser: Any) -> None:
    """Take Django's own options behind the subcommand too."""
    hidden: dict[str, Any] = {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    for name in ("--settings", "--pythonpath"):
        parser.add_argument(name, **hidden)
    parser.add_argument("-v", "--verbosity", type=int, **hidden)
    for name in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(name, action="store_true", **hidden)

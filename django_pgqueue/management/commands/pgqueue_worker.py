"""pgqueue_worker: run jobs until stopped."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from typing import Any

import django.db
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from django_pgqueue import __version__
from django_pgqueue.apps import MAIL_TASK
from django_pgqueue.conf import READERS, Settings, get_settings
from django_pgqueue.exceptions import MissingExtra, PgQueueError
from django_pgqueue.findings.server import Readiness, check_readiness, close_connections
from django_pgqueue.management.cli.words import reading, whole_number
from django_pgqueue.operators.bulk_acts import BulkActs
from django_pgqueue.operators.human import duration
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.tasks.errors import check_aliases
from django_pgqueue.tasks.registry import (
    declared_names,
    failed_modules,
    import_problem,
)
from django_pgqueue.worker.options import (
    ASYNC_SLOTS_MAX,
    PROCESSES_MAX,
    THREADS_MAX,
    WorkerOptions,
)
from django_pgqueue.worker.queue_plan import ORDERS, read_entry, read_plan
from django_pgqueue.worker.recycling import Limits, resident_bytes
from django_pgqueue.worker.serving import mistaken_queue
from django_pgqueue.worker.supervise.supervisor import Supervisor

PORT_MAX = 65_535

EPILOG = """
Queues:
  --queues mail,reports      these two; the highest priority first, equal turns else
  --queues mail=3,reports=1  three starts of mail for one of reports, while both wait
  --queues mail:4,'*'        all; of mail at most 4 at once in each process
  --queues 'shop.*',-shop.x  all that begin with "shop.", but not shop.x
  --queues a,b --queue-order strict    nothing of b while something of a waits
Whatever the order: of 20 starts, one goes to the job that waits longest, once that is
longer than PGQUEUE['AGEING_SECONDS'].

Exit status: 0 stopped, everything settled; 1 refused to start (settings, database,
migrations); 2 wrong command line; 3 stopped with jobs left behind (the grace was over,
or it was told to leave at once): they were handed back, or are once their lease runs
out.

Signals: TERM, INT or HUP stops in the order jobs flow; a second TERM or INT, or QUIT,
leaves at once.
"""

NO_POOL = (
    "Error: --pool was removed. For tasks that compute, start worker processes with "
    "one thread: --processes N --threads 1, with about as many processes as cores."
)


class Command(BaseCommand):
    """Starts a supervisor and its worker processes."""

    help = "Run jobs of the queues until stopped with SIGTERM or Ctrl+C."
    requires_system_checks: Any = []

    def create_parser(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the epilog's lines as they are."""
        kwargs["formatter_class"] = argparse.RawDescriptionHelpFormatter
        return super().create_parser(*args, epilog=EPILOG, **kwargs)

    def add_arguments(self, parser: Any) -> None:
        """Declare what a worker can be told."""
        parser.add_argument(
            "--queues",
            "--queue",
            action="append",
            type=queue_entries,
            metavar="A,B",
            help="Queues to serve, separated by commas or given again; default: all. "
            "NAME, NAME=WEIGHT, NAME:CAP or NAME=WEIGHT:CAP; shop.* is every queue "
            "that begins so, * every other one, -NAME none. See below.",
        )
        parser.add_argument(
            "--queue-order",
            choices=ORDERS,
            help="Who goes first: the highest priority over all queues; each queue by "
            "its weight; or strictly the queue that is named earlier (default: "
            "priority, or weighted where there is a weight).",
        )
        parser.add_argument(
            "--processes",
            type=whole_number(PROCESSES_MAX),
            default=1,
            metavar="N",
            help="Worker processes (default 1): about one per core for CPU work.",
        )
        parser.add_argument(
            "--threads",
            type=whole_number(THREADS_MAX),
            metavar="M",
            default=8,
            help="Jobs that each process runs at once (default 8; 1 for tasks that "
            "compute or crash).",
        )
        parser.add_argument("--pool", help=argparse.SUPPRESS)
        parser.add_argument(
            "--force",
            action="store_true",
            help="Serve a new queue, though its name is much like another's.",
        )
        for key, metavar, which in (
            ("recycle_jobs", "N", "Replace a process that has run so many jobs"),
            ("recycle_age_seconds", "DURATION", "... that is so old: 90, 30m, 12h"),
            (
                "recycle_memory_bytes",
                "SIZE",
                "... that takes so much memory: 512MB, 1GiB",
            ),
        ):
            option = "--" + "-".join(key.split("_")[:2])
            parser.add_argument(
                option,
                type=limit(option, key),
                metavar=metavar,
                help=f"{which} (default PGQUEUE['{key.upper()}'], never).",
            )
        parser.add_argument(
            "--async-slots",
            type=whole_number(ASYNC_SLOTS_MAX),
            default=100,
            metavar="N",
            help="Jobs of async tasks that each process runs at once, besides those of "
            "its threads (default 100).",
        )
        parser.add_argument(
            "--drain",
            action="store_true",
            help="Exit when no job is due and none is running.",
        )
        parser.add_argument(
            "--grace",
            type=grace_seconds,
            metavar="SECONDS",
            help="How long running jobs get to finish when stopped "
            "(default PGQUEUE['GRACE_SECONDS']).",
        )
        parser.add_argument(
            "--health-port",
            type=whole_number(PORT_MAX, least=0),
            metavar="PORT",
            help="Answer /livez and /readyz there (default: nowhere; 0: any port).",
        )
        parser.add_argument(
            "--health-host",
            default="127.0.0.1",
            metavar="HOST",
            help="On this address (default 127.0.0.1; in a container 0.0.0.0).",
        )
        parser.add_argument(
            "--metrics",
            action="store_true",
            help="Answer /metrics there, too, for Prometheus; names of queues and "
            "tasks are in it. Needs prometheus-client, of the extra [prometheus].",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, print what was understood, and run."""
        if options["pool"] is not None:
            raise CommandError(NO_POOL, returncode=2)
        queues, metrics = entries(options), worker_metrics(options)
        import_module(MAIL_TASK)
        for path, error in failed_modules().items():
            trace = "".join(traceback.format_exception(error))
            raise CommandError(
                f"{trace}{import_problem(path, error)}. Its jobs would be unknown: "
                f"fix it."
            )
        try:
            settings = get_settings()
            check_aliases(settings)
            readiness = check_readiness(settings.database)
        except PgQueueError as error:
            raise CommandError(str(error)) from error
        except (django.db.Error, ImproperlyConfigured) as error:
            alias = settings.database
            detail = " ".join(str(error).split())
            raise CommandError(
                f"Database {alias!r} cannot be used: {detail}"
            ) from error
        if settings.trace:
            # Here and once: in the processes, the first job would wait for it.
            import_module("django_pgqueue.tasks.tracing")
        worker = replace(self._options(settings, queues, options), metrics=metrics)
        if worker.plan.named and not options["force"]:
            self._check_names(worker.plan.named)
        show_log_lines(options["verbosity"])
        # Made first, so that whoever reads "Ready" may send a signal.
        try:
            supervisor = Supervisor(worker)
        except PgQueueError as error:
            raise CommandError(str(error)) from error
        self._print_banner(worker, readiness, supervisor.health_port)
        status = supervisor.run()
        if status:
            sys.exit(status)

    def _check_names(self, names: list[str]) -> None:
        mistaken = mistaken_queue(names)
        close_connections()  # It has asked the database, and the supervisor forks.
        if mistaken is not None:
            raise CommandError(f"{mistaken} For one that is new, give --force.")

    def _options(
        self, settings: Settings, queues: tuple[str, ...], options: dict[str, Any]
    ) -> WorkerOptions:
        grace = options["grace"]
        return WorkerOptions(
            settings=settings,
            queues=queues,
            queue_order=options["queue_order"],
            processes=options["processes"],
            threads=options["threads"],
            limits=self._limits(settings, options),
            async_slots=options["async_slots"],
            drain=options["drain"],
            grace_seconds=settings.grace_seconds if grace is None else grace,
            health_port=options["health_port"],
            health_host=options["health_host"],
            bulk_acts=BulkActs(),
        )

    def _limits(self, settings: Settings, options: dict[str, Any]) -> Limits:
        limits = Limits(
            jobs=options["recycle_jobs"] or settings.recycle_jobs,
            age_seconds=options["recycle_age"] or settings.recycle_age_seconds,
            memory_bytes=options["recycle_memory"] or settings.recycle_memory_bytes,
        )
        taken = resident_bytes()
        if limits.memory_bytes is not None and limits.memory_bytes <= taken:
            raise CommandError(
                f"--recycle-memory (PGQUEUE['RECYCLE_MEMORY_BYTES']) is "
                f"{limits.memory_bytes:,} bytes, and a process takes {taken:,} before "
                f"its first job. It would be replaced after every one: give it more."
            )
        return limits

    def _print_banner(
        self, worker: WorkerOptions, readiness: Readiness, health_port: int | None
    ) -> None:
        settings, server = worker.settings, readiness.server
        needed, allowed = worker.connections_max, server.connections_max
        wake = "LISTEN, and " if settings.listen else ""
        self.stdout.write(
            f"django_pgqueue {__version__}, database {settings.database} "
            f"({server.database}, PostgreSQL {server.version})"
        )
        renewed = duration(settings.lease_seconds / 3)
        understood = {
            "queues": str(worker.plan),
            "tasks": f"{len(declared_names())} declared",
            "concurrency": worker.concurrency,
            "wake": f"{wake}a poll every {duration(settings.poll_interval_seconds)}",
            "lease": f"{duration(settings.lease_seconds)}, renewed every {renewed}",
            "connections": f"needs up to {needed}, the server allows {allowed}",
        }
        if worker.limits:
            understood["recycling"] = f"each process after {worker.limits}"
        if health_port is not None:
            pages = "/livez and /readyz"
            if worker.metrics is not None:
                pages = "/livez, /readyz and /metrics"
            understood["health"] = f"http://{worker.health_host}:{health_port}{pages}"
        for label, text in understood.items():
            self.stdout.write(f"  {label:<12} {text}")
        if needed > allowed:
            self.stderr.write(
                self.style.WARNING(
                    f"It may need {needed} connections and the server allows "
                    f"{allowed} in all: lower --processes or --threads, or raise "
                    f"max_connections."
                )
            )
        if settings.listen and not settings.listen_database and readiness.is_pooled:
            self.stderr.write(
                self.style.WARNING(
                    f"Database {settings.database!r} is behind a pooler: where that "
                    f"shares connections by transaction, LISTEN hears nothing, and "
                    f"jobs are found by the poll. Name an alias with a direct "
                    f"connection in PGQUEUE['LISTEN_DATABASE'], or set "
                    f"PGQUEUE['LISTEN'] to False."
                )
            )
        rights = readiness.rights
        if rights.trouble:
            self.stderr.write(self.style.WARNING(f"{rights.trouble} {rights.way_out}."))
        self.stdout.write(
            "Draining; Ctrl+C stops after the running jobs."
            if worker.drain
            else "Ready. Ctrl+C stops after the running jobs; a second Ctrl+C leaves."
        )
        self.stdout.flush()


def show_log_lines(verbosity: int) -> None:
    """Print our log lines where the project's LOGGING does not already."""
    logger = logging.getLogger("django_pgqueue")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
    if verbosity == 0:
        logger.setLevel(logging.ERROR)
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)


def worker_metrics(options: dict[str, Any]) -> Any:
    """Return what answers /metrics; None: nobody asks. CommandError: nothing can."""
    if not options["metrics"]:
        return None
    if options["health_port"] is None:
        raise CommandError(
            "Error: --metrics needs --health-port, on which it answers.", returncode=2
        )
    from django_pgqueue.prometheus.worker import answer_of

    try:
        return answer_of()
    except MissingExtra as error:
        raise CommandError(str(error)) from error


def entries(options: dict[str, Any]) -> tuple[str, ...]:
    """Return all entries of --queues; refuse those that do not go together."""
    groups = options["queues"] or []
    found = tuple(dict.fromkeys(entry for group in groups for entry in group))
    try:
        read_plan(found, options["queue_order"])
    except ValueError as error:
        message = f"Error: argument --queues: {error}"
        raise CommandError(message, returncode=2) from None
    return found


@reading
def queue_entries(text: str) -> list[str]:
    """Read "a,b=2,c.*:4" for --queues."""
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        read_entry(entry)
    return entries


def limit(option: str, name: str) -> Any:
    """Return a reader of *option*, which stands for the setting *name*."""

    @reading
    def read(text: str) -> Any:
        value: Any = text
        if text.replace(".", "", 1).isdecimal():
            value = int(text) if text.isdecimal() else float(text)
        return READERS[name](option, value)

    return read


@reading
def grace_seconds(text: str) -> float:
    """Read seconds, or a duration such as "5m", for --grace."""
    value: Any = float(text) if text.replace(".", "", 1).isdecimal() else text
    return as_timedelta(value, name="grace").total_seconds()

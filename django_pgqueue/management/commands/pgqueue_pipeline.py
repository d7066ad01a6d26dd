"""pgqueue_pipeline: what moves or digests queue data in bulk, on Spark."""

from __future__ import annotations

from types import ModuleType

from django_pgqueue.management.commands.pgqueue import Command as PgQueueCommand
from django_pgqueue.management.pipeline import list as list_jobs
from django_pgqueue.management.pipeline import run, status, stop

EPILOG = """
Progress goes to standard error.

Exit status: 0 done; 1 the run failed or nothing matched; 2 wrong command line;
3 the settings, the database or Spark cannot be used; 4 another run of the job is live;
130 stopped.
"""


class Command(PgQueueCommand):
    """Runs one subcommand."""

    help = "Run and watch pipeline jobs."
    epilog = EPILOG
    subcommands: dict[str, ModuleType] = {
        "list": list_jobs,
        "run": run,
        "status": status,
        "stop": stop,
    }

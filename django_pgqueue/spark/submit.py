"""
Submit: pipeline jobs by spark-submit, without Django.

    spark-submit "$(python -m django_pgqueue.spark.submit --path)" metrics -o full=true

The database is that of $PGQUEUE_DSN; jobs of one's own are in the modules that --module
names. The run has its row like any other, so it is shown, stopped, and the only one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django_pgqueue.exceptions import PgQueueError, PipelineBusy
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.run import Plan
from django_pgqueue.spark.running import EXIT_BUSY, StopFlag, run_job
from django_pgqueue.spark.session import open_session

EXIT_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """Run the job that *arguments* name; return the exit status."""
    if list(arguments) == ["--path"]:
        _write(sys.stdout, __file__)
        return 0
    asked = _parser().parse_args(arguments)
    stop = StopFlag()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        ended = run_job(_plan(asked), stop=stop)
    except PipelineBusy as error:
        _write(sys.stderr, str(error))
        return EXIT_BUSY
    except PgQueueError as error:
        _write(sys.stderr, str(error))
        return EXIT_USAGE
    for note in ended.notes:
        _write(sys.stderr, note)
    _write(
        sys.stderr,
        f"{asked.job}: {ended.state}, {ended.rows_in:,} rows in, {ended.rows_out:,} "
        f"out (run {ended.run}). {ended.error or ''}".strip(),
    )
    return ended.exit_status


def _plan(asked: argparse.Namespace) -> Plan:
    for module in asked.module:
        import_module(module)
    job = find_job(asked.job)
    patterns = REDACT_DEFAULT if asked.redact is None else tuple(asked.redact)
    dsn = DsnSource().read()

    def session() -> Any:
        # spark-submit has said where it runs; SPARK_MASTER, if it was run by Python.
        return open_session(
            f"pgqueue {job.name}",
            master=os.environ.get("SPARK_MASTER") or _submitted_to(),
            redaction=Redaction(patterns),
        )

    return Plan(
        job=job,
        options=job.read_options(dict(asked.option)),
        dsn=dsn,
        sessions=session,
        by="spark-submit",
        read_options={"dsnEnv": asked.dsn_env} if asked.dsn_env else {},
        patterns=patterns,
    )


def _submitted_to() -> str | None:
    """Return the master that spark-submit was told, if there is a spark-submit."""
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    SparkContext._ensure_initialized()
    master: str | None = SparkConf().get("spark.master")
    return master


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="submit.py", description=__doc__)
    parser.add_argument("job", help="A pipeline job.")
    add_option(parser)
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="A module that declares pipeline jobs.",
    )
    parser.add_argument(
        "--redact",
        type=json.loads,
        metavar="JSON",
        help="A list of regular expressions, as PGQUEUE['REDACT'] has them.",
    )
    parser.add_argument(
        "--dsn-env",
        metavar="NAME",
        help="Read from the database in this environment variable.",
    )
    return parser


def add_option(parser: Any) -> None:
    """Let a parser of arguments take options of a job."""
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="An option of the job; may be given several times.",
    )


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE.")
    return name.strip(), value


def _write(stream: Any, line: str) -> None:
    stream.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

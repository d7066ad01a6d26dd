"""A pipeline job with what this project's settings say: session, database, secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.management.spark_session import dsn_of, spark_session
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.run import Plan


def plan_of(
    name: str,
    options: Mapping[str, str],
    *,
    by: str = "",
    queue_job: int | None = None,
    read_options: Mapping[str, str] | None = None,
) -> Plan:
    """
    Return what is to be run.

    Raises:
        SparkOptionError: No such job, or an option of it is wrong.
    """
    settings = get_settings()
    job = find_job(name)
    return Plan(
        job=job,
        options=job.read_options({**_from_settings(name, options), **options}),
        dsn=dsn_of(settings.database, writes=True),
        sessions=lambda: _session(f"pgqueue {name}"),
        by=by,
        queue_job=queue_job,
        read_options=read_options or {},
        patterns=settings.redact,
    )


def _from_settings(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that settings say, where a call says nothing else."""
    export = get_settings().export
    if name != "export" or export is None or "path" in options:
        return {}
    return {"path": export.path, "format": export.format}


@contextmanager
def _session(name: str) -> Iterator[Any]:
    session = spark_session(name)
    try:
        yield session
    finally:
        session.stop()


def this_account() -> str:
    """Return who runs this process, as far as the host knows."""
    import getpass

    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # A container's user has no name.
        return f"user {os.getuid()}"

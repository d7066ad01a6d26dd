"""A pipeline job with what this project's settings say: session, database, secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from django.utils.crypto import salted_hmac

from django_pgqueue.conf import get_settings
from django_pgqueue.management.pipeline.known_task import known_task
from django_pgqueue.management.spark_session import dsn_of, redaction_of, spark_session
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.run import Plan

# Jobs that go by PGQUEUE["EXPORT"].
OF_EXPORT = ("export", "compact", "verify")


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
        sessions=lambda: spark_session(f"pgqueue {name}"),
        by=by,
        queue_job=queue_job,
        read_options=read_options or {},
        patterns=settings.redact,
        known_task=known_task,
        redaction=redaction_of(settings) or Redaction(),
        sign=_signed,
    )


def _signed(text: str) -> str:
    return salted_hmac("django_pgqueue.erase", text, algorithm="sha256").hexdigest()


def _from_settings(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that settings say, where a call says nothing else."""
    export = get_settings().export
    if name not in OF_EXPORT or export is None or "path" in options:
        return {}
    return {"path": export.path}


def this_account() -> str:
    """Return who runs this process, as far as the host knows."""
    import getpass

    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # A container's user has no name.
        return f"user {os.getuid()}"

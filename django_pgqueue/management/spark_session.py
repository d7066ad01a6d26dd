"""
The Spark session of this project: what PGQUEUE and DATABASES say, handed to spark/.

spark/ knows no settings; here they are read, once, on the driver.
"""

from __future__ import annotations

import os
from typing import Any

from psycopg import pq
from psycopg.conninfo import make_conninfo

from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.postgres.connect import DEFAULTS, connection_params
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.session import open_session
from django_pgqueue.tasks.redact import all_secret_places


def spark_session(name: str = "django_pgqueue") -> Any:
    """
    Return a SparkSession in which format("pgqueue") reads this project's jobs.

    What PGQUEUE["REDACT"] names is hidden, parameters of the declared tasks as well.
    The database is that of $PGQUEUE_DSN, else that of PGQUEUE["DATABASE"].

    Args:
        name: The application, as Spark's UI shows it.

    Raises:
        MissingExtra: The extra [spark] is not installed.
        SparkError: There is no Java for it, or PGQUEUE["SPARK"] is wrong.
    """
    settings = get_settings()
    return open_session(
        name,
        master=settings.spark.master,
        memory=settings.spark.memory,
        config=settings.spark.config,
        dsn=os.environ.get(DEFAULT_VARIABLE) or dsn_of(settings.database),
        redaction=redaction_of(settings),
    )


def redaction_of(settings: Settings) -> Redaction | None:
    """Return what is hidden; None: what is hidden anyway."""
    places = all_secret_places(settings.redact)
    if settings.redact == REDACT_DEFAULT and not places:
        return None
    return Redaction(settings.redact, places)


def dsn_of(alias: str, *, writes: bool = False) -> str:
    """
    Return the database *alias* of DATABASES as a DSN of libpq.

    Args:
        alias: A key of DATABASES.
        writes: A standby will not do.
    """
    params = connection_params(alias)
    role = params.pop("assume_role", None)
    attrs = params.get("target_session_attrs")
    if not writes and attrs == DEFAULTS["target_session_attrs"]:
        # Reading is all that is done, so a standby will do.
        del params["target_session_attrs"]
    if role:
        params["options"] = f"{params.get('options', '')} -c role={role}".strip()
    known = {item.keyword.decode() for item in pq.Conninfo.get_defaults()}
    return make_conninfo(
        **{key: value for key, value in params.items() if key in known}
    )

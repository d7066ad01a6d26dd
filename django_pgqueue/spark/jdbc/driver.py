"""
Driver: PostgreSQL's JDBC driver, which no Python package carries.

A session of ours takes Debian's, unless its configuration names one. Whether a session
has one is found by using it, as a server of Spark Connect lets nobody look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)

CLASS = "org.postgresql.Driver"

# Debian's package libpostgresql-jdbc-java puts it there.
DEBIANS = Path("/usr/share/java/postgresql.jar")

JARS = "spark.jars"
# Where else a configuration may name it.
CLASS_PATHS = (
    JARS,
    "spark.jars.packages",
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
)

NOT_THERE = (
    "PostgreSQL's JDBC driver is not on the class path of Spark. Install Debian's "
    "libpostgresql-jdbc-java, which sessions of this package find by themselves in "
    f"{DEBIANS}; or say where it is in Spark's configuration, which is "
    "'config' of PGQUEUE['SPARK']: {'spark.jars': '/opt/postgresql.jar'} or "
    "{'spark.jars.packages': 'org.postgresql:postgresql:42.7.7'}."
)


def jars(config: Mapping[str, str], debians: Path = DEBIANS) -> dict[str, str]:
    """Return what to add to the configuration *config*, so that there is a driver."""
    named = any("postgresql" in config.get(key, "") for key in CLASS_PATHS)
    if named or not debians.exists():
        return {}
    return {JARS: ",".join(filter(None, (config.get(JARS), str(debians))))}


@cache
def tell_once(reason: str) -> None:
    """Warn that tables are read through Python, once for each *reason*."""
    log.warning(
        "Tables are read through Python, which is slower, fetches all columns that are "
        "asked for whatever the query needs, and has no snapshot: %s",
        reason,
    )

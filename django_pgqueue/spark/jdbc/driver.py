"""
Driver: PostgreSQL's JDBC driver, which no Python package carries.

A session of ours takes Debian's, unless its configuration names one. Whether a session
has one is found by using it, as a server of Spark Connect lets nobody look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

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


# Address ----------------------------------------------------------------------------
# Its password becomes a property, which Spark leaves out of plans, of the UI and of its
# event log. The rest is of the URL, since Spark writes the names of properties in small
# letters, and the driver then passes over prepareThreshold. What JDBC cannot do, such
# as a Unix socket, is said and not left out.

SECRET = "password"  # noqa: S105  # The name of the parameter.

# Parameters of libpq that JDBC has as well, and what it calls them.
SAME = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connect_timeout": "connectTimeout",
    "gssencmode": "gssEncMode",
    "options": "options",
}
SERVERS = {
    "any": "any",
    "read-write": "primary",
    "primary": "primary",
    "read-only": "secondary",
    "standby": "secondary",
    "prefer-standby": "preferSecondary",
}
KEEPALIVES = {"0": "false", "1": "true"}

# What says nothing about where the rows are: ours to set, or of no use to a reader.
LEFT_OUT = frozenset(
    {
        "application_name",
        "fallback_application_name",
        "client_encoding",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "tcp_user_timeout",
    }
)
PORT = "5432"


class NotByJdbc(Exception):  # It says what is so; nothing went wrong.
    """The DSN names what JDBC does not have; the text says what."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where JDBC finds the database."""

    server: str
    parameters: Mapping[str, str]
    properties: Mapping[str, str] = field(repr=False)

    def url(self, **more: str) -> str:
        """Return the URL, with further parameters of the driver's."""
        return (
            f"{self.server}?{urlencode({**self.parameters, **more}, quote_via=quote)}"
        )


def address(dsn: str, *, user: str, database: str) -> Address:
    """
    Return *dsn* for JDBC.

    Args:
        dsn: As DsnSource.read() returns it.
        user: Whom libpq has connected as, where the DSN does not say.
        database: Where to, likewise.

    Raises:
        NotByJdbc: It has a Unix socket, a service or another thing that JDBC lacks.
    """
    given = {
        name: str(value)
        for name, value in conninfo_to_dict(dsn).items()
        if name not in LEFT_OUT and value is not None
    }
    server = f"jdbc:postgresql://{_hosts(given)}/"
    server += quote(given.pop("dbname", database), safe="")
    properties = {"user": given.pop("user", user)}
    if SECRET in given:
        properties[SECRET] = given.pop(SECRET)
    parameters = {}
    if (servers := given.pop("target_session_attrs", None)) is not None:
        parameters["targetServerType"] = SERVERS[servers]
    if (alive := given.pop("keepalives", None)) is not None:
        parameters["tcpKeepAlive"] = KEEPALIVES.get(alive, "true")
    for name, value in given.items():
        if name not in SAME:
            raise NotByJdbc(f"The DSN has {name}, which JDBC does not know.")
        parameters[SAME[name]] = value
    return Address(server, parameters, properties)


def _hosts(given: dict[str, str]) -> str:
    """Take the hosts and ports out of *given*, and return them as in a URL."""
    hosts = given.pop("hostaddr", given.pop("host", "")).split(",")
    ports = given.pop("port", PORT).split(",")
    if any(not host or host[0] in "/@" for host in hosts):
        raise NotByJdbc("The DSN leads to a Unix socket, and JDBC speaks TCP alone.")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return ",".join(
        f"[{host}]:{port or PORT}" if ":" in host else f"{host}:{port or PORT}"
        for host, port in zip(hosts, ports, strict=True)
    )

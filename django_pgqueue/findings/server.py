"""The server: version, schema, rights, LISTEN, connections, vacuum and clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import psycopg
from django.db import connections as django_connections
from django.db.migrations.executor import MigrationExecutor

from django_pgqueue.exceptions import SchemaError
from django_pgqueue.findings.look import Look
from django_pgqueue.findings.registry import (
    Finding,
    Findings,
    finding,
    verdict,
)
from django_pgqueue.operators.human import age, duration, named
from django_pgqueue.postgres import health
from django_pgqueue.postgres.connect import connect, is_pooled, is_read_committed
from django_pgqueue.postgres.counters import MESSAGES, counters, repair_sql
from django_pgqueue.postgres.day_tables import ARCHIVE, today
from django_pgqueue.postgres.day_tables import DAYS_AHEAD_OF_LEADER as AHEAD
from django_pgqueue.postgres.rights import Rights, rights
from django_pgqueue.postgres.server import Facts, facts, missing_indexes
from django_pgqueue.tasks.errors import check_engine

VERSION_MIN = 140_000
HEARD_SECONDS_MAX = 3.0
CLOCK_SKEW_SECONDS_MAX = 1.0
CONNECTIONS_SHARE_MAX = 0.9
TRANSACTION_SECONDS_MAX = 300.0
SLOT_TRANSACTIONS_MAX = 1_000_000
NOTIFICATIONS_SHARE_MAX = 0.1
PREPARED_SECONDS_MAX = 60.0
DEAD_ROWS_MAX = 100_000


# What no worker starts without -------------------------------------------------------


@finding("server", is_fatal=True)
def server(look: Look) -> Findings:
    """Is the server new enough?"""
    found = facts(look.cursor)
    yield verdict(
        found.version_number < VERSION_MIN,
        f"PostgreSQL {found.version}, database {found.database}.",
        "Upgrade the server: 14 is the oldest supported.",
        severity="error",
        value=found.version_number,
        limit=VERSION_MIN,
    )


@finding("migrations", id="W012", is_fatal=True)
def migrations(look: Look) -> Findings:
    """Has every migration been applied?"""
    alias = look.settings.database
    pending = pending_migrations(alias)
    yield verdict(
        pending,
        f"Database {alias!r} lacks the migrations {', '.join(pending)} of pgqueue.",
        f"Run: python manage.py migrate pgqueue --database {alias}",
        right="All migrations are applied.",
        severity="error",
        value=pending,
    )


@finding("indexes", id="W013")
def indexes(look: Look) -> Findings:
    """Are the indexes there, and valid?"""
    missing = missing_indexes(look.cursor)
    for name in missing:
        yield verdict(
            True,
            f"Database {look.settings.database!r} lacks the valid index {name}; claims "
            f"would scan the table, and workers refuse to start.",
            f"If it is invalid: REINDEX INDEX CONCURRENTLY {name}. If it is gone: make "
            f"it again as the migration does.",
            severity="error",
            value=name,
        )
    invalid = [row.name for row in look.rows(health.INVALID_INDEXES)]
    invalid = [name for name in invalid if name not in missing]
    for name in invalid:
        yield verdict(
            True,
            f"The index {name} is invalid: it costs writes and helps nobody.",
            f"REINDEX INDEX CONCURRENTLY {name}; or drop it, if its name ends in "
            f"_ccnew.",
            value=name,
        )
    if not missing and not invalid:
        yield Finding(what="All indexes are valid.")


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a worker found that may start."""

    server: Facts
    rights: Rights
    # Whether a pooler stands before the server.
    is_pooled: bool


def check_readiness(alias: str) -> Readiness:
    """
    Verify the engine, the version, the migrations, hot indexes and, pooled, isolation.

    Leaves no connection open: the supervisor forks next.

    Raises:
        SchemaError: Something is missing; the message says how to fix it.
        django.db.OperationalError: The database cannot be reached.
    """
    connection = django_connections[alias]
    check_engine(alias)
    try:
        with connection.cursor() as cursor:
            look = Look(cursor)
            for check in (server, migrations, indexes):
                for each in check.examine(look):
                    if each.severity == "error":
                        raise SchemaError(f"{each.what} {each.way_out}")
            found, granted = facts(cursor), rights(cursor)
        session = connection.connection
        pooled = is_pooled(session)
        # Not a role whose default workers would have to change for their session.
        if pooled and not is_read_committed(session):
            role = session.info.user
            raise SchemaError(
                f"The role {role!r} of database {alias!r} is not read committed by "
                f"default, as claims need it, and behind a pooler a worker cannot set "
                f"that for its session. Run: ALTER ROLE {role} SET "
                f"default_transaction_isolation = 'read committed'; and let the pooler "
                f"reconnect."
            )
        return Readiness(found, granted, pooled)
    finally:
        close_connections()


def close_connections() -> None:
    """Close all of Django's connections: the supervisor forks next."""
    for other in django_connections.all(initialized_only=True):
        other.close()
        if getattr(other, "pool", None):
            other.close_pool()  # type: ignore[attr-defined]


def pending_migrations(alias: str) -> list[str]:
    """Return the migrations of this package that *alias* lacks, in their order."""
    executor = MigrationExecutor(django_connections[alias])
    targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "pgqueue"]
    return [
        migration.name
        for migration, _ in executor.migration_plan(targets)
        if migration.app_label == "pgqueue"
    ]


# The rest -----------------------------------------------------------------------------


@finding("partitions")
def partitions(look: Look) -> Findings:
    """Are the archive's tables of the next days there?"""
    first = today(look.cursor)
    days = ARCHIVE.attached(look.cursor)
    ahead = sum(1 for day in days if first < day <= first + timedelta(days=AHEAD))
    yield verdict(
        ahead < 2,
        f"The archive has tables for {ahead} days ahead, of {AHEAD}.",
        "A running worker makes them within a minute; without them, the first settle "
        "of a day waits for its table.",
        value=ahead,
        limit=2,
    )


@finding("roles", id="W018")
def roles(look: Look) -> Findings:
    """Can this role use the tables, make the days to come, and remove old ones?"""
    found = rights(look.cursor)
    lacks = [*found.lacks, *found.closed]
    yield verdict(
        found.trouble,
        found.trouble,
        f"{found.way_out}.",
        right=f"The role {found.role} can make, close and drop days. The doctor speaks "
        f"for its own role alone.",
        severity="error" if lacks else "warning",
        value=lacks,
    )


@finding("listen", in_transaction=False)
def listening(look: Look) -> Findings:
    """Does a NOTIFY arrive where workers listen? It leaves at the commit."""
    settings = look.settings
    poll = f"every {duration(settings.poll_interval_seconds)}"
    if not settings.listen:
        yield Finding(what=f"Workers only poll, {poll} (PGQUEUE['LISTEN'] is False).")
        return
    alias = settings.listen_database or settings.database
    try:
        with connect(alias, name="pgqueue doctor listener") as listener:
            pooled = is_pooled(listener)
            seconds = health.hears(
                listener, look.cursor.connection, patience_seconds=HEARD_SECONDS_MAX
            )
    except psycopg.Error as error:
        yield verdict(
            True,
            f"Database {alias!r}, where workers listen, cannot be used: {error}",
            "Correct it, or set PGQUEUE['LISTEN'] to False.",
            severity="error",
            value=alias,
        )
        return
    why = "a pooler stands before it" if pooled else "is it another database or server"
    yield verdict(
        seconds is None,
        f"A NOTIFY was not heard on {alias!r} within {duration(HEARD_SECONDS_MAX)} "
        f"({why}): workers find jobs by their poll, {poll}.",
        "Name an alias with a direct connection in PGQUEUE['LISTEN_DATABASE'].",
        right=f"A NOTIFY was heard on {alias!r} after {duration(seconds or 0.0)}.",
        value=seconds,
        limit=HEARD_SECONDS_MAX,
    )


@finding("connections")
def connections(look: Look) -> Findings:
    """Is there room for more connections?"""
    allowed = facts(look.cursor).connections_max
    (found,) = look.rows(health.CONNECTIONS)
    yield verdict(
        found.used >= allowed * CONNECTIONS_SHARE_MAX,
        f"{found.used} of {allowed} connections are open, {found.ours} of them ours.",
        "Raise max_connections, put a pooler before the web servers, or lower "
        "--threads.",
        value=found.used,
        limit=int(allowed * CONNECTIONS_SHARE_MAX),
    )


@finding("horizon")
def horizon(look: Look) -> Findings:
    """Does a long transaction keep vacuum from removing finished jobs?"""
    held = next(iter(look.rows(health.HORIZON)), None)
    if held is None:
        yield Finding(what="No transaction holds vacuum back.")
        return
    value, most = held.seconds, TRANSACTION_SECONDS_MAX
    if held.seconds is None:
        value, most = held.transactions, SLOT_TRANSACTIONS_MAX
    since = "" if held.seconds is None else f" for {age(held.seconds)}"
    is_wrong = value is not None and value > most
    yield verdict(
        is_wrong,
        f"{held.name} ({held.kind}) has held vacuum back{since}, "
        f"{held.transactions:,} transactions: dead rows pile up and claims slow down.",
        {
            "session": "End it: SELECT pg_terminate_backend(process).",
            "prepared": f"COMMIT PREPARED or ROLLBACK PREPARED '{held.name}'.",
            "slot": "Let its consumer catch up, or pg_drop_replication_slot().",
        }[held.kind],
        right="No transaction holds vacuum back.",
        value=value if is_wrong else None,
        limit=most if is_wrong else None,
    )


@finding("prepared")
def prepared(look: Look) -> Findings:
    """Are there prepared transactions that nobody ends?"""
    (found,) = look.rows(health.PREPARED)
    oldest = f", the oldest for {age(found.seconds)}" if found.transactions else ""
    yield verdict(
        (found.seconds or 0.0) > PREPARED_SECONDS_MAX,
        f"{found.transactions} prepared transactions{oldest}.",
        "End them with COMMIT PREPARED or ROLLBACK PREPARED: their locks stay through "
        "restarts.",
        value=found.seconds,
        limit=PREPARED_SECONDS_MAX,
    )


@finding("notifications")
def notifications(look: Look) -> Findings:
    """Does somebody who listens not read?"""
    usage = health.notification_usage(look.cursor)
    yield verdict(
        usage > NOTIFICATIONS_SHARE_MAX,
        f"The server's queue of notifications is {usage:.1%} full.",
        "A session that has LISTENed stays in a transaction and reads none; when the "
        "queue is full, NOTIFY fails. End that session.",
        value=usage,
        limit=NOTIFICATIONS_SHARE_MAX,
    )


@finding("vacuum")
def vacuum(look: Look) -> Findings:
    """Does vacuum keep up with the table of jobs?"""
    found = next(iter(look.rows(health.VACUUM)), None)
    if found is None:
        return
    when = "never" if found.seconds is None else f"{age(found.seconds)} ago"
    yield verdict(
        not found.is_on or (found.dead > DEAD_ROWS_MAX and found.dead > found.live),
        f"pgqueue_job: {found.dead:,} dead rows beside {found.live:,} live ones, last "
        f"vacuumed: {when}{'' if found.is_on else '; autovacuum is off'}.",
        "VACUUM pgqueue_job; and see what holds it back (horizon)."
        if found.is_on
        else "Set autovacuum to on: the table of jobs lives on it.",
        value=found.dead,
        limit=DEAD_ROWS_MAX,
    )


@finding("clock")
def clock(look: Look) -> Findings:
    """Do the clocks of this machine and of the database agree?"""
    # The best of three: the first one may have waited for a busy server.
    tries = [health.clock_skew(look.cursor) for _ in range(3)]
    skew, doubt = min(tries, key=lambda found: found[1])
    where = "ahead of" if skew > 0 else "behind"
    yield verdict(
        abs(skew) - doubt > CLOCK_SKEW_SECONDS_MAX,
        f"This machine's clock is {duration(abs(skew))} {where} the database's.",
        "Jobs follow the database's clock, but a run_after that is computed here is as "
        "wrong as the clock: run NTP on both.",
        value=skew,
        limit=CLOCK_SKEW_SECONDS_MAX,
    )


@finding("sequences")
def sequences(look: Look) -> Findings:
    """Has a restore, or a TRUNCATE, left one behind what its rows have?"""
    behind = [each for each in counters(look.cursor) if each.is_behind]
    texts = [
        f"{each.column} (at {each.last:,}, in use up to {each.used:,})"
        for each in behind
    ]
    repairs = " ".join(repair_sql(look.cursor, each) for each in behind)
    more = ""
    if any(each.column == MESSAGES for each in behind):
        more = (
            " Groups may have skipped messages that were published meanwhile; to read "
            "them: manage.py pgqueue seek TOPIC/GROUP --to earliest"
        )
    yield verdict(
        behind,
        f"Sequences are behind what is in use, as after a restore without them: "
        f"{named(texts)}. New rows collide with old ones, and groups read nothing of "
        f"what is published.",
        f"Run: {repairs}{more}",
        right="No sequence is behind what is in use.",
        severity="error",
        value=[each.column for each in behind],
    )

"""What the doctor asks of the server: schema, LISTEN, connections, vacuum, clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.operators.human import age, duration
from django_pgqueue.postgres import health
from django_pgqueue.postgres.connect import connect, is_pooled
from django_pgqueue.postgres.counters import MESSAGES, counters, repair_sql
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import DAYS_AHEAD_OF_LEADER as AHEAD
from django_pgqueue.postgres.rights import rights
from django_pgqueue.postgres.server import facts, missing_indexes
from django_pgqueue.queues.doctor import archive_days
from django_pgqueue.worker.readiness import VERSION_MIN, pending_migrations

HEARD_SECONDS_MAX = 3.0
CLOCK_SKEW_SECONDS_MAX = 1.0
CONNECTIONS_SHARE_MAX = 0.9
TRANSACTION_SECONDS_MAX = 300.0
SLOT_TRANSACTIONS_MAX = 1_000_000
NOTIFICATIONS_SHARE_MAX = 0.1
PREPARED_SECONDS_MAX = 60.0
DEAD_ROWS_MAX = 100_000


def server(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Is the server new enough?"""
    found = facts(cursor)
    is_old = found.version_number < VERSION_MIN
    yield finding(
        check="server",
        wrong=is_old,
        what=f"PostgreSQL {found.version}, database {found.database}.",
        severity="error",
        value=found.version_number,
        limit=VERSION_MIN,
        way_out="Upgrade the server: 14 is the oldest supported.",
    )


def migrations(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Has every migration been applied?"""
    alias = settings.database
    pending = pending_migrations(alias)
    yield finding(
        check="migrations",
        wrong=pending,
        what=f"Migrations of pgqueue are missing: {', '.join(pending)}.",
        right="All migrations are applied.",
        severity="error",
        value=pending,
        way_out=f"python manage.py migrate pgqueue --database {alias}",
    )


def indexes(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are the indexes there, and valid?"""
    missing, invalid = missing_indexes(cursor), health.invalid_indexes(cursor)
    for name in missing:
        yield Finding(
            check="indexes",
            severity="error",
            what=f"The index {name} is missing or invalid: claims scan the table.",
            value=name,
            way_out=f"REINDEX INDEX CONCURRENTLY {name}, or make it as the migration "
            f"does.",
        )
    for name in invalid:
        if name not in missing:
            yield Finding(
                check="indexes",
                severity="warning",
                what=f"The index {name} is invalid: it costs writes and helps nobody.",
                value=name,
                way_out=f"REINDEX INDEX CONCURRENTLY {name}; or drop it, if its name "
                f"ends in _ccnew.",
            )
    if not missing and not invalid:
        yield Finding(check="indexes", severity="ok", what="All indexes are valid.")


def partitions(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are the archive's tables of the next days there?"""
    today, days = archive_days(cursor)
    ahead = sum(1 for day in days if today < day <= today + timedelta(days=AHEAD))
    is_late = ahead < 2
    yield finding(
        check="partitions",
        wrong=is_late,
        what=f"The archive has tables for {ahead} days ahead, of {AHEAD}.",
        value=ahead,
        limit=2,
        way_out="A running worker makes them within a minute; without them, the first "
        "settle of a day waits for its table.",
    )


def roles(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Can this role use the tables, make the days to come, and remove old ones?"""
    found = rights(cursor)
    lacks = [*found.lacks, *found.closed]
    yield Finding(
        check="roles",
        severity="error" if lacks else "ok" if found.owns else "warning",
        what=found.trouble
        or f"The role {found.role} can make, close and drop days. The doctor speaks "
        f"for its own role alone.",
        value=lacks,
        way_out=f"{found.way_out}." if found.way_out else "",
    )


def listening(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does a NOTIFY arrive where workers listen?"""
    if not settings.listen:
        yield Finding(
            check="listen",
            severity="ok",
            what=f"Workers only poll, every {duration(settings.poll_interval_seconds)} "
            f"(PGQUEUE['LISTEN'] is False).",
        )
        return
    alias = settings.listen_database or settings.database
    try:
        with connect(alias, name="pgqueue doctor listener") as listener:
            pooled = is_pooled(listener)
            seconds = health.hears(
                listener, cursor.connection, patience_seconds=HEARD_SECONDS_MAX
            )
    except psycopg.Error as error:
        yield Finding(
            check="listen",
            severity="error",
            what=f"Database {alias!r}, where workers listen, cannot be used: {error}",
            value=alias,
            way_out="Correct it, or set PGQUEUE['LISTEN'] to False.",
        )
        return
    if seconds is not None:
        yield Finding(
            check="listen",
            severity="ok",
            what=f"A NOTIFY was heard on {alias!r} after {duration(seconds)}.",
            value=seconds,
            limit=HEARD_SECONDS_MAX,
        )
        return
    why = "a pooler stands before it" if pooled else "is it another database or server"
    yield Finding(
        check="listen",
        severity="warning",
        what=f"A NOTIFY was not heard on {alias!r} within "
        f"{duration(HEARD_SECONDS_MAX)} ({why}): workers find jobs by their poll, "
        f"every {duration(settings.poll_interval_seconds)}.",
        limit=HEARD_SECONDS_MAX,
        way_out="Name an alias with a direct connection in PGQUEUE['LISTEN_DATABASE'].",
    )


def connections(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Is there room for more connections?"""
    allowed = facts(cursor).connections_max
    used, ours = health.connection_counts(cursor)
    is_full = used >= allowed * CONNECTIONS_SHARE_MAX
    yield finding(
        check="connections",
        wrong=is_full,
        what=f"{used} of {allowed} connections are open, {ours} of them ours.",
        value=used,
        limit=int(allowed * CONNECTIONS_SHARE_MAX),
        way_out="Raise max_connections, put a pooler before the web servers, or lower "
        "--threads.",
    )


def horizon(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does a long transaction keep vacuum from removing finished jobs?"""
    held = health.horizon(cursor)
    if held is None or not _is_long(held):
        yield Finding(
            check="horizon", severity="ok", what="No transaction holds vacuum back."
        )
        return
    since = "" if held.seconds is None else f" for {age(held.seconds)}"
    is_slot = held.seconds is None
    yield Finding(
        check="horizon",
        severity="warning",
        what=f"{held.name} ({held.kind}) has held vacuum back{since}, "
        f"{held.transactions:,} transactions: dead rows pile up and claims slow down.",
        value=held.transactions if is_slot else held.seconds,
        limit=SLOT_TRANSACTIONS_MAX if is_slot else TRANSACTION_SECONDS_MAX,
        way_out={
            "session": "End it: SELECT pg_terminate_backend(process).",
            "prepared": f"COMMIT PREPARED or ROLLBACK PREPARED '{held.name}'.",
            "slot": "Let its consumer catch up, or pg_drop_replication_slot().",
        }[held.kind],
    )


def _is_long(held: health.Horizon) -> bool:
    if held.seconds is None:
        return held.transactions > SLOT_TRANSACTIONS_MAX
    return held.seconds > TRANSACTION_SECONDS_MAX


def prepared(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are there prepared transactions that nobody ends?"""
    count, seconds = health.prepared(cursor)
    is_old = seconds is not None and seconds > PREPARED_SECONDS_MAX
    yield finding(
        check="prepared",
        wrong=is_old,
        what=f"{count} prepared transactions"
        + (f", the oldest for {age(seconds)}." if seconds is not None else "."),
        value=seconds,
        limit=PREPARED_SECONDS_MAX,
        way_out="End them with COMMIT PREPARED or ROLLBACK PREPARED: their locks stay "
        "through restarts.",
    )


def notifications(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does somebody who listens not read?"""
    usage = health.notification_usage(cursor)
    is_full = usage > NOTIFICATIONS_SHARE_MAX
    yield finding(
        check="notifications",
        wrong=is_full,
        what=f"The server's queue of notifications is {usage:.1%} full.",
        value=usage,
        limit=NOTIFICATIONS_SHARE_MAX,
        way_out="A session that has LISTENed stays in a transaction and reads none; "
        "when the queue is full, NOTIFY fails. End that session.",
    )


def vacuum(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does vacuum keep up with the table of jobs?"""
    found = health.vacuum(cursor)
    if found is None:
        return
    is_late = found.dead > DEAD_ROWS_MAX and found.dead > found.live
    when = "never" if found.seconds is None else f"{age(found.seconds)} ago"
    way_out = ""
    if not found.is_on:
        way_out = "Set autovacuum to on: the table of jobs lives on it."
    elif is_late:
        way_out = "VACUUM pgqueue_job; and see what holds it back (horizon)."
    yield Finding(
        check="vacuum",
        severity="warning" if way_out else "ok",
        what=f"pgqueue_job: {found.dead:,} dead rows beside {found.live:,} live ones, "
        f"last vacuumed: {when}{'' if found.is_on else '; autovacuum is off'}.",
        value=found.dead,
        limit=DEAD_ROWS_MAX,
        way_out=way_out,
    )


def clock(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do the clocks of this machine and of the database agree?"""
    # The best of three: the first one may have waited for a busy server.
    skew, doubt = min(
        (health.clock_skew(cursor) for _ in range(3)), key=lambda found: found[1]
    )
    is_off = abs(skew) - doubt > CLOCK_SKEW_SECONDS_MAX
    where = "ahead of" if skew > 0 else "behind"
    yield finding(
        check="clock",
        wrong=is_off,
        what=f"This machine's clock is {duration(abs(skew))} {where} the database's.",
        value=skew,
        limit=CLOCK_SKEW_SECONDS_MAX,
        way_out="Jobs follow the database's clock, but a run_after that is computed "
        "here is as wrong as the clock: run NTP on both.",
    )


def sequences(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Has a restore, or a TRUNCATE, left one behind what its rows have?"""
    behind = [each for each in counters(cursor) if each.is_behind]
    told = [
        f"{each.column} (at {each.last:,}, in use up to {each.used:,})"
        for each in behind
    ]
    way_out = " ".join(["Run:", *(repair_sql(cursor, each) for each in behind)])
    if any(each.column == MESSAGES for each in behind):
        way_out += (
            " Groups may have skipped messages that were published meanwhile; to read "
            "them: manage.py pgqueue seek TOPIC/GROUP --to earliest"
        )
    yield finding(
        check="sequences",
        wrong=behind,
        what=f"Sequences are behind what is in use, as after a restore without them: "
        f"{named(told)}. New rows collide with old ones, and groups read nothing of "
        f"what is published.",
        right="No sequence is behind what is in use.",
        severity="error",
        value=[each.column for each in behind],
        way_out=way_out,
    )


EXAMINATIONS = (
    indexes,
    partitions,
    roles,
    listening,
    connections,
    horizon,
    prepared,
    notifications,
    vacuum,
    clock,
    sequences,
)

"""
Reap: finish what a driver has left that died.

Every write does it before it begins. By hand:

    python -m django_pgqueue.spark.write.reap [--stale SECONDS] [--name NAME]

A write counts as dead when it has shown no sign of life for some time. One that was
only slow fails then, and leaves nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg

from django_pgqueue.exceptions import SparkError
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues.fair import HINT as FAIR_HINT
from django_pgqueue.queues.lanes import HINT, HINT_SECONDS_MAX
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE, DsnSource
from django_pgqueue.spark.write import journal, staged
from django_pgqueue.spark.write.journal import OPEN
from django_pgqueue.spark.write.session import Connection, session

logger = logging.getLogger("django_pgqueue.spark")

# Without a sign of life. A stage takes room on the disk, and its write may wait for
# hours for a place in a cluster.
STALE_SECONDS = 86_400

# What has become of a write is told for this long.
KEPT_DAYS = 90

WRITES_MAX = 1_000

# Locks: none. What is open and dead, and what is decided and has left something.
LEFT = """
SELECT id, name, state FROM pgqueue_spark_write
 WHERE state = 'open'
       AND (name = %(name)s OR %(name)s::text IS NULL
            AND touched_at < clock_timestamp() - make_interval(secs => %(stale)s))
    OR state <> 'open' AND (stage_table IS NOT NULL OR refused_path IS NOT NULL)
 ORDER BY started_at LIMIT %(limit)s
"""

# Locks: none. A write that is open has left nothing yet.
OF_WRITE = """
SELECT stage_schema, stage_table, refused_path, refused_files
  FROM pgqueue_spark_write WHERE id = %(id)s AND state <> 'open'
"""

# Locks: as NOTIFY in postgres/wake.py. With the seconds since the first job may have
# been stored, since one transaction makes all of them.
WAKE_LANES = """
SELECT pg_notify(pgqueue_channel(), %(hint)s::text || least(%(most)s, ceil(
           extract(epoch FROM clock_timestamp() - w.started_at)))::integer)
  FROM pgqueue_spark_write w WHERE w.id = %(id)s
"""

# Locks: the rows. One that has left something is kept until that is gone.
FORGET = """
DELETE FROM pgqueue_spark_write
 WHERE started_at < clock_timestamp() - make_interval(days => %(days)s)
   AND state IN ('committed', 'rolled_back')
   AND stage_table IS NULL AND refused_path IS NULL
"""


def reap(
    dsn: str, *, stale_seconds: float = STALE_SECONDS, name: str | None = None
) -> list[str]:
    """
    Finish or roll back what dead drivers have left.

    Args:
        dsn: The database.
        stale_seconds: Without a sign of life, after which an open write counts as
            dead.
        name: Roll back the open write of this name, whatever its age.

    Returns:
        A line for each write that something was done about.

    Raises:
        SparkError: The database cannot be reached.
    """
    with session(dsn) as connection:
        return reap_with(connection, stale_seconds=stale_seconds, name=name)


def reap_with(
    connection: Connection,
    *,
    stale_seconds: float = STALE_SECONDS,
    name: str | None = None,
) -> list[str]:
    """As reap(), with an open session in autocommit."""
    asked = {"stale": stale_seconds, "name": name, "limit": WRITES_MAX}
    lines = []
    for write_id, title, state in connection.execute(LEFT, asked).fetchall():
        what = f"{title or write_id}: {state}"
        if state == OPEN:
            changed = connection.execute(journal.ROLL_BACK, {"id": write_id}).rowcount
            if changed != 1:
                continue  # Its driver was quicker.
            what += ", rolled back"
        problems = clear(connection, write_id)
        if problems:
            what += f"; left: {'; '.join(problems)}"
        logger.warning("write left behind %s", what)
        lines.append(what)
    connection.execute(FORGET, {"days": KEPT_DAYS})
    return lines


def clear(connection: Connection, write_id: UUID) -> list[str]:
    """
    Do away with what a decided write has left; return what could not be done.

    Whatever stays is tried again by the next write.
    """
    row = connection.execute(OF_WRITE, {"id": write_id}).fetchone()
    schema, table, path, files = row or (None, None, None, ())
    problems: list[str] = []

    def attempt(step: Callable[[], None], note: str) -> None:
        try:
            step()
            connection.execute(note, {"id": write_id})
        except (psycopg.Error, SparkError) as error:
            problems.append(" ".join(str(error).split()))

    if table is not None:
        attempt(lambda: staged.drop(connection, schema, table), journal.NO_STAGE)
    if path is not None:
        attempt(lambda: staged.settle_files(path, write_id, files), journal.NO_FILES)
    return problems


def wake_workers(
    connection: Connection,
    queues: Sequence[str],
    write_id: UUID,
    *,
    has_lanes: bool,
) -> None:
    """
    Send one NOTIFY for each queue: a hint, so its failure is none of the write's.

    Some jobs of the write may wait in lanes, if it *has_lanes*.
    """
    try:
        wake(connection.cursor(), queues)
        if has_lanes:
            wake(connection.cursor(), [f"{FAIR_HINT}{queue}" for queue in queues])
            told = {"id": write_id, "hint": HINT, "most": HINT_SECONDS_MAX}
            connection.execute(WAKE_LANES, told)
    except psycopg.Error as error:
        logger.warning("wake failed queues=%s error=%r", queues, error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Reap by hand; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m django_pgqueue.spark.write.reap",
        description=f"Finish what dead Spark drivers have left in ${DEFAULT_VARIABLE}.",
    )
    parser.add_argument(
        "--stale",
        type=float,
        default=STALE_SECONDS,
        metavar="SECONDS",
        help="without a sign of life",
    )
    parser.add_argument("--name", help="roll back the open write of this name")
    asked = parser.parse_args(arguments)
    try:
        lines = reap(DsnSource().read(), stale_seconds=asked.stale, name=asked.name)
    except SparkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in lines or ["Nothing was left."])
    return 0


if __name__ == "__main__":
    sys.exit(main())

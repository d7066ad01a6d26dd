"""
Mail files: bytes that mails carry, kept once beside their jobs, and who has them.

A file is held from before its use is written until that is committed, and the purge
passes over what is held. What it has locked itself it judges in a statement of its own,
which sees every use that was committed until then. So no file goes that a mail has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, column, one_row

# Rows of uses, and of files, that one purge looks at.
LOOKED_ROWS_MAX = 1_000

# How often the leader looks at a file, and at the use of a job that has not ended.
LOOK_AGAIN = timedelta(days=1)

# How often keep() meets a file that is purged at that very moment.
TRIES_MAX = 10

# Locks: key-share on the files until the transaction ends. Others share it, and the
# purge passes over them.
HOLD = """
SELECT digest FROM pgqueue_mail_file
 WHERE digest = ANY(%(digests)s::varchar[]) ORDER BY digest FOR KEY SHARE
"""

# Locks: on the new row. Who stores the same bytes at the same moment waits for the end
# of this transaction; in the order of digests, so that two calls do not deadlock.
STORE = """
INSERT INTO pgqueue_mail_file (digest, data, look_at)
VALUES (%(digest)s, %(data)s, statement_timestamp() + %(again)s::interval)
ON CONFLICT (digest) DO NOTHING
"""

# Locks: on new rows, of jobs of this transaction.
USE = """
INSERT INTO pgqueue_mail_file_use (digest, job_id, look_at)
SELECT u.digest, u.job_id, statement_timestamp() + %(again)s::interval
  FROM unnest(%(digests)s::varchar[], %(jobs)s::bigint[]) AS u(digest, job_id)
ON CONFLICT (digest, job_id) DO NOTHING
"""

# Locks: none.
FETCH = """
SELECT digest, data FROM pgqueue_mail_file WHERE digest = ANY(%(digests)s::varchar[])
"""

# Locks: one batch of uses; SKIP LOCKED passes over what another leader looks at. A job
# is always in one table, for whatever moves it does so in one statement. Subqueries per
# row, and rows by their places, which stay while they are locked: whatever is known of
# the tables, none is read as a whole. The use of a job in the archive is looked at
# again once its day has gone.
PURGE_USES = """
WITH due AS (
    SELECT ctid AS place, job_id FROM pgqueue_mail_file_use
     WHERE look_at < statement_timestamp()
     ORDER BY look_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
found AS MATERIALIZED (
    SELECT d.place,
           (SELECT true FROM pgqueue_job j WHERE j.id = d.job_id) AS is_live,
           (SELECT true FROM pgqueue_dead_letter l WHERE l.id = d.job_id) AS is_dead,
           (SELECT max(a.finished_at) FROM pgqueue_archived_job a
             WHERE a.id = d.job_id) AS finished_at
      FROM due d),
kept AS (
    UPDATE pgqueue_mail_file_use u
       SET look_at = greatest(
               (SELECT f.finished_at FROM found f WHERE f.place = u.ctid)
               + %(keep)s::interval, statement_timestamp()) + %(again)s::interval
     WHERE u.ctid = ANY(ARRAY(
           SELECT f.place FROM found f
            WHERE f.is_live OR f.is_dead OR f.finished_at IS NOT NULL))),
gone AS (
    DELETE FROM pgqueue_mail_file_use u
     WHERE u.ctid = ANY(ARRAY(
           SELECT f.place FROM found f
            WHERE f.is_live IS NULL AND f.is_dead IS NULL AND f.finished_at IS NULL)))
SELECT count(*) FROM found
"""

# Locks: one batch of files; SKIP LOCKED passes over those that a mail is just getting.
DUE = """
SELECT digest FROM pgqueue_mail_file
 WHERE look_at < statement_timestamp()
 ORDER BY look_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

# Locks: those of DUE, before it, in the same transaction. READ COMMITTED: its snapshot
# is younger than these. A subquery per row, as in PURGE_USES.
PURGE = """
WITH found AS MATERIALIZED (
    SELECT f.digest, (SELECT true FROM pgqueue_mail_file_use u
                       WHERE u.digest = f.digest LIMIT 1) AS is_used
      FROM unnest(%(digests)s::varchar[]) AS f(digest)),
kept AS (
    UPDATE pgqueue_mail_file
       SET look_at = statement_timestamp() + %(again)s::interval
     WHERE digest = ANY(ARRAY(SELECT digest FROM found WHERE is_used))),
gone AS (
    DELETE FROM pgqueue_mail_file
     WHERE digest = ANY(ARRAY(SELECT digest FROM found WHERE is_used IS NULL))
    RETURNING 1)
SELECT count(*) FROM gone
"""


class Purged(NamedTuple):
    """
    What one purge did.

    Attributes:
        files: How many files it deleted.
        is_full: Whether there may be more to look at.
    """

    files: int
    is_full: bool


def keep(cursor: Cursor, files: Mapping[str, bytes | None]) -> None:
    """
    Store what is not there yet, and hold all of it until the transaction ends.

    Args:
        cursor: Of an open transaction.
        files: By their digests; None: it must be there already.

    Raises:
        LookupError: One of these is not.
    """
    missing = sorted(files)
    for _ in range(TRIES_MAX):
        cursor.execute(HOLD, {"digests": missing})
        held = {digest for (digest,) in cursor.fetchall()}
        missing = [digest for digest in missing if digest not in held]
        if not missing:
            return
        for digest in missing:
            data = files[digest]
            if data is None:
                raise LookupError(f"the file {digest} of the mail is gone")
            params = {"digest": digest, "data": data, "again": LOOK_AGAIN}
            cursor.execute(STORE, params)
    raise RuntimeError(
        f"The file {missing[0]} of a mail was purged {TRIES_MAX} times while it was "
        f"stored: try again."
    )


def use(cursor: Cursor, uses: Iterable[tuple[str, int]]) -> None:
    """Note which job has which file; keep() holds the files."""
    digests, jobs = zip(*uses, strict=True)
    params = {"digests": list(digests), "jobs": list(jobs), "again": LOOK_AGAIN}
    cursor.execute(USE, params)


def fetch(cursor: Cursor, digests: Collection[str]) -> dict[str, bytes]:
    """Return the files that are there, by their digests."""
    cursor.execute(FETCH, {"digests": list(digests)})
    return {digest: bytes(data) for digest, data in cursor.fetchall()}


def purge(cursor: Cursor, *, archive_keep: timedelta) -> Purged:
    """
    Look at one batch of uses and one of files, and delete those that have no job.

    Args:
        cursor: Of a transaction that is READ COMMITTED, as a worker's own are.
        archive_keep: How long the archive keeps a job.
    """
    params = {"limit": LOOKED_ROWS_MAX, "keep": archive_keep, "again": LOOK_AGAIN}
    cursor.execute(PURGE_USES, params)
    (uses,) = one_row(cursor)
    digests = column(cursor, DUE, limit=LOOKED_ROWS_MAX)
    gone = 0
    if digests:
        cursor.execute(PURGE, {"digests": digests, "again": LOOK_AGAIN})
        (gone,) = one_row(cursor)
    return Purged(gone, is_full=LOOKED_ROWS_MAX in (uses, len(digests)))

"""
Rules: what each kind of call adds to the statement that stores its jobs.

    PLAIN        due at a time or after a delay; without either, now
    SPREAD       over a window: at offsets that are given, made of keys, or sampled
    ACCUMULATE   until others of its key have come, or a window has ended
"""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.postgres.bulk import BULK_ROWS_MAX

# Rows per statement of a fan-out: far more than of bulk() otherwise. What is due over a
# day keeps no worker waiting, and so one of usual size has one beginning.
SPREAD_ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """
    A kind of call. {offset}: of the row, in microseconds; {place}: its place, from 1.

    Attributes:
        due: run_after of a row; where it is NULL, the trigger is not called.
        columns: Further ones, each after a comma.
        values: What they get.
        before: A table expression that the values need.
        has_offsets: Whether each row may have an offset of its own.
    """

    due: str
    columns: str = ""
    values: str = ""
    before: tuple[str, str] | None = None  # Its name, and its query.
    has_offsets: bool = False

    @property
    def rows_max(self) -> int:
        """How many rows a statement has at most."""
        return SPREAD_ROWS_MAX if self.has_offsets else BULK_ROWS_MAX


# run_at is the caller's time, delay is counted from the database's clock.
PLAIN = Rule(
    due="coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval)"
)

# A window needs a beginning, so run_after is never NULL. statement_timestamp() is the
# same for all rows; an interval of microseconds alone is added exactly, whatever the
# session's time zone does meanwhile.
WINDOW_START = "statement_timestamp() + coalesce(%(delay)s::interval, '0')"
SPREAD = Rule(
    due=f"""
       coalesce(%(run_at)s::timestamptz, {WINDOW_START})
       + {{offset}} * interval '1 microsecond'""",
    has_offsets=True,
)
SAMPLED = "floor(random() * %(over_microseconds)s::bigint)::bigint"

# How many calls of the key wait for their window to end, up to size - 1: those that
# nobody has ever taken and that have no time of their own. The latest first: what
# waits for its next attempt is walked over only where it stands between them. Rows are
# compared, not column by column: see GATHER in gather.py. What other transactions have
# not committed is not counted, and nothing is locked.
WAITING = """
    SELECT count(*) AS calls
      FROM (SELECT 1 FROM pgqueue_job j
             WHERE j.accumulate_key IS NOT NULL AND j.leased_by IS NULL
               AND (j.accumulate_key, j.task, j.queue, j.visible_at)
                   > (%(accumulate_key)s::text, %(task)s, %(queue)s,
                      statement_timestamp())
               AND (j.accumulate_key, j.task, j.queue, j.visible_at)
                   <= (%(accumulate_key)s::text, %(task)s, %(queue)s,
                       statement_timestamp() + %(accumulate_within)s::interval)
               AND j.deliveries = 0 AND j.run_after IS NULL
             ORDER BY j.accumulate_key DESC, j.task DESC, j.queue DESC,
                      j.visible_at DESC
             LIMIT %(accumulate_size)s::bigint - 1) call
"""
# From the row that makes up the size on all are due at once: so there is one that leads
# a run for as long as there are that many.
ACCUMULATE = Rule(
    due=PLAIN.due,
    columns=", accumulate_key, visible_at",
    values=""", %(accumulate_key)s, clock_timestamp() + CASE
           WHEN waiting.calls + {place} >= %(accumulate_size)s::bigint
           THEN interval '0'
           ELSE %(accumulate_within)s::interval END""",
    before=("waiting", WAITING),
)

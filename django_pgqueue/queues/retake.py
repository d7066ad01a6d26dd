"""
Retake: a job that went back to its queue takes its dedup key again.

A job that has its key only while it waits (queued_key) gave it away when it was
claimed. Another one may have it by now: then a job that has run ends here, visibly, in
favour of that other one, and a job that has not really run goes on without its key.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_pgqueue.postgres.cursor import Cursor

# Of row j, right after it was put back: whether it has to take its key again.
IS_KEYLESS = "j.queued_key IS NOT NULL AND j.dedup_key IS NULL"

# How long to wait for a key that somebody has taken and not committed: hardly, while
# the keys of other jobs of the batch are held; then for each alone, this long in all.
PATIENCE_SECONDS = 0.01
PATIENCE_ALONE_SECONDS = 1.0

# Locks: those of pgqueue_retake_keys(), which its file in sql/ names.
RETAKE = """
SELECT retaken.out_id, retaken.out_outcome, retaken.out_holder
  FROM pgqueue_retake_keys(
           %(ids)s::bigint[], %(have_run)s::bool[], %(patience)s) AS retaken
"""


def retake(cursor: Cursor, jobs: Sequence[tuple[int, bool]]) -> dict[int, int]:
    """
    Let *jobs* take their keys again; return who supersedes which of them.

    Those that are claimed again meanwhile are passed over. A key whose new holder has
    not committed is waited for, a second at most for all of them: then they go on
    without.

    Args:
        cursor: An open cursor, right after the statement that put them back.
        jobs: (id, ran) each. ran: its task ended by itself, so its twin can stand for
            it; False: it was handed back, rescued, or crashed.

    Returns:
        By the id of a job that was archived as cancelled, that of the job which has
        its key.
    """
    superseded: dict[int, int] = {}
    waiting = _still_waiting(cursor, jobs, PATIENCE_SECONDS, superseded)
    for job in waiting:
        share = PATIENCE_ALONE_SECONDS / len(waiting)
        _still_waiting(cursor, [job], share, superseded)
    return superseded


def _still_waiting(
    cursor: Cursor,
    jobs: Sequence[tuple[int, bool]],
    patience_seconds: float,
    superseded: dict[int, int],
) -> list[tuple[int, bool]]:
    """Ask once for all of *jobs*; return those whose key nobody has committed."""
    cursor.execute(
        RETAKE,
        {
            "ids": [job_id for job_id, _ in jobs],
            "have_run": [ran for _, ran in jobs],
            "patience": f"{max(round(patience_seconds * 1_000), 1)}ms",
        },
    )
    waiting: set[int] = set()
    for job_id, outcome, holder in cursor.fetchall():
        if outcome == "superseded":
            superseded[job_id] = holder
        elif outcome == "waits":
            waiting.add(job_id)
    return [job for job in jobs if job[0] in waiting]

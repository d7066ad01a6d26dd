"""
Backlogs: what may stand in pgqueue_job besides the jobs that a claim is to find.

Each fills the emptied table with a million rows within half a minute and touches
neither the archive nor the dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_pgqueue.queues.claim import (
    CLAIM,
    SEE,
    Band,
    Claimed,
    claim,
    claim_from_floors,
    known_queues,
    see,
)
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.worker.claim.poller import SLICE_QUEUES, WAKE_QUEUES_MAX
from tests.scale import shapes
from tests.scale.plans import buffers, explain, faults

TEN = 10
LEASE = timedelta(seconds=60)

# One look at the plan and at the pages for so many claims.
CLAIMS = 1_000
BUFFERS_MAX = 500

# Ten jobs that are due, for backlogs in which nothing is.
TEN_DUE = """
INSERT INTO pgqueue_job (task, queue)
SELECT 'tests.app.tasks.noop', %(queue)s FROM generate_series(1, 10)
"""
ANALYZE = "ANALYZE pgqueue_job"
BACKLOGS = {
    "due": shapes.DUE,
    "future": shapes.FUTURE,
    "parked": f"{shapes.PARKED}; {shapes.HALF_FUTURE}",
    "queues": shapes.MANY_QUEUES,
    # All of a small backlog beside what has ended: the archive and the dead letters.
    "ended": shapes.DUE.replace("%(rows)s)", "%(rows)s / 100)"),
}
# When the planner has looked at the table.
ANALYSED = ("never", "before the load", "after the load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What claims of ten cost: milliseconds, and pages of one of them."""

    claims: int
    jobs: int
    p50: float
    p99: float
    max: float
    buffers: int
    wrong: list[str]


def fill(cursor: Any, backlog: str, rows: int, analysed: str) -> None:
    """Empty the table and give it *rows* rows, analysed when *analysed* says."""
    cursor.execute("TRUNCATE pgqueue_job")
    cursor.execute("ALTER TABLE pgqueue_job SET (autovacuum_enabled = off)")
    cursor.execute(shapes.FORGET, {})
    if analysed == "before the load":
        cursor.execute(ANALYZE)
    for statement in BACKLOGS[backlog].split(";"):
        cursor.execute(statement, {"rows": rows})
    if analysed == "after the load":
        cursor.execute(ANALYZE)


def empty(cursor: Any) -> None:
    """Leave the table empty and as it was made; the next load fills it."""
    cursor.execute("TRUNCATE pgqueue_job")
    cursor.execute("ALTER TABLE pgqueue_job RESET (autovacuum_enabled)")
    cursor.execute("CREATE TABLE IF NOT EXISTS scale_piece (name text PRIMARY KEY)")
    cursor.execute("DELETE FROM scale_piece WHERE name LIKE 'waiting %'")


def claims(cursor: Any, count: int = CLAIMS) -> Claims:
    """Claim ten jobs *count* times, and ack them in between."""
    queues = [queue.name for queue in known_queues(cursor)]
    params = {"worker": "scale", "limit": TEN, "lease": LEASE, "barred": []}
    if len(queues) <= WAKE_QUEUES_MAX:
        plans = [explain(cursor, CLAIM, {**params, "queues": queues})]
    else:
        plans = [explain(cursor, SEE, {"queues": some}) for some in _slices(queues)]
    took, jobs = [], 0
    for milliseconds, found in _claimed(cursor, queues, count):
        took.append(milliseconds)
        jobs += found
    took.sort()
    return Claims(
        claims=count,
        jobs=jobs,
        p50=round(took[count // 2], 2),
        p99=round(took[count * 99 // 100], 2),
        max=round(took[-1], 2),
        buffers=sum(map(buffers, plans)),
        wrong=[
            each for plan in plans for each in faults(plan, buffers_max=BUFFERS_MAX)
        ],
    )


def _claimed(cursor: Any, queues: list[str], count: int) -> Iterator[tuple[float, int]]:
    for number in range(count):
        # As a worker does: the queues in turn.
        turn = number % len(queues)
        asked = queues[turn:] + queues[:turn]
        cursor.execute(TEN_DUE, {"queue": asked[0]})
        started = time.perf_counter()
        found = _claim(cursor, asked)
        took = time.perf_counter() - started
        yield took * 1_000, len(found)
        ended = [Ended(job.id, job.delivery) for job in found]
        ack(cursor, worker="scale", ended=ended)


def _claim(cursor: Any, queues: list[str]) -> list[Claimed]:
    """Claim as a worker does: where there are many queues, it sees them first."""
    if len(queues) <= WAKE_QUEUES_MAX:
        return claim(cursor, queues=queues, worker="scale", limit=TEN, lease=LEASE)
    seen = [band for some in _slices(queues) for band in see(cursor, some).bands]
    bands = [Band(each.queue, each.priority, each.visible_at) for each in seen[:TEN]]
    return claim_from_floors(
        cursor, bands=bands, worker="scale", limit=TEN, lease=LEASE
    )


def _slices(queues: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(queues), SLICE_QUEUES):
        yield queues[start : start + SLICE_QUEUES]

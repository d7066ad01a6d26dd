"""
Turn checks: what fair lanes promise, from the history and the books of the clients.

Nothing here is measured in seconds: while a customer's job waits, the jobs of the loud
one that are claimed are counted. A wait begins when the client has its answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.faults.capacities import LOUD, TURNS_AHEAD_MAX
from tests.faults.evidence import Evidence
from tests.faults.verdict import Verdict


class Wait(NamedTuple):
    """The wait of one job for its first claim, by what happened meanwhile."""

    job: int
    ahead: int  # Jobs of the loud one that were claimed, beyond those of its own lane.
    backlog: int  # Jobs of the loud one that were there before it, and not claimed.


def waits(evidence: Evidence) -> Iterator[Wait]:
    """Yield the wait of each job that is not the loud one's."""
    answers = {
        operation.key: operation.answered_at
        for operation in evidence.operations
        if operation.outcome == "ack" and operation.answered_at is not None
    }
    stored: dict[str, dict[int, float]] = defaultdict(dict)
    claimed: dict[str, dict[int, float]] = defaultdict(dict)
    for change in evidence.changes:
        if change.place != "queue" or change.customer is None or change.new is None:
            continue
        if change.old is None:
            answered_at = answers.get(str(change.key).rpartition(".")[0])
            if answered_at is not None:
                stored[change.customer][change.job] = answered_at
        elif change.old.deliveries == 0 and change.new.deliveries == 1:
            claimed[change.customer][change.job] = change.at
    times = {name: sorted(jobs.values()) for name, jobs in claimed.items()}
    came = sorted(stored[LOUD].values())
    for customer, jobs in stored.items():
        if customer == LOUD:
            continue
        for job, since in jobs.items():
            until = claimed[customer].get(job)
            if until is None:
                continue
            between = _between(times, since, until)
            ahead = between.get(LOUD, 0) - between[customer]
            gone = bisect_right(times.get(LOUD, []), since)
            yield Wait(job, ahead, bisect_right(came, since) - gone)


def _between(
    times: Mapping[str, Sequence[float]], since: float, until: float
) -> dict[str, int]:
    """Return how many jobs of each were claimed in this time."""
    return {
        name: max(bisect_right(its, until) - bisect_right(its, since), 0)
        for name, its in times.items()
    }


def turns_are_taken(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Whoever has few jobs does not wait for all of another's."""
    worst = max(waits(evidence), key=lambda wait: wait.ahead, default=None)
    if worst is not None and worst.ahead > TURNS_AHEAD_MAX:
        yield f"{worst.ahead} jobs of {LOUD} were claimed before job {worst.job}"


def turns_ahead(evidence: Evidence) -> int:
    """Return how many jobs of the loud one went before another's at most."""
    return max((wait.ahead for wait in waits(evidence)), default=0)


def the_loud_have_a_backlog(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Somebody came when many more than that were waiting, or nothing was tried."""
    most = max((wait.backlog for wait in waits(evidence)), default=0)
    if most < 2 * TURNS_AHEAD_MAX:
        yield f"at most {most} jobs of {LOUD} were waiting when another's came"


ALL = (turns_are_taken, the_loud_have_a_backlog)

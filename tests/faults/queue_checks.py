"""
Queue checks: what the limits of a queue promise, over all workers, from the history.

Which jobs are of the queue is told by their task. As in lane_checks.py, the order is
that of ``seq``, and a lease that has run out is the job's until it is claimed anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from tests.faults.capacities import LIMIT
from tests.faults.evidence import Evidence
from tests.faults.history import Change
from tests.faults.lane_checks import ROOM_SECONDS_MAX, claims_of, excess, held
from tests.faults.verdict import Verdict

TASK = "metered"


def of_queue(evidence: Evidence) -> Sequence[Change]:
    """Return the changes of the queue's rows, in their order."""
    changes = (c for c in evidence.changes if c.place == "queue" and c.task == TASK)
    return sorted(changes, key=attrgetter("seq"))


def queue_holds_no_more(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Never are more of its jobs leased than it takes, by all workers together."""
    most = LIMIT
    for change, jobs in held(of_queue(evidence)):
        if len(jobs) > most:
            most = len(jobs)
            yield f"{most} jobs were leased at once, change {change.seq}"


def queue_keeps_rate(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """In no time are more leased than the rate gives, and one burst."""
    more = excess(claims_of(of_queue(evidence)))
    if more > 0:
        yield f"{more:.2f} leases too many in some time"


def queue_is_full(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """At some time all places are taken, and all turns, or nothing was tried."""
    changes = of_queue(evidence)
    most = max((len(jobs) for _, jobs in held(changes)), default=0)
    if most < LIMIT:
        yield f"at most {most} jobs were leased at once"
    if excess(claims_of(changes)) < -1:
        yield "the rate let one more go at any time"


def vacancies(changes: Sequence[Change]) -> Iterator[tuple[float, float]]:
    """Yield from when until when there were jobs, a place was free, and no claim."""
    waiting: set[int] = set()
    since: float | None = None
    for change, jobs in held(changes):
        waiting.discard(change.job)
        if change.new is not None and change.new.leased_by is None:
            waiting.add(change.job)
        is_claim = (
            change.old is not None
            and change.new is not None
            and change.new.deliveries > change.old.deliveries
        )
        is_vacant = bool(waiting) and len(jobs) < LIMIT
        if since is not None and (is_claim or not is_vacant):
            yield since, change.at
            since = None
        if since is None and is_vacant:
            since = change.at


def no_permit_is_lost(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Whatever dies, a free place is soon taken by a job that waits."""
    for since, until in vacancies(of_queue(evidence)):
        if until - since > ROOM_SECONDS_MAX:
            yield f"a place was free for {until - since:.1f} s"


ALL = (queue_holds_no_more, queue_keeps_rate, queue_is_full, no_permit_is_lost)

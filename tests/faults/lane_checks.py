"""
Lane checks: what groups, limits, rates, queues with a limit and fair lanes promise,
from the history and the books of the clients.

Which jobs share a lane is told by their arguments, and how many of them may be leased
at a time by their task: by nothing that the package has written beside them. The
history is read in the order of ``seq``: what came of a commit has a higher number than
what was committed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from tests.faults.capacities import (
    BURST,
    CAPACITIES,
    LIMIT,
    LOUD,
    PER_SECOND,
    TURNS_AHEAD_MAX,
)
from tests.faults.evidence import CLOCK_SECONDS, Evidence
from tests.faults.history import Change
from tests.faults.verdict import Verdict

# Who promotes may be killed before, or frozen, and the leader too: until there is
# another one, and he has walked over all lanes.
ROOM_SECONDS_MAX = 15.0

Name = tuple[str, str]  # (task, customer).


def lanes_of(evidence: Evidence) -> Mapping[Name, Sequence[Change]]:
    """Return the changes of the queue's rows of each lane, in their order."""
    lanes: dict[Name, list[Change]] = defaultdict(list)
    for change in sorted(evidence.changes, key=attrgetter("seq")):
        if change.place == "queue" and change.customer is not None:
            lanes[change.task, change.customer].append(change)
    return lanes


def held(changes: Iterable[Change]) -> Iterator[tuple[Change, set[int]]]:
    """
    Yield each change of a lane, and the jobs that are leased after it.

    A lease ends when the row goes, or is put back. One that has run out is the job's
    until somebody claims it, which is the same job anew.
    """
    jobs: set[int] = set()
    for change in changes:
        if change.new is not None and change.new.leased_by is not None:
            jobs.add(change.job)
        else:
            jobs.discard(change.job)
        yield change, jobs


def lanes_hold_no_more(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Never are more jobs of a lane leased than it takes: I7 and I8."""
    for (task, customer), changes in lanes_of(evidence).items():
        most = 0
        for change, jobs in held(changes):
            if len(jobs) > max(most, CAPACITIES[task]):
                most = len(jobs)
                yield (
                    f"{task} of {customer}: jobs {sorted(jobs)} were leased at once, "
                    f"change {change.seq}"
                )


def limits_are_reached(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """At some time as many are leased as may be, or nothing was tried."""
    for (task, customer), changes in lanes_of(evidence).items():
        most = max(len(jobs) for _, jobs in held(changes))
        if most < CAPACITIES[task]:
            yield f"{task} of {customer}: at most {most} jobs were leased at once"


def groups_keep_order(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """
    Whoever was committed before another was inserted starts first: I7.

    Before and after are the clients': one had its answer before the other was tried.
    """
    operations = {operation.key: operation for operation in evidence.operations}
    started: dict[int, float] = {}
    for run in evidence.runs.values():
        started[run.job] = min(run.started_at, started.get(run.job, run.started_at))
    for (task, customer), changes in lanes_of(evidence).items():
        if CAPACITIES[task] > 1:
            continue
        keys = {
            change.job: str(change.key).rpartition(".")[0]
            for change in changes
            if change.operation == "INSERT" and change.job in started
        }
        latest_at, latest = 0.0, 0
        for job in sorted(keys, key=started.__getitem__):
            operation = operations[keys[job]]
            is_known = operation.outcome == "ack" and operation.answered_at is not None
            if is_known and operation.answered_at < latest_at:
                yield f"{task} of {customer}: job {latest} started before job {job}"
            if operation.at > latest_at:
                latest_at, latest = operation.at, job


def rooms(changes: Iterable[Change], capacity: int) -> Iterator[tuple[float, float]]:
    """Yield from when until when a lane had room while jobs of it were parked."""
    parked: set[int] = set()
    through: set[int] = set()
    since: float | None = None
    for change in changes:
        parked.discard(change.job)
        through.discard(change.job)
        if change.new is not None:
            (parked if change.new.visible_at is None else through).add(change.job)
        if not parked or len(through) >= capacity:
            if since is not None:
                yield since, change.at
            since = None
        elif since is None:
            since = change.at


def no_place_is_lost(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Whatever dies, a lane with room soon lets through what is parked in it."""
    for (task, customer), changes in lanes_of(evidence).items():
        for since, until in rooms(changes, CAPACITIES[task]):
            if until - since > ROOM_SECONDS_MAX:
                yield f"{task} of {customer} had room for {until - since:.1f} s"


def claims_of(changes: Iterable[Change]) -> list[float]:
    """Return when jobs of a lane were leased, in order."""
    return sorted(
        change.at if change.new.leased_at is None else change.new.leased_at
        for change in changes
        if change.old is not None
        and change.new is not None
        and change.new.leased_by is not None
        and change.new.deliveries > change.old.deliveries
    )


def excess(times: Iterable[float]) -> float:
    """
    Return by how many the worst of all windows exceeds the rate and its burst.

    From the claim i to the claim k there are k - i + 1, and in that time there may be
    BURST + PER_SECOND * (t_k - t_i): for each k, the i is kept for which the difference
    is the largest.
    """
    worst = ahead = float("-inf")
    for place, at in enumerate(times):
        ahead = max(ahead, PER_SECOND * at - place)
        late = PER_SECOND * (at + CLOCK_SECONDS)
        worst = max(worst, place + 1 - BURST - late + ahead)
    return worst


def rates_hold(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """In no time are more jobs of a lane leased than the rate gives, and one burst."""
    for (task, customer), changes in lanes_of(evidence).items():
        more = excess(claims_of(changes))
        if more > 0:
            yield f"{task} of {customer}: {more:.2f} leases too many in some time"


def rates_are_used(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Whatever dies, what is parked is let through when the rate has a turn for it."""
    for (task, customer), changes in lanes_of(evidence).items():
        for since, until in rooms(changes, 1):
            if until - since > ROOM_SECONDS_MAX:
                yield f"{task} of {customer} let none through for {until - since:.1f} s"


def promoters_died(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Processes died right before a promotion, and right after one."""
    reached = {harm.what for harm in evidence.harms if harm.kind == "kill"}
    for point in sorted({"promote.before", "promote.after"} - reached):
        yield f"nobody died at {point}"


def room_seconds(evidence: Evidence) -> float:
    """Return how long a lane had room at most while jobs of it were parked."""
    return max(
        (
            until - since
            for (task, _), changes in lanes_of(evidence).items()
            for since, until in rooms(changes, CAPACITIES.get(task, 1))
        ),
        default=0.0,
    )


# Of each row that has lanes.
ALWAYS = (lanes_hold_no_more, no_place_is_lost)


# Queues with a limit and a rate; a job is told to be of one by its task.

METERED = "metered"


def of_queue(evidence: Evidence) -> Sequence[Change]:
    """Return the changes of the queue's rows, in their order."""
    changes = (c for c in evidence.changes if c.place == "queue" and c.task == METERED)
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


OF_QUEUES = (queue_holds_no_more, queue_keeps_rate, queue_is_full, no_permit_is_lost)


# Fair lanes. While a job of another customer waits, the claimed jobs of the loud one
# are counted; the wait begins when the client has its answer. Nothing is timed.


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


OF_TURNS = (turns_are_taken, the_loud_have_a_backlog)

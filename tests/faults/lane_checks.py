"""
Lane checks: what groups, limits and rates promise, from the history and the books
of the clients.

Which jobs share a lane is told by their arguments, and how many of them may be leased
at a time by their task: by nothing that the package has written beside them. The
history is read in the order of ``seq``: what came of a commit has a higher number than
what was committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from tests.faults.capacities import BURST, CAPACITIES, PER_SECOND
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

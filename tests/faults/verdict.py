"""
Verdict: whether the promise held. Pure functions of the evidence.

The words are Jepsen's. *Lost*: acknowledged, and now in no table. *Unexpected*: stored
or run although nobody asked for it, or its transaction rolled back. *Recovered*: its
client never learned that it was stored. *Unfinished*: live after the deadline.

Each job's history is walked as a state machine, which finds *illegal* changes and
*overlaps*: two leases that were valid at once. Then each lease is compared with what
its task has noted. A job that ran more often than its failures ask for was
*duplicated*, and each time must be *explained* by a fault that hit it; if not by name
of the process, then by the time and the reach of the fault.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.evidence import CLOCK_SECONDS, KILLS, Evidence, Harm, Run
from tests.faults.history import Change, Row

CRASHES_MAX = 3

# What a process may have started before its claims are on the server's disk.
UNFLUSHED_JOBS_MAX = 4

# Dead letters of jobs that did not start in their last delivery.
REFUSED = frozenset({"worker_lost", "lease_expired", "exhausted"})

SHOWN_MAX = 10

# What a move from a table to another one is called. What a saga sets aside, it does
# where its step gives up: then both moves are of one transaction.
MOVES = {
    ("queue", "archive"): "final",
    ("queue", "dead"): "final",
    ("dead", "queue"): "redriven",
    ("dead", "archive"): "set aside",
}


class Lease(NamedTuple):
    """One accepted lease, from its claim to its end."""

    job: int
    delivery: int
    worker: str
    claimed_at: float
    ended_at: float | None
    # "retried", "returned", "crashed", "lapsed", "archived", "dead"; "held": open yet.
    how: str
    row: Row  # As it was left: with the last error, state or reason.
    is_redriven: bool = False  # People have put it back after that.


@dataclass(slots=True)
class Verdict:
    """The counts, the violations, and whether the run is valid."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    bites: Counter[str] = field(default_factory=Counter)
    must_bite: Sequence[str] = ()
    leases: Mapping[int, Sequence[Lease]] = field(default_factory=dict)

    @property
    def bit(self) -> bool:
        """Whether one of the faults was felt."""
        return any(self.bites[name] for name in self.must_bite)

    @property
    def is_valid(self) -> bool:
        """Whether nothing was violated, and a fault has bitten."""
        return not any(self.violations.values()) and self.bit

    def add(self, kind: str, text: str) -> None:
        """Note a violation."""
        self.counts[kind] += 1
        if len(self.violations[kind]) < SHOWN_MAX:
            self.violations[kind].append(text)


def judge(evidence: Evidence, must_bite: Sequence[str]) -> Verdict:
    """Return the verdict on a run."""
    verdict = Verdict(must_bite=must_bite)
    by_job: dict[int, list[Change]] = defaultdict(list)
    for change in evidence.changes:
        by_job[change.job].append(change)
    leases = {job: walk(job, changes, verdict) for job, changes in by_job.items()}
    verdict.leases = leases
    _count_enqueues(evidence, verdict)
    _check_places(evidence, verdict)
    _check_runs(evidence, leases, verdict)
    _check_told(evidence, leases, verdict)
    judged = Judge(evidence, verdict)
    for job, its in leases.items():
        judged.follow(job, its)
    for left in evidence.leftovers:
        verdict.add("leftovers", left)
    if evidence.drained_at is None:
        verdict.add("unfinished", "the backlog was not gone before the deadline")
    _count_bites(evidence, leases, verdict)
    return verdict


# Enqueues ----------------------------------------------------------------------------


def _count_enqueues(evidence: Evidence, verdict: Verdict) -> None:
    """Compare what clients know with what was committed: I1 and I2."""
    stored = Counter(_enqueued(evidence))
    for key, times in stored.items():
        if times > 1:
            verdict.add("unexpected", f"{key} was stored {times} times")
    by_operation: Counter[str] = Counter()
    for key in stored:
        # What a savepoint has undone has a key of no operation.
        by_operation[key.rpartition(".")[0]] += 1
    known = {operation.key for operation in evidence.operations}
    for key in by_operation.keys() - known:
        verdict.add("unexpected", f"nobody has attempted {key}")
    for operation in evidence.operations:
        verdict.counts["attempted"] += operation.size
        verdict.counts[operation.outcome] += operation.size
        found = by_operation[operation.key]
        row = operation.key in evidence.committed_operations
        if operation.outcome == "ack" and (found < operation.size or not row):
            verdict.add(
                "lost", f"{operation.key}: {found} of {operation.size} were stored"
            )
        elif operation.outcome == "fail" and (found or row):
            verdict.add("unexpected", f"{operation.key} was rolled back")
        elif operation.outcome == "unknown":
            verdict.counts["recovered"] += found
            if (found, row) not in ((0, False), (operation.size, True)):
                verdict.add(
                    "half", f"{operation.key}: {found} of {operation.size}, row {row}"
                )
    verdict.counts["stored"] = sum(stored.values())


def _enqueued(evidence: Evidence) -> Iterator[str]:
    """Yield the key of each job or saga that was stored, as often as it was."""
    sagas: set[int] = set()
    for change in evidence.changes:
        if change.place != "queue" or change.operation != "INSERT":
            continue
        if change.schedule is not None:
            continue  # Nobody has asked for it but the time; see schedules.py.
        if change.workflow is None:
            yield str(change.key)
        elif change.workflow not in sagas:
            # Its other jobs are stored by the saga itself; see saga_checks.py.
            sagas.add(change.workflow)
            yield str(change.saga)


def _check_places(evidence: Evidence, verdict: Verdict) -> None:
    """Each stored job is in exactly one table, and in a final one: I1 and I3."""
    stored = {
        change.job
        for change in evidence.changes
        if change.place == "queue" and change.operation == "INSERT"
    }
    for job in stored - evidence.places.keys():
        verdict.add("lost", f"job {job} is in no table")
    for job, rows in evidence.places.items():
        if job not in stored:
            verdict.add("unexpected", f"job {job} was never stored")
        if len(rows) > 1:
            verdict.add("illegal", f"job {job} is in two places: {rows}")
        place, state = rows[0]
        verdict.counts[state or place] += 1
        if place == "queue":
            verdict.add("unfinished", f"job {job} is live")


# The state machine of a job ----------------------------------------------------------


def walk(job: int, changes: Sequence[Change], verdict: Verdict) -> list[Lease]:
    """Return the leases of one job, and note what no state machine would do."""
    leases: list[Lease] = []
    is_live = False
    moves = list(_moves(changes))
    for kind, change in moves:
        if kind == "insert":
            if is_live or leases:
                verdict.add("illegal", f"job {job} was stored again")
            is_live = True
        elif kind == "final":
            is_live = False
            _end(job, change, leases, verdict)
        elif kind == "update":
            _update(job, change, leases, verdict)
        elif change.workflow is not None and kind in ("redriven", "set aside"):
            is_live = kind == "redriven"
            _leave_dead(job, kind, leases, verdict)
        else:
            verdict.add("illegal", f"job {job}: {kind}")
    return leases


def _moves(changes: Sequence[Change]) -> Iterator[tuple[str, Change]]:
    """Yield (kind, change); a DELETE here with its INSERT there is one move."""
    left = list(changes)
    while left:
        change = left.pop(0)
        twin = None if change.operation == "UPDATE" else _twin(change, left)
        if twin is not None:
            left.remove(twin)
            is_gone = change.operation == "DELETE"
            gone, new = (change, twin) if is_gone else (twin, change)
            yield MOVES[gone.place, new.place], new._replace(old=gone.old)
        elif change.place == "queue" and change.operation in ("INSERT", "UPDATE"):
            yield change.operation.lower(), change
        else:
            yield f"{change.operation} in {change.place} alone", change


def _twin(change: Change, others: Sequence[Change]) -> Change | None:
    """Return the other half of a move; of two, that through the dead letters."""
    twins = [
        other
        for other in others
        if other.transaction == change.transaction
        and {change.operation, other.operation} == {"DELETE", "INSERT"}
        and (
            (change.place, other.place)
            if change.operation == "DELETE"
            else (other.place, change.place)
        )
        in MOVES
    ]
    return min(twins, key=lambda other: other.place != "dead", default=None)


def _end(job: int, change: Change, leases: list[Lease], verdict: Verdict) -> None:
    old, new = change.old, change.new
    assert old is not None
    assert new is not None
    if old.leased_by is None or not leases or leases[-1].how != "held":
        verdict.add("illegal", f"job {job} ended as {new.state} without a lease")
        return
    if (new.deliveries, new.attempt) != (old.deliveries, old.attempt):
        verdict.add("illegal", f"job {job} changed its numbers as it ended")
    if old.attempt < 1:
        verdict.add("illegal", f"job {job} ended with attempt {old.attempt}")
    how = "archived" if change.place == "archive" else "dead"
    leases[-1] = leases[-1]._replace(how=how, ended_at=change.at, row=new)


def _leave_dead(job: int, kind: str, leases: list[Lease], verdict: Verdict) -> None:
    if not leases or leases[-1].how != "dead":
        verdict.add("illegal", f"job {job} was {kind} and had not given up")
        return
    leases[-1] = leases[-1]._replace(is_redriven=kind == "redriven")


def _update(job: int, change: Change, leases: list[Lease], verdict: Verdict) -> None:
    old, new = change.old, change.new
    assert old is not None
    assert new is not None
    if new.deliveries != old.deliveries:
        _claim(job, change, old, new, leases, verdict)
    elif old.leased_by == new.leased_by:
        if (old.attempt, old.crashes) != (new.attempt, new.crashes):
            verdict.add("illegal", f"job {job} changed its numbers: {old} -> {new}")
    elif new.leased_by is not None:
        verdict.add("illegal", f"job {job} changed hands without a delivery")
    else:
        _give_back(job, change, old, new, leases, verdict)


def _claim(
    job: int,
    change: Change,
    old: Row,
    new: Row,
    leases: list[Lease],
    verdict: Verdict,
) -> None:
    at = change.at if new.leased_at is None else new.leased_at
    if new.deliveries != old.deliveries + 1 or new.leased_by is None:
        verdict.add("illegal", f"job {job}: deliveries {old} -> {new}")
        return
    if old.leased_by is None:
        expected = (old.attempt + 1, old.crashes)
        due_at = old.fair_due_at if old.visible_at is None else old.visible_at
        if due_at is None or due_at > at + CLOCK_SECONDS:
            verdict.add("illegal", f"job {job} was claimed before it was due")
    else:
        expected = (max(old.attempt, 1), old.crashes + 1)
        if old.visible_at is None or old.visible_at > at + CLOCK_SECONDS:
            verdict.add(
                "overlaps",
                f"job {job}: delivery {new.deliveries} began while "
                f"{old.leased_by} held {old.deliveries}",
            )
        if leases and leases[-1].how == "held":
            leases[-1] = leases[-1]._replace(how="lapsed", ended_at=at, row=new)
    if (new.attempt, new.crashes) != expected:
        verdict.add(
            "illegal",
            f"job {job}: attempt and crashes are {(new.attempt, new.crashes)} after "
            f"a claim, not {expected}",
        )
    if not 1 <= new.attempt <= new.max_attempts:
        verdict.add("illegal", f"job {job} runs attempt {new.attempt}")
    leases.append(Lease(job, new.deliveries, new.leased_by, at, None, "held", new))


def _give_back(
    job: int,
    change: Change,
    old: Row,
    new: Row,
    leases: list[Lease],
    verdict: Verdict,
) -> None:
    back = max(old.attempt - 1, 0)
    if (new.attempt, new.crashes) == (back, old.crashes + 1):
        # A claim parks what has a rate, and comes for it anew.
        is_lapsed = new.error_kind == "lease_expired" and new.visible_at is None
        how = "lapsed" if is_lapsed else "crashed"
    elif (new.attempt, new.crashes) == (old.attempt, old.crashes):
        how = "retried"
    elif (new.attempt, new.crashes) == (back, old.crashes):
        how = "returned"
    else:
        verdict.add("illegal", f"job {job} was given back as {new}, from {old}")
        return
    if leases and leases[-1].how == "held":
        leases[-1] = leases[-1]._replace(how=how, ended_at=change.at, row=new)


# What tasks noted --------------------------------------------------------------------


def _check_runs(
    evidence: Evidence, leases: dict[int, list[Lease]], verdict: Verdict
) -> None:
    """Nothing runs without a lease of its own, and no lease runs twice: I2, I4."""
    claimed = {(x.job, x.delivery): x for its in leases.values() for x in its}
    for key, run in evidence.runs.items():
        verdict.counts["executed"] += run.starts
        lease = claimed.get(key)
        if lease is None:
            verdict.add("unexpected", f"job {run.job}: {run.delivery} ran unclaimed")
        elif run.started_at < lease.claimed_at - CLOCK_SECONDS:
            verdict.add("unexpected", f"job {run.job} ran before its claim")
        if run.starts > 1:
            verdict.add(
                "unexplained",
                f"job {run.job}: delivery {run.delivery} started {run.starts} times",
            )
    by_process: Counter[tuple[int, float]] = Counter()
    for run, crash in evidence.forgotten:
        by_process[run.pid, crash.since] += 1
        verdict.counts["forgotten"] += 1
    for (pid, _), count in by_process.items():
        if count > UNFLUSHED_JOBS_MAX:
            verdict.add(
                "unexplained",
                f"a crash of the server forgot {count} jobs that process {pid} had "
                f"started, of at most {UNFLUSHED_JOBS_MAX}",
            )


def _check_told(
    evidence: Evidence, leases: dict[int, list[Lease]], verdict: Verdict
) -> None:
    """What a worker says that it wrote stands in the history, of this delivery."""
    wrote = {
        "ack": {"archived"},
        "dead": {"dead"},
        "retry": {"retried", "returned"},
    }
    how = {(x.job, x.delivery): x.how for its in leases.values() for x in its}
    for event, job, delivery, kind in evidence.told:
        if event == "stale":
            verdict.counts["stale"] += 1
        elif how.get((job, delivery)) not in wrote[kind]:
            verdict.add(
                "phantoms",
                f"job {job}: a worker reported {kind} of delivery {delivery}, which "
                f"was {how.get((job, delivery))}",
            )


class Judge:
    """Compares the leases of each job with its runs and with the faults."""

    def __init__(self, evidence: Evidence, verdict: Verdict) -> None:
        self._evidence = evidence
        self._verdict = verdict

    def follow(self, job: int, leases: Sequence[Lease]) -> None:
        """Judge all leases of one job, in their order."""
        # Why the job may run once more, by the last lease that ran; at first, no run.
        may_repeat = True
        before: Lease | None = None
        for lease in leases:
            run = self._evidence.runs.get((job, lease.delivery))
            is_asked_for = (
                before is None or before.how == "retried" or before.is_redriven
            )
            if run is not None and not is_asked_for:
                self._verdict.counts["duplicated"] += 1
                if may_repeat:
                    self._verdict.counts["explained"] += 1
                else:
                    self._verdict.add(
                        "unexplained",
                        f"job {job} ran again after delivery {before.delivery} was "
                        f"{before.how}",
                    )
            is_explained = self._check(lease, run)
            if run is not None:
                before, may_repeat = lease, is_explained
        if leases and leases[-1].how == "held":
            self._verdict.add(
                "leftovers", f"job {job} is leased by {leases[-1].worker}"
            )

    def _check(self, lease: Lease, run: Run | None) -> bool:
        """Check how a lease ended; say whether that explains another run."""
        how = lease.how
        if how in ("archived", "dead", "retried"):
            self._check_written(lease, run)
            return how == "retried"
        if how == "returned":
            return run is None or self._check_returned(lease)
        if how == "crashed":
            return self._check_crashed(lease, run)
        return how == "lapsed" and self._check_lapsed(lease, run)

    def _check_written(self, lease: Lease, run: Run | None) -> None:
        """An outcome is written after its own run has come to it: I3 and I4."""
        assert lease.ended_at is not None
        row, job = lease.row, lease.job
        if run is None:
            if lease.how == "dead" and row.state in REFUSED:
                self._check_refused(lease)
            else:
                self._verdict.add(
                    "accepted",
                    f"job {job}: delivery {lease.delivery} was {lease.how} and had "
                    f"not run: a stale write was accepted",
                )
            return
        if _is_timeout(row):
            return
        noted = run.ended_at if lease.how == "archived" else run.failed_at
        if noted is None or noted > lease.ended_at + CLOCK_SECONDS:
            self._verdict.add(
                "accepted",
                f"job {job}: delivery {lease.delivery} was {lease.how} while it ran: "
                f"a stale write was accepted",
            )

    def _check_refused(self, lease: Lease) -> None:
        row = lease.row
        is_lost = row.state in ("worker_lost", "lease_expired")
        if is_lost and row.crashes < CRASHES_MAX:
            self._verdict.add(
                "illegal", f"job {lease.job} is {row.state} after {row.crashes} crashes"
            )

    def _check_returned(self, lease: Lease) -> bool:
        """Handed back as if never claimed, although it had started: only at a stop."""
        self._verdict.counts["interrupted"] += 1
        if _is_interrupted(lease.row):
            return True
        self._verdict.add(
            "illegal",
            f"job {lease.job}: delivery {lease.delivery} had started and was handed "
            f"back as if it had not",
        )
        return False

    def _check_crashed(self, lease: Lease, run: Run | None) -> bool:
        """A rescue comes after a death, and the dead write nothing more."""
        assert lease.ended_at is not None
        self._verdict.counts["crashed"] += 1
        pid = self._pid(lease, run)
        seen_at = self._evidence.last_seen.get(lease.worker, 0.0)
        if seen_at > lease.ended_at + CLOCK_SECONDS:
            self._verdict.add(
                "overlaps",
                f"job {lease.job}: delivery {lease.delivery} was taken from process "
                f"{pid}, which lived on",
            )
            return False
        if self._cause(lease, pid, kills=True) is not None:
            return True
        self._verdict.add(
            "unexplained",
            f"job {lease.job}: delivery {lease.delivery} crashed, and nobody had "
            f"killed process {pid}",
        )
        return False

    def _check_lapsed(self, lease: Lease, run: Run | None) -> bool:
        """A lease runs out only because a fault kept its worker from renewing it."""
        self._verdict.counts["lapsed"] += 1
        if self._cause(lease, self._pid(lease, run), kills=False) is not None:
            return True
        self._verdict.add(
            "unexplained",
            f"job {lease.job}: the lease of delivery {lease.delivery} ran out, and no "
            f"fault had hit {lease.worker}",
        )
        return False

    def _pid(self, lease: Lease, run: Run | None) -> int | None:
        return self._evidence.pids.get(lease.worker) if run is None else run.pid

    def _cause(self, lease: Lease, pid: int | None, *, kills: bool) -> Harm | None:
        assert lease.ended_at is not None
        for harm in self._evidence.harms:
            is_possible = not kills or harm.kind in KILLS
            if (
                is_possible
                and harm.hits(pid)
                and harm.covers(lease.claimed_at, lease.ended_at)
            ):
                return harm
        return None


def _is_timeout(row: Row) -> bool:
    return (row.error_type or "").endswith(".TaskTimeout")


def _is_interrupted(row: Row) -> bool:
    return (row.error_type or "").endswith((".Interrupted", ".Snooze"))


# Bites -------------------------------------------------------------------------------

DATABASE_ERRORS = ("django.db.", "psycopg.")

# An ack takes a few milliseconds.
HELD_UP_SECONDS = 1.0


def _count_bites(
    evidence: Evidence, leases: dict[int, list[Lease]], verdict: Verdict
) -> None:
    """Count what shows that faults were felt."""
    counts, bites = verdict.counts, verdict.bites
    for name in ("crashed", "lapsed", "stale", "interrupted", "unknown"):
        bites[name] = counts[name]
    bites["returned"] = sum(
        lease.how == "returned" for its in leases.values() for lease in its
    )
    failures = [run.error or "" for run in evidence.runs.values() if run.error]
    counts["handler_failures"] = len(failures)
    bites["handler_database_errors"] = sum(
        error.startswith(DATABASE_ERRORS) for error in failures
    )
    failed = [o for o in evidence.operations if o.outcome == "fail" and not o.planned]
    bites["refused_enqueues"] = len(failed)
    recovered = [line for line in evidence.log_lines if "recovered  loop=" in line]
    deaf = [line for line in evidence.log_lines if " deaf " in line]
    failing = [line for line in evidence.log_lines if "failed     loop=" in line]
    bites["reconnected"] = len(recovered) + len(deaf)
    errors = "\n".join([*failing, *failures, *(o.error for o in evidence.operations)])
    bites["cancelled"] = errors.count("QueryCanceled") + errors.count("canceling")
    bites["timed_out"] = len(re.findall("timeout|LockNotAvailable", errors))
    bites["paused"] = sum(_had_lease(harm, evidence, leases) for harm in evidence.harms)
    bites["held_up"] = sum(
        (lease.ended_at or 0.0) - run.ended_at > HELD_UP_SECONDS
        for its in leases.values()
        for lease in its
        if lease.how == "archived"
        and (run := evidence.runs.get((lease.job, lease.delivery))) is not None
        and run.ended_at is not None
    )
    bites["waiting"] = len(evidence.waiting)
    bites["isolated"] = sum(row[3] != "read committed" for row in evidence.effects)
    bites["late"] = int(evidence.measures.get("late_starts", 0))
    bites["handed_over"] = int(evidence.measures.get("handed_over", 0))
    bites["caught_up"] = int(evidence.measures.get("caught_up", 0))
    bites["littered"] = int(evidence.measures.get("littered", 0))


def _had_lease(harm: Harm, evidence: Evidence, leases: dict[int, list[Lease]]) -> bool:
    """Whether a process was paused that held a lease."""
    return harm.kind == "pause_process" and any(
        lease.claimed_at < harm.since < (lease.ended_at or harm.since + 1)
        and evidence.pids.get(lease.worker) in (harm.pids or ())
        for its in leases.values()
        for lease in its
    )

"""
Checks: what a row demands besides what always holds. Each yields what is wrong.

The numbers are those of the fault matrix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import quantiles

from tests.faults.evidence import Evidence, Harm, Run
from tests.faults.poison import ENDS
from tests.faults.verdict import Verdict

ORPHAN_SECONDS_MAX = 5.0
RECOVERY_SECONDS_MAX = 9.0
BACK_SECONDS_MAX = 10.0
LINES_PER_SECOND_MAX = 10.0
CPU_SHARE_MAX = 0.05

POLL_SECONDS = 1.0
# A listener proves itself every 15 s, and is patient for 5 s.
PROOF_SECONDS = 20.0
WAKE_SECONDS_P95_MAX = 0.1

STALE_SHARE_MIN = 0.95
POINTS_SHARE_MIN = 0.9


def harms(evidence: Evidence, *kinds: str) -> list[Harm]:
    """Return the faults of these kinds that happened."""
    return [harm for harm in evidence.harms if harm.kind in kinds]


def waits(evidence: Evidence) -> list[tuple[float, float]]:
    """Return (moment of its enqueue, seconds until its first start) of each job."""
    first: dict[int, float] = {}
    for run in evidence.runs.values():
        first[run.job] = min(run.started_at, first.get(run.job, run.started_at))
    return [
        (change.at, first[change.job] - change.at)
        for change in evidence.changes
        if change.place == "queue"
        and change.operation == "INSERT"
        and change.job in first
    ]


def repeats_within_slots(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """A kill repeats no more jobs than its process had threads: I5."""
    limit = 4 * len(harms(evidence, "kill_process"))
    if verdict.counts["duplicated"] > limit:
        yield f"{verdict.counts['duplicated']} repeats of at most {limit}"


def every_point_was_reached(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Processes died at every point, nearly as often as planned."""
    reached = Counter(harm.what for harm in harms(evidence, "kill"))
    for point, wanted in evidence.measures["points"].items():
        if reached[point] < POINTS_SHARE_MIN * wanted:
            yield f"{reached[point]} of {wanted} deaths at {point}"


def orphans_leave_soon(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Processes whose supervisor is gone leave too."""
    longest = max(evidence.measures["orphan_seconds"], default=0.0)
    if longest > ORPHAN_SECONDS_MAX:
        yield f"an orphan lived for {longest:.1f} s of {ORPHAN_SECONDS_MAX:g} s"


def leases_are_free_soon(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """
    What a lost worker held goes before what is due later: lease, poll and two seconds.

    Later than others it may be: behind those that were due before its lease ran out,
    where too few workers are left for all of them.
    """
    claims = [
        (change.new.leased_at or change.at, change.old.visible_at)
        for change in evidence.changes
        if change.old is not None
        and change.new is not None
        and change.old.visible_at is not None
        and change.new.deliveries > change.old.deliveries
    ]
    for harm in harms(evidence, "kill_group", "kill_supervisor"):
        # Orphans renew what they still run until they leave.
        limit = RECOVERY_SECONDS_MAX
        if harm.kind == "kill_supervisor":
            limit += ORPHAN_SECONDS_MAX
        for leases in verdict.leases.values():
            for lease in leases:
                pid = evidence.pids.get(lease.worker)
                ended = lease.ended_at or evidence.healed_at
                if (
                    pid is not None
                    and harm.hits(pid)
                    and lease.claimed_at <= harm.since
                    and any(
                        at < ended and due_at > harm.since + limit
                        for at, due_at in claims
                    )
                ):
                    yield f"job {lease.job} was held for {ended - harm.since:.1f} s"


def clients_were_hit(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """The planned deaths of clients happened, and COMMITs had no answer."""
    unknown = sum(o.outcome == "unknown" for o in evidence.operations)
    wanted = evidence.measures["endings"]
    if unknown < STALE_SHARE_MIN * wanted:
        yield f"{unknown} transactions of {wanted} ended unknown"


def pauses_were_refused(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Nearly every pause ends with a write that comes too late and is refused."""
    paused = len(harms(evidence, "pause_process"))
    if verdict.counts["stale"] < STALE_SHARE_MIN * paused:
        yield f"{verdict.counts['stale']} refused writes of {paused} pauses"


def nothing_was_repeated(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """A pause that is shorter than the lease costs nothing."""
    for name in ("duplicated", "lapsed", "stale"):
        if verdict.counts[name]:
            yield f"{verdict.counts[name]} {name}"


def workers_lived_on(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """No process ended, and each stops in order at the end."""
    died = [line for line in evidence.log_lines if " died " in line]
    if died:
        yield f"{len(died)} processes ended: {died[0]}"
    if any(evidence.statuses):
        yield f"workers ended with {evidence.statuses}"


def back_soon(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Every process claims again soon after the database is ready."""
    for seconds in evidence.measures["back_seconds"]:
        if seconds > BACK_SECONDS_MAX:
            yield f"workers were back after {seconds:.1f} s"


def few_lines(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """An outage does not flood the log."""
    for rate in evidence.measures["lines_per_second"]:
        if rate > LINES_PER_SECOND_MAX:
            yield f"{rate:.1f} log lines a second and process"


def idle_while_down(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Waiting for the database costs hardly any processor time."""
    for share in evidence.measures["cpu_while_down"]:
        if share > CPU_SHARE_MAX:
            yield f"{share:.1%} of a processor for each process that waits"


def nothing_runs_beside_itself(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """No process starts a job that it still runs, whatever became of its lease."""
    runs: dict[tuple[int, int], list[Run]] = defaultdict(list)
    for run in evidence.runs.values():
        runs[run.pid, run.job].append(run)
    for (pid, job), mine in runs.items():
        mine.sort(key=lambda run: run.started_at)
        for first, second in pairwise(mine):
            ended = first.ended_at or first.failed_at
            if ended is None or second.started_at < ended:
                yield f"process {pid} started job {job} while it ran there"


def no_serialization_failure(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """40001 is no business of tasks and clients that did not ask for it."""
    for run in evidence.runs.values():
        if "Serialization" in (run.error or ""):
            yield f"job {run.job} saw {run.error}"
    for line in evidence.log_lines:
        if "could not serialize" in line:
            yield line


def poll_takes_over(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """While nobody hears, a job waits for the poll and not longer."""
    (hole,) = harms(evidence, "hole")
    slow = [
        wait
        for at, wait in waits(evidence)
        if hole.since + 0.2 < at < hole.until and wait > POLL_SECONDS + 1.0
    ]
    if slow:
        yield f"{len(slow)} jobs waited up to {max(slow):.2f} s in the hole"


def wakes_are_back(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """After the hole, and the time of one proof, jobs start as soon as before it."""
    (hole,) = harms(evidence, "hole")
    before = [wait for at, wait in waits(evidence) if at < hole.since]
    after = [wait for at, wait in waits(evidence) if at > hole.until + PROOF_SECONDS]
    if len(after) < 10 or len(before) < 10:
        yield f"only {len(before)} jobs came before the hole, and {len(after)} after"
        return
    usual, p95 = quantiles(before, n=20)[-1], quantiles(after, n=20)[-1]
    # A machine that is busy with other things starts nothing within 100 ms; but where
    # no wake comes back, the poll alone makes it a second.
    if p95 > min(max(WAKE_SECONDS_P95_MAX, 4 * usual), POLL_SECONDS / 2):
        yield f"{p95 * 1000:.0f} ms to wake after the hole (95 in 100)"


def ends(evidence: Evidence) -> Iterator[tuple[str, str | None, str]]:
    """Yield (task, how, how it ended) of each job."""
    for change in evidence.changes:
        if change.place == "queue" and change.operation == "INSERT":
            rows = evidence.places.get(change.job, [("nowhere", None)])
            yield change.task, change.how, rows[0][1] or rows[0][0]


def effects_happen_once(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """What an atomic task writes is there once if it succeeded, and else never."""
    written = Counter(job for job, _, _, _ in evidence.effects)
    for job, rows in evidence.places.items():
        wanted = int(rows[0][1] == "succeeded")
        if written[job] != wanted:
            yield f"job {job} ended as {rows[0][1]} with {written[job]} effects"


def good_jobs_succeed(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Poison takes down no more than itself."""
    bad = Counter(
        end for task, _, end in ends(evidence) if task == "probe" and end != "succeeded"
    )
    if bad:
        yield f"good jobs ended as {dict(bad)}"


def poison_ends_right(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Each kind of poison ends with its reason, or does no harm and succeeds."""
    for task, how, end in ends(evidence):
        if task == "poisonous" and how is not None:
            expected = ENDS.get(how, ("succeeded",))
            if end not in expected:
                yield f"{how} ended as {end}, not {expected}"


def suspects_run_alone(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """A job whose process died under it runs beside nothing in its next one."""
    runs_of: dict[str, list[tuple[float, float, int]]] = {}
    suspects = []
    for leases in verdict.leases.values():
        has_crashed = False
        for lease in leases:
            run = evidence.runs.get((lease.job, lease.delivery))
            if run is not None:
                ended_at = run.ended_at or run.failed_at or lease.ended_at
                span = run.started_at, ended_at or evidence.healed_at, lease.job
                runs_of.setdefault(lease.worker, []).append(span)
                if has_crashed:
                    suspects.append((lease.worker, span))
            has_crashed |= lease.how == "crashed"
    for worker, (started_at, ended_at, job) in suspects:
        beside = [
            other
            for since, until, other in runs_of[worker]
            if other != job and since < ended_at and until > started_at
        ]
        if beside:
            yield f"job {job} had crashed and ran beside job {beside[0]} in {worker}"


def everything_succeeds(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """No job fails for good."""
    bad = Counter((task, how, end) for task, how, end in ends(evidence))
    wrong = {key: count for key, count in bad.items() if key[2] != "succeeded"}
    if wrong:
        yield f"jobs ended as {wrong}"


def no_leaks(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """No job finds what another has left."""
    for what, count in Counter(evidence.leaks).items():
        yield f"{count} jobs found {what}"

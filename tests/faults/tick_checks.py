"""
Tick checks: what rows with schedules demand. Each yields what is wrong.

What is due is reckoned here by plain arithmetic, and not by the package: every period
of these schedules divides an hour.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module

from tests.faults.evidence import Evidence
from tests.faults.schedules import Schedule, Tick
from tests.faults.verdict import Verdict

# A tick is issued so long after it was due, where nothing keeps it.
PUNCTUAL_SECONDS = 2.0
# Two statements of one transaction read the clock one after the other, and a commit
# may wait for a disk.
COMMIT_SECONDS = 2.0

MISSED_MAX = 1_000
OUTAGE_TICKS = 10


def due_between(period: int, after: float, until: float) -> list[int]:
    """Return the moments after *after* until *until* that a period divides."""
    first = (math.floor(after) // period + 1) * period
    return list(range(first, math.floor(until) + 1, period))


def periods(module: str) -> dict[str, int]:
    """Return the seconds between two ticks of each schedule that a row declares."""
    found: dict[str, int] = import_module(f"tests.faults.{module}").PERIODS
    return found


def handed_over(evidence: Evidence) -> int:
    """Return how many schedulers issued ticks, besides the first one."""
    return max(len({step.application for step in evidence.steps}) - 1, 0)


def caught_up(evidence: Evidence, module: str) -> int:
    """Return how often ten ticks of a schedule or more were due at once."""
    known = periods(module)
    names = {schedule.id: schedule.name for schedule in evidence.schedules}
    return sum(
        len(due_between(known[names[step.schedule]], step.before, step.after))
        >= OUTAGE_TICKS
        for step in evidence.steps
        if names.get(step.schedule) in known
    )


def late_seconds(evidence: Evidence) -> float:
    """Return how late the latest tick was issued, by the server's clock."""
    return max((tick.ticked_at - tick.due_at for tick in evidence.ticks), default=0.0)


def ticks_are_whole(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """A tick and its job are there both, or neither is: and each once."""
    jobs = Counter(
        (change.schedule, change.tick, change.job)
        for change in evidence.changes
        if change.schedule is not None
        and (change.place, change.operation) == ("queue", "INSERT")
    )
    ticks = Counter((tick.schedule, tick.due_at, tick.job) for tick in evidence.ticks)
    for schedule, due_at, job in ticks - jobs:
        if job is not None or _of(evidence, schedule, due_at).outcome == "enqueued":
            yield f"the tick {due_at:.0f} of schedule {schedule} has no job"
    for schedule, due_at, job in jobs - ticks:
        yield f"job {job} of schedule {schedule} at {due_at:.0f} has no tick"
    each = Counter((schedule, due_at) for schedule, due_at, _ in jobs.elements())
    for (schedule, due_at), count in each.items():
        if count > 1:
            yield f"the tick {due_at:.0f} of schedule {schedule} has {count} jobs"
    yield from _last_ticks(evidence)


def _of(evidence: Evidence, schedule: int, due_at: float) -> Tick:
    return next(
        tick
        for tick in evidence.ticks
        if (tick.schedule, tick.due_at) == (schedule, due_at)
    )


def _last_ticks(evidence: Evidence) -> Iterator[str]:
    latest: dict[int, float] = {}
    for tick in evidence.ticks:
        latest[tick.schedule] = max(tick.due_at, latest.get(tick.schedule, 0.0))
    for schedule in evidence.schedules:
        if latest.get(schedule.id, schedule.ticks_from) != schedule.last_tick:
            yield (
                f"{schedule.name!r}: its last tick is {schedule.last_tick:.0f}, and "
                f"{latest.get(schedule.id)} was issued"
            )


def ticks_move_on(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """The last tick of a schedule never moves back, nor stays where it was."""
    for step in evidence.steps:
        if not step.before < step.after:
            yield f"schedule {step.schedule}: {step.before:.0f} to {step.after:.0f}"


def ticks_are_due(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """No tick comes before its time by the server's clock."""
    for tick in evidence.ticks:
        if tick.ticked_at < tick.due_at:
            early = tick.due_at - tick.ticked_at
            yield f"schedule {tick.schedule}: a tick was {early:.3f} s early"


def ticks_are_exact(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """All ticks from the first to the last, each with a job: I12."""
    ticks: dict[int, list[Tick]] = defaultdict(list)
    for tick in evidence.ticks:
        ticks[tick.schedule].append(tick)
        if (tick.outcome, tick.missed) != ("enqueued", 0):
            yield f"{tick}"
    for schedule, period in _declared(evidence):
        held_at = evidence.measures["held_at"]
        if schedule.last_tick < held_at - period - PUNCTUAL_SECONDS:
            late = held_at - schedule.last_tick
            yield f"{schedule.name!r} had no tick for {late:.1f} s"
        expected = due_between(period, schedule.ticks_from, schedule.last_tick)
        found = Counter(tick.due_at for tick in ticks[schedule.id])
        wanted = Counter(map(float, expected))
        if found != wanted:
            yield (
                f"{schedule.name!r}: {len(wanted - found)} of {len(wanted)} ticks are "
                f"missing, {len(found - wanted)} are too many"
            )


def every_clock_took_part(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Workers with each of the wrong clocks have issued ticks, and not a right one."""
    for wrong, count in evidence.measures["issued_by"].items():
        if not count:
            yield f"no worker with a {wrong} has issued a tick"


def ticks_follow_policy(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """Of what is due at once, exactly what the policy says is issued."""
    names = {s.id: (s, period) for s, period in _declared(evidence)}
    ticks: dict[int, dict[float, Tick]] = defaultdict(dict)
    for tick in evidence.ticks:
        ticks[tick.schedule][tick.due_at] = tick
    for step in evidence.steps:
        schedule, period = names[step.schedule]
        due = due_between(period, step.before, step.after)
        if not due or due[-1] != step.after:
            yield f"{schedule.name!r}: {step.after} is no tick of it"
            continue
        if step.at - step.after > period + PUNCTUAL_SECONDS:
            yield f"{schedule.name!r}: {step.after:.0f} was not the latest one due"
        most = int(schedule.catch_up[4:-1]) if "(" in schedule.catch_up else 1
        issued = due[-most:]
        missed = min(len(due) - len(issued), MISSED_MAX)
        expected = [(float(at), 0 if n else missed) for n, at in enumerate(issued)]
        found = [
            (tick.due_at, tick.missed)
            for at, tick in sorted(ticks[schedule.id].items())
            if step.before < at <= step.after
        ]
        if found != expected:
            yield f"{schedule.name!r}: of {len(due)} due, {found} and not {expected}"


def overlaps_are_skipped(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """With overlap=skip, a tick has a job unless an earlier one of it is live."""
    lives: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
    for change in evidence.changes:
        if change.schedule is None:
            continue
        of = lives[change.schedule]
        if (change.place, change.operation) == ("queue", "INSERT"):
            of[change.job] = (change.at, math.inf)
        elif change.place == "queue" and change.operation == "DELETE":
            of[change.job] = (of[change.job][0], change.at)
    for schedule in evidence.schedules:
        for tick in evidence.ticks:
            if tick.schedule != schedule.id:
                continue
            of = lives[schedule.id]
            if tick.outcome == "overlap":
                if schedule.overlap != "skip" or not any(
                    since < tick.ticked_at < until + COMMIT_SECONDS
                    for since, until in of.values()
                ):
                    yield f"{schedule.name!r} skipped {tick.due_at:.0f} for no job"
            elif tick.job is not None and schedule.overlap == "skip":
                at = of[tick.job][0]
                live = [j for j, (since, until) in of.items() if since < at < until]
                if live:
                    yield f"{schedule.name!r}: job {tick.job} came beside {live}"


def _declared(evidence: Evidence) -> Iterator[tuple[Schedule, int]]:
    known = periods(evidence.measures["schedules"])
    for schedule in evidence.schedules:
        yield schedule, known[schedule.name]


ALWAYS = (ticks_are_whole, ticks_move_on, ticks_are_due)

"""Lanes: in words, why a job waits in one, and for whom; and the limits of queues."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from django.contrib.humanize.templatetags.humanize import ordinal

from django_pgqueue.bounds import (
    FAIR,
    LANE_CAPACITY_MAX,
    LANE_SPACING_MIN,
    PULL_TASK,
    RATE_JOBS_MAX,
)
from django_pgqueue.conf import QueueLimit
from django_pgqueue.operators.human import age, count
from django_pgqueue.operators.pausable import paused_for
from django_pgqueue.options.durations import UNIT_SECONDS
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.held import is_lane_of_task
from django_pgqueue.queues.lane_controls import Released
from django_pgqueue.queues.lane_stats import (
    LANES_COUNTED,
    Head,
    LaneStats,
    Place,
    place_of,
)
from django_pgqueue.queues.stats import QueueStats

# In which periods people say rates: the first that has a whole number of jobs.
PERIODS = ((1.0, "s"), (60.0, "min"), (3_600.0, "h"), (86_400.0, "d"))
ROUNDING = 1e-6


def kind(
    capacity: int | None,
    spacing: float | None,
    policy: str | None = None,
    weight: int | None = None,
    *,
    is_task: bool = False,
) -> str:
    """Return what a lane is, by its jobs: "group", "limit of 5", "rate of 100/min"."""
    if is_task:
        return "task"
    if policy == FAIR:
        text = "in turn with others"
        return text if weight is None else f"{text}, {_weight(weight)}"
    if capacity is None and policy is not None:
        how = "that goes on without what fails"
        if policy != "skip":
            how = "in which what fails is a dead letter"
        return f"{kind(capacity, spacing)} {how}"
    if spacing is not None and capacity == LANE_CAPACITY_MAX:
        return f"rate of {rate(spacing)}"
    text = "group" if capacity is None else f"limit of {count(capacity)}"
    return text if spacing is None else f"{text}, {rate(spacing)}"


def kind_of_job(
    lane: str,
    task: str,
    capacity: int | None,
    spacing: float | None,
    policy: str | None,
) -> str:
    """Return what the lane of a job is, by what the job says; as kind()."""
    is_task = is_lane_of_task(lane, task, capacity, spacing, policy)
    return kind(capacity, spacing, policy, is_task=is_task)


def kind_word(lane: LaneStats) -> str:
    """
    Return "group", "limit", "rate", "task", or "fair" with its weight, if it has one.

    Where no waiting job says what it is: "", or the weight that an operator has given.
    """
    weight = None if lane.weight is None else _weight(lane.weight)
    if not lane.waiting:
        return weight or ""
    if lane.is_fair:
        return ", ".join(filter(None, ["fair", weight]))
    if lane.is_task:
        return "task"
    if lane.is_rate:
        return "rate"
    return "group" if lane.capacity is None else "limit"


def _weight(weight: int) -> str:
    return f"weight {weight}"


def rate(spacing: float | None) -> str:
    """Return how many start in a time, so far apart: "100/min"; "": it has no rate."""
    if spacing is None:
        return ""
    # A row that SQL has changed may have any.
    numbers = [
        (seconds / max(spacing, LANE_SPACING_MIN), unit) for seconds, unit in PERIODS
    ]
    enough = [each for each in numbers if each[0] > 1 - ROUNDING] or numbers[-1:]
    whole = [each for each in enough if abs(each[0] - round(each[0])) < ROUNDING]
    number, unit = (whole or enough)[0]
    return f"{number:.4g}/{unit}"


def taken(lane: LaneStats) -> str:
    """Return how many it has let through, of how many: "3 of 10 (5)", "1 of 1"."""
    through = count(lane.let_through, is_more=lane.is_more(lane.let_through))
    says_none = lane.is_task or not lane.waiting
    if lane.is_rate or lane.is_fair or (says_none and lane.own_capacity is None):
        return through
    text = f"{through} of {count(lane.takes)}"
    # In brackets what would hold if nobody had said otherwise.
    by_jobs = lane.capacity or lane.takes
    return text if lane.takes == by_jobs else f"{text} ({count(by_jobs)})"


def paused(lane: LaneStats) -> str:
    """Return that a lane is paused, until when, by whom and why; "": it is not."""
    if lane.is_paused:
        return _paused(
            lane.pause_seconds,
            lane.paused_by,
            lane.pause_reason,
            has_breaker=lane.breaker_trips is not None,
        )
    pause = lane.task_pause
    if pause is None:
        return ""
    told = _paused(
        pause.seconds,
        pause.paused_by,
        pause.reason,
        has_breaker=pause.breaker_trips > 0,
    )
    return f"task {pause.task} is {told}"


def _paused(
    seconds: float | None, by: str | None, reason: str | None, *, has_breaker: bool
) -> str:
    if has_breaker and seconds is not None and seconds <= 0:
        text = "half-open: its circuit breaker waits for a probe"
        return f"{text}: {reason}" if reason else text
    return paused_for(seconds, by, reason)


def does(head: Head) -> str:
    """Return what a job does, or waits for: "running for 4 min"."""
    time = age(abs(head.seconds))
    if head.state == "running":
        return f"running for {time}"
    if head.state == "retrying":
        return f"attempt {head.attempt + 1} of {head.max_attempts} in {time}"
    if head.seconds < 0:
        return f"due in {time}"
    in_paused_queue = f", in the paused queue {head.queue}" if head.is_paused else ""
    if head.state != "parked":
        return f"ready for {time}{in_paused_queue}"
    if head.is_fair:
        return f"due for {time}{in_paused_queue or ', waits for its turn'}"
    if head.task == PULL_TASK:
        return f"due for {time}, not received"
    return f"due for {time}, not let through"


def waits_for(lane: LaneStats) -> str:
    """Return what the job does that the others of a lane wait for; "": it has gone."""
    head = lane.head
    if head is None:
        return ""
    if head.state != "parked" or head.seconds < 0:
        return does(head)
    if lane.is_paused or lane.task_pause is not None:
        return f"due for {age(head.seconds)}"
    if lane.turn_seconds > 0 and not lane.is_fair and lane.let_through < lane.takes:
        return f"due for {age(head.seconds)}, let through in {_turn(lane)}"
    return does(head)


def _turn(lane: LaneStats) -> str:
    """Return in which time a rate lets the next one through; never "0 s"."""
    return age(lane.turn_seconds) if lane.turn_seconds >= 1 else "1 s"


def release_told(released: Released, lane: LaneStats | None) -> str:
    """Return what came of a release, and why nothing did; *lane* is as it is now."""
    if released.put_off is not None:
        return (
            f"job {released.job} was let through; job {released.put_off} waits for its "
            f"next attempt, and is let through after that."
        )
    if released.job is not None:
        return f"job {released.job} was let through."
    head = None if lane is None else lane.head
    if released.next_id is None or head is None:
        return "nothing was let through: no job of it is due."
    if head.id == released.next_id:
        return f"nothing was let through: somebody works on job {released.next_id}."
    return (
        f"nothing was let through: a group never has more at once than it takes. It "
        f"waits for job {head.id}, {does(head)}."
    )


def why_it_waits(cursor: Cursor, job: int, *, is_named: bool = True) -> str | None:
    """
    Return in one sentence why a job waits in its lane; None: it does not.

    Args:
        cursor: An open cursor.
        job: Its id.
        is_named: Whether to name the lane: the name is made of arguments.
    """
    place = place_of(cursor, job)
    return None if place is None else sentence(place, is_named=is_named)


def sentence(place: Place, *, is_named: bool = True) -> str:
    """Return why the job at *place* waits; as why_it_waits()."""
    lane, head = place.lane, place.lane.head
    where = _where(lane, is_named=is_named)
    if lane.capacity is not None and place.due_seconds < 0:
        return f"due in {age(abs(place.due_seconds))}, then in line for {where}"
    line = "in" if lane.capacity is None else "in line for"
    start = f"{_ordinal(place)} {line} {where}"
    if lane.is_paused:
        end = f"which is {paused(lane)}"
    elif lane.task_pause is not None:
        end = paused(lane)
    elif lane.is_fair:
        end = _turns(place)
    elif lane.turn_seconds > 0 and lane.let_through < lane.takes:
        end = f"which lets the next through in {_turn(lane)}"
    elif lane.capacity is not None and lane.has_room:
        end = "which has room: not let through"
    elif head is None:
        return start
    elif head.id == place.id:
        end = does(head)
    else:
        end = f"behind job {head.id}, {does(head)}"
    return f"{start}, {end}"


def _where(lane: LaneStats, *, is_named: bool) -> str:
    if lane.is_fair:
        text = f"lane {lane.name}" if is_named else "its lane"
        return text if lane.weight is None else f"{text} ({_weight(lane.weight)})"
    if lane.is_task:
        return f"task {lane.name}" if is_named else "its task"
    if lane.is_rate:
        each = rate(lane.spacing)
        return f"rate {lane.name} ({each})" if is_named else f"its rate of {each}"
    if lane.capacity is not None:
        jobs = count(lane.takes)
        if not is_named:
            return f"its limit of {jobs}"
        return f"limit {lane.name} ({jobs} at a time)"
    return f"group {lane.name}" if is_named else "its group"


def _turns(place: Place) -> str:
    """Return with how many other lanes its own takes turns, or why none is taken."""
    head, others = place.lane.head, place.others
    if head is not None and head.is_paused:
        return f"in the paused queue {head.queue}"
    if not others:
        return "which has all turns: no other lane waits"
    lanes = count(others, is_more=others >= LANES_COUNTED)
    return f"which takes turns with {lanes} other{'' if others == 1 else 's'}"


def _ordinal(place: Place) -> str:
    """Return which of its lane a job is; of a limit, which of those that wait."""
    before, lane = place.before, place.lane
    if lane.is_more(before):
        return f"after {count(before, is_more=True)} others"
    # A group's first is the one that it has let through.
    ahead = before + (lane.let_through if lane.capacity is None else 0)
    return str(ordinal(ahead + 1))


# Limits of queues ---------------------------------------------------------------------


# In which people say rates, the first that has a whole number of jobs.
UNITS = ("s", "m", "h", "d")


def in_force(stats: QueueStats, said: Mapping[str, QueueLimit]) -> QueueLimit:
    """Return what an operator has said of a queue, else what the settings say."""
    limit = said.get(stats.name, QueueLimit())
    spacing, burst = limit.spacing, limit.burst
    if stats.rate_spacing is not None:
        spacing, burst = stats.rate_spacing, stats.rate_burst or 1
    concurrency = stats.concurrency or limit.concurrency
    return QueueLimit(concurrency, spacing, burst)


def rate_text(spacing: float) -> str:
    """
    Return a rate as people write it, such as "100/m".

    It is exactly this one; "": there is none, as where SQL has written the row.
    """
    per = Fraction(spacing).limit_denominator(RATE_JOBS_MAX)
    periods = [(unit, UNIT_SECONDS[unit]) for unit in UNITS]
    periods.append((f"{per.numerator}s", per.numerator))
    for period, seconds in periods:
        jobs = round(seconds / spacing) if spacing > 0 else 0
        if 1 <= jobs <= RATE_JOBS_MAX and seconds / jobs == spacing:
            return f"{jobs}/{period}"
    return ""


def queue_taken(stats: QueueStats, said: Mapping[str, QueueLimit]) -> str:
    """Return how much of its limit a queue has taken: "12 of 20 run, 100/min"."""
    limit, parts = in_force(stats, said), []
    if limit.concurrency is not None:
        running = count(stats.running, is_more=stats.is_more("running"))
        parts.append(f"{running} of {count(limit.concurrency)} run")
    if limit.spacing is not None:
        parts.append(rate(limit.spacing))
    return ", ".join(parts)

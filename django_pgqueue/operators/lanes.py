"""Lanes: in words, why a job waits in one, and for whom."""

from __future__ import annotations

from django.contrib.humanize.templatetags.humanize import ordinal
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.bounds import FAIR, LANE_CAPACITY_MAX, LANE_SPACING_MIN, PULL_TASK
from django_pgqueue.operators.human import age, count
from django_pgqueue.operators.pausable import paused_for
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
        return _("task")
    if policy == FAIR:
        text = _("in turn with others")
        return text if weight is None else f"{text}, {_weight(weight)}"
    if capacity is None and policy is not None:
        text = (
            _("%(kind)s that goes on without what fails")
            if policy == "skip"
            else _("%(kind)s in which what fails is a dead letter")
        )
        return text % {"kind": kind(capacity, spacing)}
    told = {"jobs": count(capacity or 1), "rate": rate(spacing)}
    if spacing is not None and capacity == LANE_CAPACITY_MAX:
        return _("rate of %(rate)s") % told
    text = _("group") if capacity is None else _("limit of %(jobs)s") % told
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
        return ", ".join(filter(None, [_("fair"), weight]))
    if lane.is_task:
        return _("task")
    if lane.is_rate:
        return _("rate")
    return _("group") if lane.capacity is None else _("limit")


def _weight(weight: int) -> str:
    return _("weight %(jobs)d") % {"jobs": weight}


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
    told = {"through": through, "takes": count(lane.takes)}
    text = _("%(through)s of %(takes)s") % told
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
    return _("task %(task)s is %(paused)s") % {"task": pause.task, "paused": told}


def _paused(
    seconds: float | None, by: str | None, reason: str | None, *, has_breaker: bool
) -> str:
    if has_breaker and seconds is not None and seconds <= 0:
        text = _("half-open: its circuit breaker waits for a probe")
        return f"{text}: {reason}" if reason else text
    return paused_for(seconds, by, reason)


def does(head: Head) -> str:
    """Return what a job does, or waits for: "running for 4 min"."""
    told = {
        "time": age(abs(head.seconds)),
        "next": head.attempt + 1,
        "max": head.max_attempts,
        "queue": head.queue,
    }
    if head.state == "running":
        return _("running for %(time)s") % told
    if head.state == "retrying":
        return _("attempt %(next)d of %(max)d in %(time)s") % told
    if head.seconds < 0:
        return _("due in %(time)s") % told
    if head.state == "parked" and head.is_fair:
        if head.is_paused:
            return _("due for %(time)s, in the paused queue %(queue)s") % told
        return _("due for %(time)s, waits for its turn") % told
    if head.state == "parked" and head.task == PULL_TASK:
        return _("due for %(time)s, not received") % told
    if head.state == "parked":
        return _("due for %(time)s, not let through") % told
    if head.is_paused:
        return _("ready for %(time)s, in the paused queue %(queue)s") % told
    return _("ready for %(time)s") % told


def waits_for(lane: LaneStats) -> str:
    """Return what the job does that the others of a lane wait for; "": it has gone."""
    head = lane.head
    if head is None:
        return ""
    if head.state != "parked" or head.seconds < 0:
        return does(head)
    told = {"time": age(head.seconds), "turn": _turn(lane)}
    if lane.is_paused or lane.task_pause is not None:
        return _("due for %(time)s") % told
    if lane.turn_seconds > 0 and not lane.is_fair and lane.let_through < lane.takes:
        return _("due for %(time)s, let through in %(turn)s") % told
    return does(head)


def _turn(lane: LaneStats) -> str:
    """Return in which time a rate lets the next one through; never "0 s"."""
    return age(lane.turn_seconds) if lane.turn_seconds >= 1 else _("1 s")


def release_told(released: Released, lane: LaneStats | None) -> str:
    """Return what came of a release, and why nothing did; *lane* is as it is now."""
    told = {"job": released.job, "other": released.put_off, "next": released.next_id}
    if released.put_off is not None:
        text = _(
            "job %(job)d was let through; job %(other)d waits for its next attempt, "
            "and is let through after that."
        )
        return text % told
    if released.job is not None:
        return _("job %(job)d was let through.") % told
    head = None if lane is None else lane.head
    if released.next_id is None or head is None:
        return _("nothing was let through: no job of it is due.")
    if head.id == released.next_id:
        return _("nothing was let through: somebody works on job %(next)d.") % told
    text = _(
        "nothing was let through: a group never has more at once than it takes. It "
        "waits for job %(head)d, %(does)s."
    )
    return text % {"head": head.id, "does": does(head)}


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
    told = {
        "where": _where(lane, is_named=is_named),
        "place": _ordinal(place),
        "time": age(abs(place.due_seconds)),
    }
    if lane.capacity is not None and place.due_seconds < 0:
        return _("due in %(time)s, then in line for %(where)s") % told
    if lane.capacity is not None:
        start = _("%(place)s in line for %(where)s") % told
    else:
        start = _("%(place)s in %(where)s") % told
    if lane.is_paused:
        end = _("which is %(paused)s") % {"paused": paused(lane)}
    elif lane.task_pause is not None:
        end = paused(lane)
    elif lane.is_fair:
        end = _turns(place)
    elif lane.turn_seconds > 0 and lane.let_through < lane.takes:
        told["turn"] = _turn(lane)
        end = _("which lets the next through in %(turn)s") % told
    elif lane.capacity is not None and lane.has_room:
        end = _("which has room: not let through")
    elif head is None:
        return start
    elif head.id == place.id:
        end = does(head)
    else:
        end = _("behind job %(id)d, %(does)s") % {"id": head.id, "does": does(head)}
    return f"{start}, {end}"


def _where(lane: LaneStats, *, is_named: bool) -> str:
    told = {"name": lane.name, "jobs": count(lane.takes), "rate": rate(lane.spacing)}
    if lane.is_fair:
        text = _("lane %(name)s") % told if is_named else _("its lane")
        return text if lane.weight is None else f"{text} ({_weight(lane.weight)})"
    if lane.is_task:
        return _("task %(name)s") % told if is_named else _("its task")
    if lane.is_rate:
        if not is_named:
            return _("its rate of %(rate)s") % told
        return _("rate %(name)s (%(rate)s)") % told
    if lane.capacity is not None:
        if not is_named:
            return _("its limit of %(jobs)s") % told
        return _("limit %(name)s (%(jobs)s at a time)") % told
    return _("group %(name)s") % told if is_named else _("its group")


def _turns(place: Place) -> str:
    """Return with how many other lanes its own takes turns, or why none is taken."""
    head, others = place.lane.head, place.others
    if head is not None and head.is_paused:
        return _("in the paused queue %(queue)s") % {"queue": head.queue}
    if not others:
        return _("which has all turns: no other lane waits")
    text = ngettext(
        "which takes turns with %(lanes)s other",
        "which takes turns with %(lanes)s others",
        others,
    )
    return text % {"lanes": count(others, is_more=others >= LANES_COUNTED)}


def _ordinal(place: Place) -> str:
    """Return which of its lane a job is; of a limit, which of those that wait."""
    before, lane = place.before, place.lane
    if lane.is_more(before):
        return _("after %(jobs)s others") % {"jobs": count(before, is_more=True)}
    # A group's first is the one that it has let through.
    ahead = before + (lane.let_through if lane.capacity is None else 0)
    return str(ordinal(ahead + 1))

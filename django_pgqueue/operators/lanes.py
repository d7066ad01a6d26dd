"""Lanes: in words, why a job waits in one, and for whom."""

from __future__ import annotations

from django.contrib.humanize.templatetags.humanize import ordinal
from django.utils.translation import gettext as _

from django_pgqueue.operators.human import age, count
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.lane_stats import Head, LaneStats, Place, place_of


def kind(capacity: int | None) -> str:
    """Return what a lane is: "group" or "limit of 5"."""
    if capacity is None:
        return _("group")
    return _("limit of %(jobs)s") % {"jobs": count(capacity)}


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
    if head.state == "parked":
        return _("due for %(time)s, not let through") % told
    if head.is_paused:
        return _("ready for %(time)s, in the paused queue %(queue)s") % told
    return _("ready for %(time)s") % told


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
    if lane.capacity is not None and lane.has_room:
        end = _("which has room: not let through")
    elif head is None:
        return start
    elif head.id == place.id:
        end = does(head)
    else:
        end = _("behind job %(id)d, %(does)s") % {"id": head.id, "does": does(head)}
    return f"{start}, {end}"


def _where(lane: LaneStats, *, is_named: bool) -> str:
    if not is_named:
        return _("its %(kind)s") % {"kind": kind(lane.capacity)}
    if lane.capacity is None:
        return _("group %(name)s") % {"name": lane.name}
    told = {"name": lane.name, "jobs": count(lane.capacity)}
    return _("limit %(name)s (%(jobs)s at a time)") % told


def _ordinal(place: Place) -> str:
    """Return which of its lane a job is; of a limit, which of those that wait."""
    before, lane = place.before, place.lane
    if lane.is_more(before):
        return _("after %(jobs)s others") % {"jobs": count(before, is_more=True)}
    # A group's first is the one that it has let through.
    ahead = before + (lane.let_through if lane.capacity is None else 0)
    return str(ordinal(ahead + 1))

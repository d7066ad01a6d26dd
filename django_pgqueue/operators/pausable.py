"""
Pausable: what people pause and resume, what that does, and how it is told.

Queues, lanes, schedules and consumer groups; subscriptions too, which are *disabled*
and *enabled*. The acts of the admin and the commands are made of these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from django_pgqueue.operators.human import age
from django_pgqueue.schedules import operate as schedules
from django_pgqueue.tasks import operate as queues
from django_pgqueue.tasks import operate_queues as lanes
from django_pgqueue.topics import operate_groups as groups
from django_pgqueue.topics import operate_subscriptions as subscriptions


@dataclass(frozen=True, slots=True)
class Plural:
    """A text with %(count)d, for one row and for several."""

    one: str
    several: str

    def __mod__(self, values: Mapping[str, Any]) -> str:
        return (self.one if values["count"] == 1 else self.several) % values


# Who may do either.
PERMISSION = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """
    Into a pause, or out of it.

    Attributes:
        name: The verb.
        label: The same on a button.
        run: Does it to a row; into a pause with by and reason, and until where it can
            end by itself. False: it was so before.
        done: Says of how many rows it is so now.
        left: Says of how many rows it was so before.
        entry: For a log, with %(reason)s; out of a pause with %(by)s too.
        help: Beside the button.
        warning: Above the form.
        line: What a command says behind kind and name; {poll} is the setting.
    """

    name: str
    label: str
    run: Callable[..., bool]
    done: Plural
    left: Plural
    entry: str
    help: str
    warning: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pausable:
    """
    A kind of rows that can be paused.

    Attributes:
        kind: In commands.
        begin: Into the pause.
        end: Out of it.
        columns: When, by whom and why.
        order: The attribute by which several rows are taken: one order, so that two
            who act on several do not deadlock.
        can_end: Whether a pause may be said to end by itself.
    """

    kind: str
    begin: Turn
    end: Turn
    columns: tuple[str, str, str] = ("paused_at", "paused_by", "pause_reason")
    order: str = "pk"
    can_end: bool = False


class Paused(Protocol):
    """What may be paused, as somebody has counted it."""

    @property
    def is_paused(self) -> bool:
        """Whether it is, at that time."""

    @property
    def pause_seconds(self) -> float | None:
        """Until the pause ends by itself; None: it does not."""

    @property
    def paused_by(self) -> str | None:
        """Who has paused it."""

    @property
    def pause_reason(self) -> str | None:
        """And why."""


def paused(row: Paused) -> str:
    """Return that *row* is paused, until when, by whom and why; "": it is not."""
    if not row.is_paused:
        return ""
    return paused_for(row.pause_seconds, row.paused_by, row.pause_reason)


def paused_for(seconds: float | None, by: str | None, reason: str | None) -> str:
    """Return the same of what is paused; *seconds*: until that ends by itself."""
    text = "paused" if seconds is None else f"paused for another {age(seconds)}"
    if by:
        text += f" by {by}"
    return f"{text}: {reason}" if reason else text


_pause = partial(
    Turn,
    name="pause",
    label="Pause",
    entry="Paused: %(reason)s",
    left=Plural(
        "%(count)d was paused already; its reason stays.",
        "%(count)d were paused already; their reasons stay.",
    ),
)
_resume = partial(
    Turn,
    name="resume",
    label="Resume",
    entry="Resumed; it was paused by %(by)s: %(reason)s",
    left=Plural("%(count)d was not paused.", "%(count)d were not paused."),
)

QUEUE = Pausable(
    kind="queue",
    begin=_pause(
        run=lambda row, **why: queues.pause(row.name, **why),
        done=Plural(
            "%(count)d queue is paused; running jobs go on.",
            "%(count)d queues are paused; running jobs go on.",
        ),
        help="Workers take no jobs from it; those that run go on.",
        warning=(
            "Workers take no more jobs from it until it is resumed, or the pause ends. "
            "What runs goes on, and jobs can still be enqueued."
        ),
        line="is paused; workers notice within {poll}.",
    ),
    end=_resume(
        run=lambda row: queues.resume(row.name),
        done=Plural(
            "%(count)d queue is open again.", "%(count)d queues are open again."
        ),
        help="Workers take jobs from it again, at once.",
        line="goes on.",
    ),
    can_end=True,
)

LANE = Pausable(
    kind="lane",
    begin=_pause(
        run=lambda row, **why: lanes.pause(row.name, **why),
        done=Plural(
            "%(count)d lane is paused; what it has let through goes on.",
            "%(count)d lanes are paused; what they have let through goes on.",
        ),
        help="It lets no job through; what it has let through goes on.",
        warning=(
            "It lets no job through until it is resumed, or the pause ends. What it "
            "has let through goes on, and jobs can still be enqueued."
        ),
        line="is paused; what it has let through goes on.",
    ),
    end=_resume(
        run=lambda row: lanes.resume(row.name),
        done=Plural(
            "%(count)d lane lets jobs through again.",
            "%(count)d lanes let jobs through again.",
        ),
        help="It lets jobs through again, at once.",
        line="lets jobs through again.",
    ),
    order="name",
    can_end=True,
)

# The lane that has its name is that of all its jobs, in whatever lane or in none.
TASK = replace(
    LANE,
    kind="task",
    begin=replace(
        LANE.begin, line="is paused: no job of it begins; what runs, runs on."
    ),
    end=replace(LANE.end, line="goes on."),
)

SCHEDULE = Pausable(
    kind="schedule",
    begin=_pause(
        run=lambda row, **why: schedules.pause(row.name, **why),
        done=Plural(
            "%(count)d schedule is paused; jobs that it has enqueued go on.",
            "%(count)d schedules are paused; jobs that they have enqueued go on.",
        ),
        help="It has no ticks until it is resumed.",
        warning=(
            "It has no ticks until it is resumed, and those that are left out are not "
            "made up for. Jobs that it has enqueued go on."
        ),
        line="is paused: it has no ticks.",
    ),
    end=_resume(
        run=lambda row: schedules.resume(row.name),
        done=Plural(
            "%(count)d schedule has ticks again, from now on.",
            "%(count)d schedules have ticks again, from now on.",
        ),
        help="It has ticks again, from now on.",
        line="goes on, from now.",
    ),
    order="name",
)

GROUP = Pausable(
    kind="group",
    begin=_pause(
        run=groups.pause,
        done=Plural(
            "%(count)d group is paused; what is being read is finished.",
            "%(count)d groups are paused; what is being read is finished.",
        ),
        help="Nobody reads for it until it is resumed.",
        warning=(
            "Nobody reads for it until it is resumed; what is being read is finished. "
            "It reads on from where it was, as long as retention has not removed that."
        ),
        line="is paused; what is being read is finished.",
    ),
    end=_resume(
        run=groups.resume,
        done=Plural(
            "%(count)d group reads on, from where it was.",
            "%(count)d groups read on, from where they were.",
        ),
        help="It reads on, at once, from where it was.",
        line="reads on, from where it was.",
    ),
)

SUBSCRIPTION = Pausable(
    kind="subscription",
    columns=("disabled_at", "disabled_by", "disabled_reason"),
    begin=Turn(
        name="disable",
        label="Disable",
        entry="Disabled: %(reason)s",
        left=Plural(
            "%(count)d was disabled already; its reason stays.",
            "%(count)d were disabled already; their reasons stay.",
        ),
        run=lambda row, **why: subscriptions.disable(row.pk, **why),
        done=Plural(
            "%(count)d subscription makes no more jobs; those that are there stay.",
            "%(count)d subscriptions make no more jobs; those that are there stay.",
        ),
        help="Messages make no jobs of it until it is enabled.",
        warning=(
            "Messages that are published from now on make no job of it, and none is "
            "made up for when it is enabled again. Jobs that are there go on."
        ),
    ),
    end=Turn(
        name="enable",
        label="Enable",
        entry="Enabled; it was disabled by %(by)s: %(reason)s",
        left=Plural("%(count)d was not disabled.", "%(count)d were not disabled."),
        run=lambda row: subscriptions.enable(row.pk),
        done=Plural(
            "%(count)d subscription makes jobs again, of what is published now.",
            "%(count)d subscriptions make jobs again, of what is published now.",
        ),
        help="What is published from now on makes jobs again.",
    ),
)

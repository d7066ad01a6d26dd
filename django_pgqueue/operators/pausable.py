"""
Pausable: what people pause and resume, what that does, and how it is told.

Queues, lanes, schedules and consumer groups; subscriptions too, which are *disabled*
and *enabled*. The acts of the admin and the commands are made of these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy

from django_pgqueue.operators.human import age
from django_pgqueue.schedules import operate as schedules
from django_pgqueue.tasks import operate as queues
from django_pgqueue.tasks import operate_lanes as lanes
from django_pgqueue.topics import operate_groups as groups
from django_pgqueue.topics import operate_subscriptions as subscriptions

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    # A text with %(count)d.
    Counted = str | _StrPromise

Text = str | Promise

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
    label: Text
    run: Callable[..., bool]
    done: Counted
    left: Counted
    entry: Text
    help: Text
    warning: Text = ""
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
    told = {"time": age(seconds), "by": by}
    text = gettext("paused")
    if seconds is not None:
        text = gettext("paused for another %(time)s") % told
    if by:
        text = gettext("%(text)s by %(by)s") % {**told, "text": text}
    return f"{text}: {reason}" if reason else text


_pause = partial(
    Turn,
    name="pause",
    label=gettext_lazy("Pause"),
    entry=gettext_lazy("Paused: %(reason)s"),
    left=ngettext_lazy(
        "%(count)d was paused already; its reason stays.",
        "%(count)d were paused already; their reasons stay.",
        "count",
    ),
)
_resume = partial(
    Turn,
    name="resume",
    label=gettext_lazy("Resume"),
    entry=gettext_lazy("Resumed; it was paused by %(by)s: %(reason)s"),
    left=ngettext_lazy(
        "%(count)d was not paused.", "%(count)d were not paused.", "count"
    ),
)

QUEUE = Pausable(
    kind="queue",
    begin=_pause(
        run=lambda row, **why: queues.pause(row.name, **why),
        done=ngettext_lazy(
            "%(count)d queue is paused; running jobs go on.",
            "%(count)d queues are paused; running jobs go on.",
            "count",
        ),
        help=gettext_lazy("Workers take no jobs from it; those that run go on."),
        warning=gettext_lazy(
            "Workers take no more jobs from it until it is resumed, or the pause ends. "
            "What runs goes on, and jobs can still be enqueued."
        ),
        line="is paused; workers notice within {poll}.",
    ),
    end=_resume(
        run=lambda row: queues.resume(row.name),
        done=ngettext_lazy(
            "%(count)d queue is open again.",
            "%(count)d queues are open again.",
            "count",
        ),
        help=gettext_lazy("Workers take jobs from it again, at once."),
        line="goes on.",
    ),
    can_end=True,
)

LANE = Pausable(
    kind="lane",
    begin=_pause(
        run=lambda row, **why: lanes.pause(row.name, **why),
        done=ngettext_lazy(
            "%(count)d lane is paused; what it has let through goes on.",
            "%(count)d lanes are paused; what they have let through goes on.",
            "count",
        ),
        help=gettext_lazy("It lets no job through; what it has let through goes on."),
        warning=gettext_lazy(
            "It lets no job through until it is resumed, or the pause ends. What it "
            "has let through goes on, and jobs can still be enqueued."
        ),
        line="is paused; what it has let through goes on.",
    ),
    end=_resume(
        run=lambda row: lanes.resume(row.name),
        done=ngettext_lazy(
            "%(count)d lane lets jobs through again.",
            "%(count)d lanes let jobs through again.",
            "count",
        ),
        help=gettext_lazy("It lets jobs through again, at once."),
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
        done=ngettext_lazy(
            "%(count)d schedule is paused; jobs that it has enqueued go on.",
            "%(count)d schedules are paused; jobs that they have enqueued go on.",
            "count",
        ),
        help=gettext_lazy("It has no ticks until it is resumed."),
        warning=gettext_lazy(
            "It has no ticks until it is resumed, and those that are left out are not "
            "made up for. Jobs that it has enqueued go on."
        ),
        line="is paused: it has no ticks.",
    ),
    end=_resume(
        run=lambda row: schedules.resume(row.name),
        done=ngettext_lazy(
            "%(count)d schedule has ticks again, from now on.",
            "%(count)d schedules have ticks again, from now on.",
            "count",
        ),
        help=gettext_lazy("It has ticks again, from now on."),
        line="goes on, from now.",
    ),
    order="name",
)

GROUP = Pausable(
    kind="group",
    begin=_pause(
        run=groups.pause,
        done=ngettext_lazy(
            "%(count)d group is paused; what is being read is finished.",
            "%(count)d groups are paused; what is being read is finished.",
            "count",
        ),
        help=gettext_lazy("Nobody reads for it until it is resumed."),
        warning=gettext_lazy(
            "Nobody reads for it until it is resumed; what is being read is finished. "
            "It reads on from where it was, as long as retention has not removed that."
        ),
        line="is paused; what is being read is finished.",
    ),
    end=_resume(
        run=groups.resume,
        done=ngettext_lazy(
            "%(count)d group reads on, from where it was.",
            "%(count)d groups read on, from where they were.",
            "count",
        ),
        help=gettext_lazy("It reads on, at once, from where it was."),
        line="reads on, from where it was.",
    ),
)

SUBSCRIPTION = Pausable(
    kind="subscription",
    columns=("disabled_at", "disabled_by", "disabled_reason"),
    begin=Turn(
        name="disable",
        label=gettext_lazy("Disable"),
        entry=gettext_lazy("Disabled: %(reason)s"),
        left=ngettext_lazy(
            "%(count)d was disabled already; its reason stays.",
            "%(count)d were disabled already; their reasons stay.",
            "count",
        ),
        run=lambda row, **why: subscriptions.disable(row.pk, **why),
        done=ngettext_lazy(
            "%(count)d subscription makes no more jobs; those that are there stay.",
            "%(count)d subscriptions make no more jobs; those that are there stay.",
            "count",
        ),
        help=gettext_lazy("Messages make no jobs of it until it is enabled."),
        warning=gettext_lazy(
            "Messages that are published from now on make no job of it, and none is "
            "made up for when it is enabled again. Jobs that are there go on."
        ),
    ),
    end=Turn(
        name="enable",
        label=gettext_lazy("Enable"),
        entry=gettext_lazy("Enabled; it was disabled by %(by)s: %(reason)s"),
        left=ngettext_lazy(
            "%(count)d was not disabled.", "%(count)d were not disabled.", "count"
        ),
        run=lambda row: subscriptions.enable(row.pk),
        done=ngettext_lazy(
            "%(count)d subscription makes jobs again, of what is published now.",
            "%(count)d subscriptions make jobs again, of what is published now.",
            "count",
        ),
        help=gettext_lazy("What is published from now on makes jobs again."),
    ),
)

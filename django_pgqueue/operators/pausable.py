"""
Pausable: what people pause and resume, what that does, and how it is told.

Queues, lanes, schedules and consumer groups; subscriptions too, which are *disabled*
and *enabled*. The acts of the admin and the commands are made of these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django_pgqueue.operators.human import age
from django_pgqueue.schedules import operate as schedules
from django_pgqueue.tasks import operate as queues
from django_pgqueue.tasks import operate_queues as lanes
from django_pgqueue.topics import operate_groups as groups
from django_pgqueue.topics import operate_subscriptions as subscriptions

# Who may do either.
PERMISSION = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """
    Into a pause, or out of it.

    Attributes:
        name: The verb.
        run: Does it to a row; into a pause with by and reason, and until where it can
            end by itself. False: it was so before.
        effect: What a command says of a row that it was done to.
        done: Says of how many rows it is so now.
        left: Says of how many rows it was so before.
        entry: For a log, with %(reason)s; out of a pause with %(by)s too.
        help: Beside the button.
        warning: Above the form.
    """

    name: str
    run: Callable[..., bool]
    effect: str
    done: str
    left: str
    entry: str
    help: str
    warning: str = ""

    @property
    def label(self) -> str:
        """The verb on a button."""
        return self.name.capitalize()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pausable:
    """
    A kind of rows that can be paused.

    Attributes:
        kind: In commands.
        pause: Pauses a row; see Turn.run.
        resume: Ends its pause.
        while_paused: What goes on meanwhile.
        warning: What does not.
        resumed: What goes on afterwards.
        words: The verbs, each with what it makes of a row.
        columns: When, by whom and why.
        order: The attribute by which several rows are taken: one order, so that two
            who act on several do not deadlock.
        can_end: Whether a pause may be said to end by itself.
    """

    kind: str
    pause: Callable[..., bool]
    resume: Callable[..., bool]
    while_paused: str
    warning: str
    resumed: str
    words: tuple[tuple[str, str], tuple[str, str]] = (
        ("pause", "paused"),
        ("resume", "resumed"),
    )
    columns: tuple[str, str, str] = ("paused_at", "paused_by", "pause_reason")
    order: str = "pk"
    can_end: bool = False

    @property
    def begin(self) -> Turn:
        """Into the pause."""
        (name, word), _ = self.words
        return Turn(
            name=name,
            run=self.pause,
            effect=f"is {word}; {self.while_paused}.",
            done=f"%(count)d {word}; {self.while_paused}.",
            left=f"%(count)d {word} already; the reason stays.",
            entry=f"{word.capitalize()}: %(reason)s",
            help=self.warning,
            warning=self.warning,
        )

    @property
    def end(self) -> Turn:
        """Out of it."""
        (_, before), (name, word) = self.words
        return Turn(
            name=name,
            run=self.resume,
            effect=f"is {word}; {self.resumed}.",
            done=f"%(count)d {word}; {self.resumed}.",
            left=f"%(count)d not {before}.",
            entry=f"{word.capitalize()}; it was {before} by %(by)s: %(reason)s",
            help=f"{self.resumed.capitalize()}.",
        )


def paused(row: Any) -> str:
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


QUEUE = Pausable(
    kind="queue",
    pause=lambda row, **why: queues.pause(row.name, **why),
    resume=lambda row: queues.resume(row.name),
    while_paused="running jobs go on",
    warning="Workers take no more jobs from it until it is resumed, or the pause ends. "
    "What runs goes on, and jobs can still be enqueued.",
    resumed="workers take jobs again",
    can_end=True,
)

LANE = Pausable(
    kind="lane",
    pause=lambda row, **why: lanes.pause(row.name, **why),
    resume=lambda row: lanes.resume(row.name),
    while_paused="what was let through goes on",
    warning="It lets no job through until it is resumed, or the pause ends. What it "
    "has let through goes on, and jobs can still be enqueued.",
    resumed="jobs are let through again",
    order="name",
    can_end=True,
)

# The lane that has its name is that of all its jobs, in whatever lane or in none.
TASK = replace(
    LANE,
    kind="task",
    while_paused="no job of it begins, and what runs, runs on",
    resumed="its jobs begin again",
)

SCHEDULE = Pausable(
    kind="schedule",
    pause=lambda row, **why: schedules.pause(row.name, **why),
    resume=lambda row: schedules.resume(row.name),
    while_paused="jobs that were enqueued go on",
    warning="It has no ticks until it is resumed, and those that are left out are not "
    "made up for. Jobs that it has enqueued go on.",
    resumed="it has ticks again, from now on",
    order="name",
)

GROUP = Pausable(
    kind="group",
    pause=groups.pause,
    resume=groups.resume,
    while_paused="what is being read is finished",
    warning="Nobody reads for it until it is resumed; what is being read is finished. "
    "It reads on from where it was, as long as retention has not removed that.",
    resumed="it reads on, from where it was",
)

SUBSCRIPTION = Pausable(
    kind="subscription",
    pause=lambda row, **why: subscriptions.disable(row.pk, **why),
    resume=lambda row: subscriptions.enable(row.pk),
    while_paused="jobs that are there stay",
    warning="Messages that are published from now on make no job of it, and none is "
    "made up for when it is enabled again. Jobs that are there go on.",
    resumed="what is published from now on makes jobs again",
    words=(("disable", "disabled"), ("enable", "enabled")),
    columns=("disabled_at", "disabled_by", "disabled_reason"),
)

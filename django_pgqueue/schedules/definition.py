"""Definition: what a schedule says, each part of it checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django_pgqueue.bounds import PAYLOAD_BYTES_DEFAULT
from django_pgqueue.exceptions import (
    EnqueueError,
    ScheduleError,
    UnknownTask,
    check_whole,
    did_you_mean,
    shown,
)
from django_pgqueue.options.checks import check_priority, check_queue
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.tasks.registry import declared_names, find_task
from django_pgqueue.timetable.catch_up import CatchUp
from django_pgqueue.timetable.expression import Expression
from django_pgqueue.timetable.zones import read_zone
from django_pgqueue.topics.write_after import EMPTY, Publication

NAME_CHARACTERS_MAX = 255

EVERY_MAX = timedelta(days=366)
JITTER_MAX = timedelta(days=1)

OVERLAPS = ("skip", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """
    A schedule, checked. Made by define(); the names are those of the columns.

    Attributes:
        task: Empty where a message is published.
        tz: None: settings.TIME_ZONE, once it is known.
    """

    name: str
    task: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str | None
    priority: int | None
    expression: str | None
    every_seconds: int | None
    tz: str | None
    catch_up: str
    overlap: str
    jitter_seconds: int
    message_name: str | None = None
    message_key: str | None = None
    message_payload: Any = None

    def values(self) -> dict[str, Any]:
        """Return a value for each of schedules.COLUMNS."""
        known = asdict(self)
        del known["name"]
        if self.tz is None:
            known["tz"] = default_zone()
        return known


def define(
    *,
    name: object,
    task: str = "",
    publication: Publication | None = None,
    expression: object = None,
    every_seconds: object = None,
    tz: object = None,
    catch_up: object = "one",
    overlap: object = None,
    jitter: Any = 0,
    args: object = (),
    queue: object = None,
    priority: object = None,
    payload_bytes_max: int = PAYLOAD_BYTES_DEFAULT,
) -> Definition:
    """
    Return a schedule whose every part is right and which has a next tick.

    Args:
        name: 1 to 255 printable characters.
        task: The name of a declared task; or else publication.
        publication: What is published instead.
        expression: Of cron; or else every_seconds.
        every_seconds: 1 to 366 days.
        tz: A zone's name; None: settings.TIME_ZONE.
        catch_up: As for cron().
        overlap: As for cron().
        jitter: As for cron().
        args: As for cron().
        queue: As for cron().
        priority: As for cron().
        payload_bytes_max: The most bytes of args as JSON.

    Raises:
        ScheduleError: A part is wrong; the message says which.
    """
    checked_name = _checked_name(name)
    with _about("catch_up"):
        policy = CatchUp.parse(catch_up)
    jitter_seconds = _jitter_seconds(jitter)
    if overlap is None:
        overlap = "skip" if publication is None else "queue"
    _check_overlap(overlap, policy)
    _check_timetable(expression, every_seconds, tz)
    positional: Sequence[Any] = []
    keywords: Mapping[str, Any] = {}
    if publication is None:
        positional, keywords = _checked_args(task, args, payload_bytes_max)
    else:
        _check_publishing(
            publication,
            task=task,
            overlap=overlap,
            jitter=jitter_seconds,
            args=args,
            queue=queue,
            priority=priority,
        )
    with _about("queue"):
        checked_queue = None if queue is None else check_queue(queue)
    with _about("priority"):
        checked_priority = None if priority is None else check_priority(priority)
    return Definition(
        name=checked_name,
        task=task,
        args=positional,
        kwargs=keywords,
        queue=checked_queue,
        priority=checked_priority,
        expression=expression if isinstance(expression, str) else None,
        every_seconds=every_seconds if isinstance(every_seconds, int) else None,
        tz=tz if isinstance(tz, str) else None,
        catch_up=str(policy),
        overlap=str(overlap),
        jitter_seconds=jitter_seconds,
        **_message(publication),
    )


def default_zone() -> str:
    """
    Return settings.TIME_ZONE.

    Raises:
        ScheduleError: A schedule cannot go by it; the message says what to do.
    """
    from django.conf import settings

    try:
        return read_zone(settings.TIME_ZONE).key
    except ScheduleError as error:
        raise ScheduleError(
            f"A schedule without tz= goes by settings.TIME_ZONE. {error}"
        ) from None


@contextmanager
def _about(part: str) -> Iterator[None]:
    """Let errors say which part of a schedule they are about."""
    try:
        yield
    except (ScheduleError, EnqueueError, ValueError) as error:
        raise ScheduleError(str(error), part=part) from None


def _checked_name(name: object) -> str:
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= NAME_CHARACTERS_MAX
        or not name.isprintable()
        or name != name.strip()
    ):
        raise ScheduleError(
            f"name={shown(name)}: the name of a schedule has 1 to "
            f"{NAME_CHARACTERS_MAX} printable characters, and no blank around it.",
            part="name",
        )
    return name


def _check_overlap(overlap: object, policy: CatchUp) -> None:
    if overlap not in OVERLAPS:
        raise ScheduleError(
            f"overlap={shown(overlap)}: it must be 'skip' or 'queue': what a tick does "
            f"while a job of an earlier one is not done.",
            part="overlap",
        )
    if policy.most > 1 and overlap == "skip":
        raise ScheduleError(
            f"catch_up={str(policy)!r} and overlap='skip' contradict each other: of "
            f"ticks that are made up for at once, all but the first would meet its "
            f"job. Say overlap='queue', or catch_up='one'.",
            part="overlap",
        )


def _message(publication: Publication | None) -> dict[str, Any]:
    """Return the columns of what is published."""
    if publication is None:
        return {}
    return {
        "message_name": publication.name,
        "message_key": publication.key,
        "message_payload": json.loads(publication.payload_text),
    }


def _check_publishing(publication: Publication, **options: Any) -> None:
    """Refuse what only the job of a task can have."""
    name = publication.name
    if publication.headers_text != EMPTY:
        raise ScheduleError(
            f"The message {name!r} of a schedule has headers: it gets that of its tick "
            f"and no others. Put what receivers need into its payload.",
            part="message",
        )
    if publication.is_later:
        raise ScheduleError(
            f"The message {name!r} of a schedule has run_after: it is published at its "
            f"tick. Let the schedule be due then.",
            part="message",
        )
    if options["overlap"] == "skip":
        raise ScheduleError(
            f"overlap='skip' and the message {name!r}: a message has no job that could "
            f"still run, only those of its subscriptions, which are no matter of the "
            f"publisher. Leave it out, or say overlap='queue'; and say unique=True of "
            f"a receiver of which one job at a time is enough.",
            part="overlap",
        )
    if options["jitter"]:
        raise ScheduleError(
            f"jitter={options['jitter']} and the message {name!r}: a message is "
            f"published at its tick, and its time says so. Jitter is for the jobs of "
            f"tasks.",
            part="jitter",
        )
    for part in ("task", "args", "queue", "priority"):
        if options[part] not in (None, "", (), [], {}):
            raise ScheduleError(
                f"{part}={shown(options[part])} and the message {name!r}: a message "
                f"goes to its topic, and its subscriptions say what becomes of it.",
                part=part,
            )


def _check_timetable(expression: object, every_seconds: object, tz: object) -> None:
    if (expression is None) == (every_seconds is None):
        raise ScheduleError(
            "A schedule has either a cron expression or a period in seconds.",
            part="expression",
        )
    if expression is not None:
        if not isinstance(expression, str):
            raise ScheduleError(
                f"A schedule needs a cron expression such as '0 3 * * *', not "
                f"{shown(expression)}.",
                part="expression",
            )
        with _about("expression"):
            Expression.parse(expression)
    else:
        with _about("every_seconds"):
            check_every(every_seconds)
    if tz is not None:
        with _about("tz"):
            read_zone(tz)  # type: ignore[arg-type]


def check_every(seconds: object) -> None:
    said, most = "A period of {} seconds", int(EVERY_MAX.total_seconds())
    check_whole(said, seconds, most, ScheduleError, more=" (366 days)")


def _jitter_seconds(value: Any) -> int:
    with _about("jitter"):
        over = as_timedelta(value, name="jitter")
    if over > JITTER_MAX or over % timedelta(seconds=1):
        raise ScheduleError(
            f"jitter={shown(value)}: it must be whole seconds, and at most a day.",
            part="jitter",
        )
    return int(over.total_seconds())


def _checked_args(
    name: str, args: object, payload_bytes_max: int
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments as they are stored: (args, kwargs), decoded from JSON."""
    try:
        task = find_task(name)
    except UnknownTask as error:
        hint = did_you_mean(name, declared_names())
        raise ScheduleError(f"{error}{hint}", part="task") from None
    if isinstance(args, Mapping):
        positional, keywords = [], args
    elif isinstance(args, (list, tuple)):
        positional, keywords = list(args), {}
    else:
        raise ScheduleError(
            f"args={shown(args)}: it must be a dict of keyword arguments, or a list "
            f"or tuple.",
            part="args",
        )
    with _about("args"):
        texts = task.encode(positional, keywords, payload_bytes_max)
    return json.loads(texts[0]), json.loads(texts[1])

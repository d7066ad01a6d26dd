"""
Declare: @cron and @every.

    @cron("0 3 * * *", tz="Europe/Berlin")
    @task
    def nightly() -> None: ...

    night_has_come = cron("0 3 * * *", tz="Europe/Berlin")(
        topic("cronjobs").message("cronjobs.nightly", {"full": True})
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django_pgqueue.exceptions import DeclarationError, ScheduleError, raised_as, shown
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.schedules.definition import Definition, check_every, define
from django_pgqueue.tasks.task import Task
from django_pgqueue.topics.write_after import Publication

T = TypeVar("T", bound=Task[Any, Any] | Publication)

_declared: dict[str, Definition] = {}


def cron(
    expression: str,
    *,
    tz: str | None = None,
    catch_up: str = "one",
    overlap: str | None = None,
    jitter: Duration = 0,
    args: Mapping[str, Any] | Sequence[Any] = (),
    queue: str | None = None,
    priority: int | None = None,
    name: str | None = None,
) -> Callable[[T], T]:
    """
    Enqueue a task whenever the clock of a time zone shows what *expression* says.

        @cron("0 3 * * *", tz="Europe/Berlin")
        @task
        def nightly() -> None: ...

    Or publish a message: cron(…)(topic("cronjobs").message("cronjobs.nightly", {})).

    On days when clocks change, an entry with fixed hours is due once, and one whose
    hours are ``*`` or ``*/n`` follows elapsed time, as Debian's cron does it.

    Args:
        expression: Five fields (minute, hour, day, month, day of the week), six with
            seconds first, or @hourly, @daily, @midnight, @weekly, @monthly, @yearly,
            @annually.
        tz: A time zone such as "Europe/Berlin"; settings.TIME_ZONE.
        catch_up: What is done about ticks that nobody was there to issue: "skip",
            "one" (the latest is made up for), or "all(N)": the latest N.
        overlap: "skip" (None is the same): no job while an earlier one of this schedule
            waits or runs; "queue": a job in any case. A message is published in any
            case.
        jitter: The job is due up to this much after its tick, a duration of at most a
            day; how much follows from the schedule's name and the tick. Not for a
            message.
        args: For the task: a dict of keyword arguments, or a list or tuple.
        queue: By default the task's.
        priority: By default the task's.
        name: Of the schedule; by default the task's, or the message's. A task with
            several entries needs one for each. A schedule under another name is
            another schedule.

    Raises:
        ScheduleError: The expression, the zone or a policy is wrong, or no tick ever
            comes; or another schedule has the name.
        DeclarationError: What is decorated is neither a task nor a message.
    """
    return _declares(
        "@cron",
        expression=expression,
        every_seconds=None,
        tz=tz,
        catch_up=catch_up,
        overlap=overlap,
        jitter=jitter,
        args=args,
        queue=queue,
        priority=priority,
        name=name,
    )


def every(
    period: Duration | None = None,
    *,
    seconds: int = 0,
    minutes: int = 0,
    hours: int = 0,
    catch_up: str = "one",
    overlap: str | None = None,
    jitter: Duration = 0,
    args: Mapping[str, Any] | Sequence[Any] = (),
    queue: str | None = None,
    priority: int | None = None,
    name: str | None = None,
) -> Callable[[T], T]:
    """
    Enqueue a task, or publish a message, every so many seconds of elapsed time.

        @every(seconds=15)
        @task
        def poll() -> None: ...

    Ticks are counted from 1970 in UTC: every(hours=6) is due at 00:00, 06:00, 12:00
    and 18:00 UTC.

    Args:
        period: A duration such as "15s", instead of the three below.
        seconds: Added to minutes and hours.
        minutes: As seconds.
        hours: As seconds. All together whole seconds, 1 to 366 days.
        catch_up: As for cron().
        overlap: As for cron().
        jitter: As for cron().
        args: As for cron().
        queue: As for cron().
        priority: As for cron().
        name: As for cron().

    Raises:
        ScheduleError: The period or a policy is out of its range.
        DeclarationError: What is decorated is neither a task nor a message.
    """
    parts = {"seconds": seconds, "minutes": minutes, "hours": hours}
    return _declares(
        "@every",
        expression=None,
        every_seconds=_every_seconds(period, parts),
        tz="UTC",
        catch_up=catch_up,
        overlap=overlap,
        jitter=jitter,
        args=args,
        queue=queue,
        priority=priority,
        name=name,
    )


def declared() -> list[Definition]:
    """Return what @cron and @every have declared, by name."""
    return [_declared[name] for name in sorted(_declared)]


def _declares(decorator: str, *, name: str | None, **options: Any) -> Callable[[T], T]:
    def declare(what: T) -> T:
        if isinstance(what, Task):
            own: dict[str, Any] = {"task": what.name}
        elif isinstance(what, Publication):
            own = {"publication": what}
        else:
            raise DeclarationError(
                f"{decorator} goes above @task, and got {shown(what)}: write "
                f"{decorator}(…) in the line before @task; or give it a message, as "
                f"topic(…).message(…) makes one."
            )
        definition = define(name=what.name if name is None else name, **own, **options)
        other = _declared.get(definition.name)
        if other is not None and other != definition and not _is_reload(other, what):
            raise ScheduleError(
                f"Two schedules are called {definition.name!r}: of {_subject(other)} "
                f"and of {_subject(definition)}. Give each entry a name of its own: "
                f"{decorator}(…, name=…)."
            )
        _declared[definition.name] = definition
        if isinstance(what, Task):
            _entries[definition.name] = what.function
        return what

    return declare


def _subject(definition: Definition) -> str:
    return definition.message_name or definition.task


def _is_reload(other: Definition, what: Task[Any, Any] | Publication) -> bool:
    """Whether the module of the task was imported anew, as a reload does."""
    before = _entries.get(other.name)
    return (
        isinstance(what, Task)
        and other.task == what.name
        and before is not what.function
    )


# The function of the task that each schedule was declared for.
_entries: dict[str, Callable[..., Any]] = {}


def _every_seconds(period: Duration | None, parts: Mapping[str, Any]) -> int:
    for name, value in parts.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ScheduleError(f"@every({name}={shown(value)}): it must be a number.")
    if period is None:
        seconds: Any = parts["seconds"] + 60 * parts["minutes"] + 3_600 * parts["hours"]
    elif any(parts.values()):
        raise ScheduleError("@every takes a period or seconds, minutes, hours.")
    else:
        with raised_as(ScheduleError, "@every: "):
            seconds = as_timedelta(period, name="period").total_seconds()
    if isinstance(seconds, float) and seconds.is_integer():
        seconds = int(seconds)
    check_every(seconds)
    return int(seconds)

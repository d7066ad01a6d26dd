"""
Options: what a task, a queue, the settings and a call may say about a job.

Who wins: the call over the task over the queue over the settings.
"""

# Without postponed annotations: the rows of the table are read here.

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self, TypedDict, Unpack, cast

from asgiref.sync import iscoroutinefunction

from django_pgqueue.bounds import TIME_MAX
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidOption, raised_as
from django_pgqueue.options.checks import AckPolicy, Middleware, When, check_when
from django_pgqueue.options.lanes import Lane, as_lane
from django_pgqueue.options.marks import check_headers, check_tags
from django_pgqueue.options.table import (
    OF_SETTINGS,
    BreakerKeywords,
    ContextKeywords,
    Declared,
    DeclareKeywords,
    JobKeywords,
    LaneKeywords,
    OneByOneKeywords,
    Option,
    PlaceKeywords,
    Resolved,
    RuleKeywords,
    options_of,
)
from django_pgqueue.tasks.accumulate import Accumulate, check_accumulate
from django_pgqueue.tasks.spread import Spread
from django_pgqueue.tasks.unique import Rule, Said, Unique, as_rule, checked_key

UNIQUE = Option("At most one live job for each key, and what a second call does.")


class TaskKeywords(
    OneByOneKeywords, LaneKeywords, RuleKeywords, BreakerKeywords, total=False
):
    """What @task takes besides takes_context and accumulate."""

    unique: Annotated[Unique | None, UNIQUE]


class CallsKeywords(DeclareKeywords, ContextKeywords, BreakerKeywords, total=False):
    """What @task takes besides of a task with accumulate."""


class AccumulateKeywords(TypedDict, total=False):
    """What changes the type of the function, too."""

    accumulate: Annotated[
        Accumulate | None,
        Option(
            "Many calls, one run: the function takes the list of its calls. Not with "
            'atomic, nor with ack_policy "first" or "manual".',
            check_accumulate,
        ),
    ]


class SentKeywords(TypedDict, total=False):
    """What calls may say of their jobs, in our words and in Celery's."""

    expires: Annotated[
        When | None,
        Option(
            "A datetime, or a duration from now on the database's clock; a job not "
            "started by then is archived as expired.",
            partial(check_when, "expires"),
        ),
    ]
    headers: Annotated[
        Mapping[str, Any] | None,
        Option(
            "A dict of JSON that travels with the job, merged into those given before; "
            "reserved keys are refused.",
            check_headers,
        ),
    ]


class UsingKeywords(JobKeywords, SentKeywords, LaneKeywords, RuleKeywords, total=False):
    """What using() takes."""

    run_after: Annotated[
        When | None,
        Option(
            "A datetime, or a duration from now on the database's clock.",
            partial(check_when, "run_after"),
        ),
    ]
    unique: Annotated[
        Unique | Literal[False] | None,
        Option(f"{UNIQUE.doc} False: neither that, nor debounce, nor throttle."),
    ]
    key: Annotated[
        str | int | None,
        Option(
            "The key itself, text of 1 to 1,000 characters or an int, in place of "
            "arguments. Those of two tasks never meet. Of a task with accumulate: "
            "which calls run together; up to 255 characters."
        ),
    ]


class ApplyKeywords(PlaceKeywords, SentKeywords, total=False):
    """What apply_async() takes besides arguments, countdown and eta."""


OF_TASK = options_of(TaskKeywords, AccumulateKeywords, ContextKeywords)
OF_USING = options_of(UsingKeywords)
OF_APPLY = options_of(ApplyKeywords)

# Those that together make the rule for a second call.
OF_RULE = (*RuleKeywords.__annotations__, "unique", "key")

# Those that together say which lane.
OF_LANE = tuple(LaneKeywords.__annotations__)

# Policies by which a job is acked while its task runs.
ONE_BY_ONE: frozenset[AckPolicy] = frozenset({"first", "manual"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedOptions(Resolved):
    """What holds for a job, and how its task is called."""

    # One run of it takes many jobs.
    accumulate: Accumulate | None = None
    # Called with its arguments alone, in a thread, and outside a transaction of ours.
    is_sync_call: bool = False
    # And nothing is around the call: no middleware, no timeout, no word before its end.
    is_plain: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Say once what every job would ask."""
        is_plain = (
            self.is_sync_call
            and not self.middleware
            and self.timeout is None
            and self.ack_policy in ("on_success", "reject_on_error")
        )
        object.__setattr__(self, "is_plain", is_plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions(Declared):
    """What @task declared: its options, and what follows from them."""

    is_async: bool = False
    # What becomes of a second call: unique, debounce or throttle.
    rule: Rule | None = None
    # One run of it takes many jobs.
    accumulate: Accumulate | None = None

    def for_queue(self, name: str, settings: Settings) -> ResolvedOptions:
        """
        Return what holds for a job of this task in the queue *name*.

        Raises:
            InvalidOption: A middleware of the settings does not fit the task; or *name*
                is a pull queue.
        """
        if problem := problem_of_queue(name):
            raise InvalidOption(f"queue={name!r}: {problem}")
        layers = settings.queues.get(name, {}), settings.defaults
        held = {
            option: self._first(option, row, layers)
            for option, row in OF_SETTINGS.items()
        }
        if self.atomic:
            # Its ack is part of its transaction, whatever a queue or the settings say
            # for the others.
            held |= {"settle": "immediate", "ack_policy": "on_success"}
        elif self.accumulate is not None and held["ack_policy"] in ONE_BY_ONE:
            held["ack_policy"] = "on_success"
        if self.accumulate is not None:
            # What is enqueued is a call of its list, which no hint describes.
            held["check_types"] = False
        around = [
            item for layer in layers[::-1] for item in layer.get("middleware", ())
        ]
        middleware = (*as_middleware(around), *self.middleware)
        held["middleware"] = check_fit(middleware, is_async=self.is_async)
        return ResolvedOptions(
            retry=held.pop("retries"),
            **held,
            is_sync_call=not (self.takes_context or self.atomic or self.is_async),
            accumulate=self.accumulate,
        )

    def _first(
        self, option: str, row: Option, layers: Iterable[Mapping[str, Any]]
    ) -> Any:
        """Return what the task says, else the queue, the settings, the table."""
        value = getattr(self, option)
        if value is not None:
            return value
        for layer in layers:
            if layer.get(option) is not None:
                return row.check(layer[option])
        return row.default


# Queues that code declares as those of messages: pull/queue.py adds them.
pull_queues: set[str] = set()


def problem_of_queue(queue: str | None) -> str | None:
    """Return why no job can be in *queue*; None: one can."""
    if queue not in pull_queues:
        return None
    return (
        f"{queue!r} is a pull queue, whose messages clients receive and no worker "
        f"runs. Choose another queue for the task, or send a message: queue.send(…)."
    )


def problem_of_lane(lane: Lane, *, has_rule: bool, accumulates: bool) -> str | None:
    """Say what a lane contradicts; None: nothing."""
    if not (has_rule or accumulates):
        return None
    if accumulates:
        return (
            f"accumulate and {lane.option} contradict each other: calls of the one run "
            f"together, and those of the other wait for one another. Leave one out"
        )
    return (
        f"{lane.option} goes with neither unique, debounce nor throttle: a call that "
        f"stands for a job of its key would have to know what waits before it. Leave "
        f"one out, or give the tasks different names"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What one call says with using(…) or apply_async(…)."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    expire_at: datetime | None = None
    expire_in: timedelta | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    rule: Said = None
    key: str | None = None  # JSON text.
    accumulate_key: str | None = None
    spread: Spread | None = None
    lane: Lane | Literal[False] | None = None

    def with_(
        self, *, spread: Spread | None = None, **keywords: Unpack[UsingKeywords]
    ) -> Self:
        """
        Return these options with those that are given replaced.

        Raises:
            InvalidOption: A value is out of its range, or does not go with another.
        """
        given = {name: value for name, value in keywords.items() if value is not None}
        kept = {name: OF_USING[name].check(value) for name, value in given.items()}
        changed: dict[str, Any] = {
            name: kept[name] for name in ("queue", "priority") if name in kept
        }
        if "retries" in kept:
            changed["max_attempts"] = kept["retries"].max_attempts
        if "run_after" in kept:
            changed["run_at"], changed["delay"] = kept["run_after"]
        if "expires" in kept:
            changed["expire_at"], changed["expire_in"] = kept["expires"]
        if "headers" in kept:
            changed["headers"] = {**self.headers, **kept["headers"]}
        if "tags" in kept:
            changed["tags"] = check_tags([*self.tags, *kept["tags"]])
        lane = as_lane(*[kept.get(name) for name in OF_LANE])
        if lane is not None:
            changed["lane"] = lane
        with raised_as(InvalidOption):
            rule = as_rule(**{name: kept[name] for name in OF_RULE if name in kept})
        if rule is not None:
            changed["rule"] = rule
        if rule is False or (rule is not None and rule.by is not None):
            # Arguments make the key from here on, or there is none.
            changed["key"] = None
        if "key" in kept:
            changed["key"] = checked_key(kept["key"])
        options = replace(self, **changed, spread=spread or self.spread)
        _check_window(options)
        return options

    def rule_for(self, task: TaskOptions) -> Rule | None:
        """Return the rule that holds for a call of *task* with these options."""
        return (task.rule if self.rule is None else self.rule) or None

    def lane_for(self, task: TaskOptions) -> Lane | None:
        """Return the lane that holds for a call of *task* with these options."""
        return (task.lane if self.lane is None else self.lane) or None


def as_middleware(value: Sequence[Middleware | str]) -> tuple[Middleware, ...]:
    """Return *value* with its import paths resolved; raise InvalidOption."""
    found: list[Middleware] = []
    for item in value:
        found.append(_imported(item) if isinstance(item, str) else item)
        if not callable(found[-1]):
            raise InvalidOption(f"middleware {item!r} is not callable.")
    return tuple(found)


def check_fit(
    middleware: tuple[Middleware, ...], *, is_async: bool
) -> tuple[Middleware, ...]:
    """
    Return *middleware*; raise InvalidOption where it cannot stand around the task.

    Around a plain task there is no event loop that could await it.
    """
    if not is_async:
        for item in middleware:
            call = getattr(item, "__call__", None)  # noqa: B004 - Of an object.
            if iscoroutinefunction(item) or iscoroutinefunction(call):
                raise InvalidOption(
                    f"middleware {item!r} is async, and the task is not: write it "
                    f"with def, or declare the task with async def."
                )
    return middleware


def _imported(path: str) -> Middleware:
    from django.utils.module_loading import import_string

    try:
        return cast("Middleware", import_string(path))
    except ImportError as error:
        raise InvalidOption(f"middleware {path!r}: {error}") from None


def _check_window(options: CallOptions) -> None:
    """
    Raise InvalidOption unless all of the window is before the jobs expire.

    Where one of the two is a moment and the other a duration, this process's clock
    decides.
    """
    if options.spread is None:
        return
    from django.utils import timezone

    now = timezone.now()
    if timezone.is_naive(now):
        now = timezone.make_aware(now)
    start = options.run_at or now + (options.delay or timedelta())
    end = start + options.spread.over
    if end > TIME_MAX:
        raise InvalidOption(
            f"The window would end at {end}; it must be in the years 1900 to 9000."
        )
    if options.expire_at is None and options.expire_in is None:
        return
    expires = options.expire_at or now + (options.expire_in or timedelta())
    if expires < end:
        raise InvalidOption(
            f"expires: jobs would expire {end - expires} before the end of their "
            f"window, so the last ones would never run. Let expires be at least "
            f"run_after and over together."
        )

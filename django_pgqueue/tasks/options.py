"""
Options: what a task, a queue, the settings and a call may say about a job.

Who wins: the call over the task over the queue over the settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from asgiref.sync import iscoroutinefunction

from django_pgqueue.bounds import (
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_NAME,
    RESERVED,
    RESERVED_PREFIX,
    TAG_CHARACTERS_MAX,
    TAGS_MAX,
    TIME_MAX,
    TIME_MIN,
)
from django_pgqueue.conf import (
    ACK_POLICIES,
    SETTLES,
    Duration,
    Settings,
    as_timedelta,
)
from django_pgqueue.exceptions import DeclarationError, InvalidOption
from django_pgqueue.tasks.accumulate import Accumulate
from django_pgqueue.tasks.retry import Retry, as_retry
from django_pgqueue.tasks.shown import shown
from django_pgqueue.tasks.spread import Spread, check_window
from django_pgqueue.tasks.unique import Rule, Said, Unique, as_rule, checked_key

Settle = Literal["immediate", "batched"]
AckPolicy = Literal["on_success", "first", "reject_on_error", "manual"]

# What stands around a task: called with the job's context and a function without
# arguments that goes on; returns what that returned, or something else.
Middleware = Callable[[Any, Callable[[], Any]], Any]

When = datetime | Duration

# Policies by which a job is acked while its task runs.
ONE_BY_ONE: frozenset[AckPolicy] = frozenset({"first", "manual"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What @task declared; None: say the queue, the settings, the default."""

    queue: str | None = None
    priority: int | None = None
    retries: Retry | None = None
    timeout: timedelta | None = None
    settle: Settle | None = None
    ack_policy: AckPolicy | None = None
    # False: a job that succeeded leaves nothing behind.
    archive: bool | None = None
    # Around the task, the first one outermost; those of the queue and of the settings
    # are around them in turn.
    middleware: tuple[Middleware, ...] = ()
    # The ack is part of the task's own transaction. Sync tasks only.
    atomic: bool = False
    takes_context: bool = False
    is_async: bool = False
    # On every job of the task; a call adds its own.
    tags: tuple[str, ...] = ()
    # What becomes of a second call: unique, debounce or throttle.
    rule: Rule | None = None
    # One run of it takes many jobs.
    accumulate: Accumulate | None = None

    def for_queue(self, name: str, settings: Settings) -> ResolvedOptions:
        """
        Return what holds for a job of this task in the queue *name*.

        Raises:
            InvalidOption: A middleware of the settings does not fit the task.
        """
        by_queue = settings.queues.get(name, {})

        def first(option: str, default: Any) -> Any:
            for said in (
                getattr(self, option),
                by_queue.get(option),
                settings.defaults.get(option),
            ):
                if said is not None:
                    return said
            return default

        timeout = first("timeout", None)
        return ResolvedOptions(
            priority=check_priority(first("priority", PRIORITY_DEFAULT)),
            retry=as_retry(first("retries", None)) or Retry(),
            timeout=None
            if timeout is None
            else as_timedelta(timeout, name="timeout", zero=False),
            # The ack of an atomic task is part of its transaction, whatever a queue or
            # the settings say for the others.
            settle="immediate"
            if self.atomic
            else check_settle(first("settle", "immediate")),
            ack_policy="on_success"
            if self.atomic
            else self._fitting(check_ack_policy(first("ack_policy", "on_success"))),
            archive=check_archive(first("archive", True)),
            is_sync_call=not (self.takes_context or self.atomic or self.is_async),
            accumulate=self.accumulate,
            middleware=check_fit(
                (
                    *as_middleware(settings.defaults.get("middleware", ())),
                    *as_middleware(by_queue.get("middleware", ())),
                    *self.middleware,
                ),
                is_async=self.is_async,
            ),
        )

    def _fitting(self, policy: AckPolicy) -> AckPolicy:
        """Return the policy; one that no run of calls can have is not for this task."""
        if self.accumulate is not None and policy in ONE_BY_ONE:
            return "on_success"
        return policy


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """What holds for a job, once every layer has been asked."""

    priority: int
    retry: Retry
    timeout: timedelta | None
    settle: Settle
    ack_policy: AckPolicy = "on_success"
    archive: bool = True
    middleware: tuple[Middleware, ...] = ()
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

    def with_(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        retries: Retry | int | None = None,
        run_after: When | None = None,
        expires: When | None = None,
        headers: Mapping[str, Any] | None = None,
        tags: Collection[str] | None = None,
        unique: Unique | Literal[False] | None = None,
        key: str | int | None = None,
        by: str | Collection[str] | None = None,
        debounce: Duration | None = None,
        max_wait: Duration | None = None,
        throttle: str | None = None,
        spread: Spread | None = None,
    ) -> CallOptions:
        """
        Return these options with those that are given replaced.

        Raises:
            InvalidOption: A value is out of its range, or does not go with another.
        """
        changed: dict[str, Any] = {}
        if queue is not None:
            changed["queue"] = check_queue(queue)
        if priority is not None:
            changed["priority"] = check_priority(priority)
        if retries is not None:
            changed["max_attempts"] = check_retries(retries)
        if run_after is not None:
            changed["run_at"], changed["delay"] = check_when("run_after", run_after)
        if expires is not None:
            at, after = check_when("expires", expires)
            changed["expire_at"], changed["expire_in"] = at, after
        if headers is not None:
            changed["headers"] = {**self.headers, **check_headers(headers)}
        if tags is not None:
            changed["tags"] = check_tags([*self.tags, *check_tags(tags)])
        try:
            rule = as_rule(
                unique=unique,
                by=by,
                debounce=debounce,
                max_wait=max_wait,
                throttle=throttle,
                key=key,
            )
        except DeclarationError as error:
            raise InvalidOption(str(error)) from None
        if rule is not None:
            changed["rule"] = rule
        if rule is False or (rule is not None and rule.by is not None):
            # Arguments make the key from here on, or there is none.
            changed["key"] = None
        if key is not None:
            changed["key"] = checked_key(key)
        options = replace(self, **changed, spread=spread or self.spread)
        check_window(options)
        return options

    def rule_for(self, task: TaskOptions) -> Rule | None:
        """Return the rule that holds for a call of *task* with these options."""
        return (task.rule if self.rule is None else self.rule) or None


def check_queue(name: object) -> str:
    """Return *name*; raise InvalidOption when it is no valid queue name."""
    if not isinstance(name, str) or not QUEUE_NAME.fullmatch(name):
        raise InvalidOption(
            f"queue={shown(name)}: a queue name has 1 to 63 characters: letters, "
            f"digits, '_', '.' and '-', the first no '.' or '-'."
        )
    return name


def check_priority(value: object) -> int:
    """Return *value*; raise InvalidOption unless it is an int from -100 to 100."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not PRIORITY_MIN <= value <= PRIORITY_MAX
    ):
        raise InvalidOption(
            f"priority={shown(value)}: it must be a whole number from {PRIORITY_MIN} "
            f"to {PRIORITY_MAX}; higher runs first."
        )
    return value


def check_retries(value: Retry | int) -> int:
    """Return the attempts that *value* allows; raise InvalidOption."""
    try:
        policy = as_retry(value)
    except DeclarationError as error:
        raise InvalidOption(str(error)) from None
    assert policy is not None
    return policy.max_attempts


def check_settle(value: object) -> Settle:
    """Return *value*; raise InvalidOption unless it is a settle strength."""
    if value == "immediate":
        return "immediate"
    if value == "batched":
        return "batched"
    raise InvalidOption(
        f"settle={shown(value)}: it must be one of {', '.join(SETTLES)}."
    )


def check_ack_policy(value: object) -> AckPolicy:
    """Return *value*; raise InvalidOption unless it is an ack policy."""
    for policy in ACK_POLICIES:
        if value == policy:
            return cast("AckPolicy", policy)
    raise InvalidOption(
        f"ack_policy={shown(value)}: it must be one of {', '.join(ACK_POLICIES)}."
    )


def check_archive(value: object) -> bool:
    """Return *value*; raise InvalidOption unless it is True or False."""
    if isinstance(value, bool):
        return value
    raise InvalidOption(f"archive={shown(value)}: it must be True or False.")


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


def check_tags(tags: object) -> tuple[str, ...]:
    """Return *tags* without repeats; raise InvalidOption."""
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise InvalidOption(f"tags={shown(tags)}: it must be a list of texts.")
    for tag in tags:
        if (
            not isinstance(tag, str)
            or not 1 <= len(tag) <= TAG_CHARACTERS_MAX
            or not tag.isprintable()
        ):
            raise InvalidOption(
                f"tags has {shown(tag)}; a tag is text of 1 to {TAG_CHARACTERS_MAX} "
                f"printable characters."
            )
    unique = tuple(dict.fromkeys(str.__str__(tag) for tag in tags))
    if len(unique) > TAGS_MAX:
        raise InvalidOption(f"tags has {len(unique)} tags; a job has up to {TAGS_MAX}.")
    return unique


def check_when(name: str, value: When) -> tuple[datetime | None, timedelta | None]:
    """
    Return a moment, or a delay from now on the database's clock: one of the two.

    A naive datetime is taken in the current time zone, as Django does.

    Raises:
        InvalidOption: Neither, or outside of the years 1900 to 9000.
    """
    if not isinstance(value, datetime):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidOption(f"{name}={shown(value)}: it must be finite.")
        try:
            return None, as_timedelta(value, name=name)
        except ValueError as error:
            raise InvalidOption(str(error)) from None
    if value.tzinfo is None:
        from django.utils import timezone

        value = timezone.make_aware(value)
    try:
        is_readable = TIME_MIN <= value <= TIME_MAX
    except Exception as error:
        raise InvalidOption(
            f"{name}: its time zone fails with {shown(error)}."
        ) from error
    if not is_readable:
        raise InvalidOption(f"{name}={value}: it must be in the years 1900 to 9000.")
    return value, None


def check_headers(headers: object) -> Mapping[str, Any]:
    """Return *headers*; raise InvalidOption for a reserved key or no dict."""
    if not isinstance(headers, Mapping):
        raise InvalidOption(f"headers={shown(headers)}: it must be a dict.")
    for key in headers:
        if not isinstance(key, str) or not key:
            raise InvalidOption(f"headers has the key {shown(key)}; keys must be text.")
        if key.startswith(RESERVED_PREFIX):
            raise InvalidOption(
                f"headers has the key {shown(key)}; keys that begin with "
                f"{RESERVED_PREFIX!r} are reserved."
            )
        if key in RESERVED:
            way_out = ": say using(tags=[…])" if key == "tags" else "; take another"
            raise InvalidOption(
                f"headers has the key {key!r}, which is reserved{way_out}."
            )
    return headers


def _imported(path: str) -> Middleware:
    from django.utils.module_loading import import_string

    try:
        return cast("Middleware", import_string(path))
    except ImportError as error:
        raise InvalidOption(f"middleware {path!r}: {error}") from None

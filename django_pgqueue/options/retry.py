"""Retry: when a failed job runs again, and when it has had enough."""

from __future__ import annotations

import inspect
import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from asgiref.sync import iscoroutinefunction

from django_pgqueue.bounds import ATTEMPTS_DEFAULT, ATTEMPTS_MAX
from django_pgqueue.exceptions import DeclarationError, check_whole, raised_as, shown
from django_pgqueue.options.durations import Duration, as_timedelta

Backoff: TypeAlias = (
    Literal["exponential", "linear", "constant"]
    | Callable[[int, BaseException], Duration]
)
BACKOFFS = ("exponential", "linear", "constant")
JITTERS = ("full", "equal", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """
    What follows a failed attempt.

    Args:
        max_attempts: Attempts in all, the first one included; 1 to 32,767.
        backoff: How the delay grows with the attempts that failed: "exponential"
            (base, 2 x base, 4 x base, …), "linear" (base, 2 x base, 3 x base, …),
            "constant", or a function of (attempt, error) that returns a duration.
        base: The first delay: seconds, a timedelta or text such as "5s".
        cap: The longest delay.
        jitter: "full" draws from zero to the delay, so that jobs that failed together
            do not come back together; "equal" from half of it; "none" takes it as is.
        on: Only these exceptions are retried; others go to the dead letters at once.
        never: These exceptions are not retried, also where ``on`` holds them.
        max_age: No attempt starts later than this after the job was enqueued; a
            failure whose next attempt would is the last. None: no limit.

    Raises:
        DeclarationError: A value is out of its range.
    """

    max_attempts: int = ATTEMPTS_DEFAULT
    backoff: Backoff = "exponential"
    base: Duration = 5
    cap: Duration = "1h"
    jitter: Literal["full", "equal", "none"] = "full"
    on: tuple[type[BaseException], ...] = (BaseException,)
    never: tuple[type[BaseException], ...] = ()
    max_age: Duration | None = None

    def __post_init__(self) -> None:
        said = "Retry(max_attempts={})"
        check_whole(said, self.max_attempts, ATTEMPTS_MAX, DeclarationError)
        _check_backoff(self.backoff)
        if not _is_one_of(self.jitter, JITTERS):
            raise DeclarationError(
                f"Retry(jitter={shown(self.jitter)}): it must be one of "
                f"{', '.join(JITTERS)}."
            )
        for name in ("on", "never"):
            _check_exceptions(name, getattr(self, name))
        with raised_as(DeclarationError):
            as_timedelta(self.base, name="Retry(base=…)")
            as_timedelta(self.cap, name="Retry(cap=…)")
            if self.max_age is not None:
                as_timedelta(self.max_age, name="Retry(max_age=…)", zero=False)

    def handles(self, error: BaseException) -> bool:
        """Whether a job that failed with *error* may be tried again at all."""
        return isinstance(error, self.on) and not isinstance(error, self.never)

    def is_too_old(self, age: timedelta) -> bool:
        """
        Whether an attempt that starts at this age of its job comes too late.

        Args:
            age: From the job's enqueued_at to the start of the attempt: now, and the
                delay before it.
        """
        if self.max_age is None:
            return False
        return age > as_timedelta(self.max_age, name="Retry(max_age=…)")

    def delay(
        self,
        attempt: int,
        error: BaseException,
        *,
        random: Callable[[], float] = random_module.random,
    ) -> timedelta:
        """
        Return how long to wait after the failed *attempt*, 1 being the first.

        Args:
            attempt: The attempt that failed.
            error: What it failed with, for a back-off function.
            random: Draws from 0 to 1; tests pass their own.
        """
        cap = as_timedelta(self.cap, name="Retry(cap=…)")
        whole = min(self._whole(attempt, error, cap), cap)
        if self.jitter == "full":
            return whole * random()
        if self.jitter == "equal":
            return whole * (0.5 + random() / 2)
        return whole

    def _whole(self, attempt: int, error: BaseException, cap: timedelta) -> timedelta:
        if callable(self.backoff):
            delay = self.backoff(attempt, error)
            return as_timedelta(delay, name="what the back-off function returned")
        base = as_timedelta(self.base, name="Retry(base=…)")
        if self.backoff == "constant":
            return base
        if self.backoff == "linear":
            return min(base * attempt, cap)
        # 2 ** 60 x any base is beyond every cap; larger powers overflow a timedelta.
        seconds = base.total_seconds() * 2 ** min(attempt - 1, 60)
        return cap if seconds > cap.total_seconds() else timedelta(seconds=seconds)


def as_retry(value: Retry | int | None) -> Retry | None:
    """
    Turn the option ``retries`` into a policy; None stays None.

    ``retries=5`` means five retries after the first attempt: six attempts.

    Raises:
        DeclarationError: Neither a Retry nor a whole number from 0 on.
    """
    if value is None or isinstance(value, Retry):
        return value
    most, more = ATTEMPTS_MAX - 1, ", or Retry(…)"
    retries = check_whole(
        "retries={}", value, most, DeclarationError, least=0, more=more
    )
    return Retry(max_attempts=retries + 1)


def _check_backoff(value: object) -> None:
    if _is_one_of(value, BACKOFFS):
        return
    if not callable(value):
        raise DeclarationError(
            f"Retry(backoff={shown(value)}): it must be one of {', '.join(BACKOFFS)}, "
            f"or a function of (attempt, error)."
        )
    try:
        inspect.signature(value).bind(1, Exception())
    except TypeError:
        raise DeclarationError(
            f"Retry(backoff={shown(value)}): it must take two arguments, the attempt "
            f"that failed and the error."
        ) from None
    except ValueError:
        pass  # A built-in that does not tell its signature.
    if iscoroutinefunction(value):
        raise DeclarationError(
            f"Retry(backoff={shown(value)}): it must be a plain function, not async."
        )


def _is_one_of(value: object, words: tuple[str, ...]) -> bool:
    return isinstance(value, str) and value in words


def _check_exceptions(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(
        isinstance(item, type) and issubclass(item, BaseException) for item in value
    ):
        raise DeclarationError(
            f"Retry({name}={shown(value)}): it must be a tuple of exception classes."
        )

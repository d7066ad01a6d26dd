"""Retry: when a failed job runs again, and when it has had enough."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from django_pgqueue.conf import Duration, as_timedelta
from django_pgqueue.exceptions import DeclarationError

ATTEMPTS_MAX = 32_767  # The column is a smallint.

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

    Raises:
        DeclarationError: A value is out of its range.
    """

    max_attempts: int = 5
    backoff: Backoff = "exponential"
    base: Duration = 5
    cap: Duration = "1h"
    jitter: Literal["full", "equal", "none"] = "full"
    on: tuple[type[BaseException], ...] = (BaseException,)
    never: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        if not callable(self.backoff) and self.backoff not in BACKOFFS:
            raise DeclarationError(
                f"Retry(backoff={self.backoff!r}): it must be one of "
                f"{', '.join(BACKOFFS)}, or a function of (attempt, error)."
            )
        if self.jitter not in JITTERS:
            raise DeclarationError(
                f"Retry(jitter={self.jitter!r}): it must be one of "
                f"{', '.join(JITTERS)}."
            )
        for name in ("on", "never"):
            _check_exceptions(name, getattr(self, name))
        try:
            as_timedelta(self.base, name="Retry(base=…)")
            as_timedelta(self.cap, name="Retry(cap=…)")
        except ValueError as error:
            raise DeclarationError(str(error)) from None

    def handles(self, error: BaseException) -> bool:
        """Whether a job that failed with *error* may be tried again at all."""
        return isinstance(error, self.on) and not isinstance(error, self.never)

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
            return as_timedelta(self.backoff(attempt, error), name="backoff")
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
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DeclarationError(
            f"retries={value!r}: it must be a whole number from 0 to "
            f"{ATTEMPTS_MAX - 1:,}, or Retry(…)."
        )
    return Retry(max_attempts=value + 1)


def _check_attempts(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DeclarationError(
            f"Retry(max_attempts={value!r}): it must be a whole number."
        )
    if not 1 <= value <= ATTEMPTS_MAX:
        raise DeclarationError(
            f"Retry(max_attempts={value!r}): it must be from 1 to {ATTEMPTS_MAX:,}."
        )


def _check_exceptions(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(
        isinstance(item, type) and issubclass(item, BaseException) for item in value
    ):
        raise DeclarationError(
            f"Retry({name}={value!r}): it must be a tuple of exception classes."
        )

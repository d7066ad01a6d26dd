"""
Unique: at most one job of a kind, and what a second call does.

What a declaration or a call says is checked here and becomes a Rule; what a call then
asks the database for is a Dedup (queues/unique.py). Who wins: the call over the task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidOption,
    did_you_mean,
    raised_as,
    shown,
)
from django_pgqueue.options.durations import Duration, as_rate, as_timedelta
from django_pgqueue.redaction.names import Names
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.parameters import Parameters

if TYPE_CHECKING:
    from django_pgqueue.queues.unique import Conflict, Dedup, Hold

While = Literal["queued", "queued|running"]
OnConflict = Literal["skip", "replace", "reschedule", "error"]

WHILES = ("queued", "queued|running")
CONFLICTS = ("skip", "replace", "reschedule", "error")
# What changes a job that waits, and so cannot be done to one that runs or has ended.
CHANGING = ("replace", "reschedule")

# Characters of an explicit key. A longer one is data; the table's key is hashed.
KEY_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """
    At most one live job for each key.

    Args:
        by: What makes the key: the name of a parameter, or several; () is the task
            alone, None all arguments. Values count as they are stored, so 3 and 3.0
            are two keys, and the parameters that are not named may differ.
        while_: How long the job keeps others out. "queued": until a worker takes it,
            so what changes while it runs makes another job. "queued|running": until it
            has ended, its retries included.
        conflict: What a call does that finds the key taken. "skip": nothing.
            "replace": the waiting job gets its arguments, headers and expiry, and
            keeps its time. "reschedule": the waiting job gets its time, and keeps its
            arguments. "error": it raises DuplicateJob.
        period: Also at most one within this time after the last one was stored, even
            when that has long ended: a duration.

    Raises:
        DeclarationError: A value is none of these, or two contradict each other.
    """

    by: str | Collection[str] | None = None
    while_: While = "queued"
    conflict: OnConflict = "skip"
    period: Duration | None = None

    def __post_init__(self) -> None:
        """Check it once, where it is written."""
        object.__setattr__(self, "by", checked_by("Unique(by=…)", self.by))
        for name, value, known in (
            ("while_", self.while_, WHILES),
            ("conflict", self.conflict, CONFLICTS),
        ):
            if not isinstance(value, str) or value not in known:
                near = did_you_mean(value, list(known)) if type(value) is str else ""
                raise DeclarationError(
                    f"Unique({name}={shown(value)}): it must be one of "
                    f"{', '.join(map(repr, known))}.{near}"
                )
        if self.conflict in CHANGING and self.while_ != "queued":
            raise DeclarationError(
                f"Unique: conflict={self.conflict!r} and while_={self.while_!r} "
                f"contradict each other: a job that runs has read its arguments. Say "
                f"while_='queued', or conflict='skip' or 'error'."
            )
        if self.period is None:
            return
        if self.conflict in CHANGING:
            raise DeclarationError(
                f"Unique: conflict={self.conflict!r} and period contradict each other: "
                f"within the period the job may have ended. Say conflict='skip' or "
                f"'error', or leave period out."
            )
        with raised_as(DeclarationError):
            as_timedelta(self.period, name="Unique(period=…)", zero=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """What Unique, debounce or throttle come to."""

    by: tuple[str, ...] | None
    hold: Hold | None
    conflict: Conflict
    delay: timedelta | None = None  # Of a debounce: how long after the last call.
    max_wait: timedelta | None = None
    period: timedelta | None = None
    jobs: int = 1

    def check_names(self, parameters: Parameters) -> None:
        """
        Check that the function has the parameters that make the key.

        Raises:
            DeclarationError: It has not.
        """
        for name in self.by or ():
            if name not in parameters.names:
                dotted = (
                    " It names a parameter, not what is inside: pass that by itself."
                    if "." in name
                    else did_you_mean(name, sorted(parameters.names))
                )
                raise DeclarationError(
                    f"by={shown(name)}: {parameters.function_name} has no parameter of "
                    f"that name.{dotted}"
                )

    def names_in(self, parameters: Parameters) -> tuple[str, ...]:
        """Return the parameters that make the key."""
        return tuple(parameters.names) if self.by is None else self.by

    def is_hidden(self, redact: Sequence[str]) -> bool:
        """
        Whether the key must not show what makes it: secrets may be among that.

        Args:
            redact: PGQUEUE['REDACT'].
        """
        return self.by is None or any(map(Names(redact).hides, self.by))

    def dedup(self, **values: Any) -> Dedup:
        """Return what the storage is asked for, with these values of the key."""
        from django_pgqueue.queues.unique import Dedup

        return Dedup(
            hold=self.hold,
            conflict=self.conflict,
            max_wait=self.max_wait,
            period=self.period,
            jobs=self.jobs,
            **values,
        )


# What a call says: a rule; False: none, whatever the task says; None: the task's.
Said = Rule | Literal[False] | None


def as_rule(
    *,
    unique: object = None,
    by: object = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    throttle: object = None,
    key: object = None,
) -> Said:
    """
    Return the rule that these options make together; None: none of them is given.

    Args:
        unique: A Unique; False: none of the three.
        by: Of debounce and throttle, as that of Unique.
        debounce: A duration: how long after the last call the job runs.
        max_wait: A duration: how long calls can put it off, from the first one on.
        throttle: "N/period".
        key: Whether a key is given beside them, for contradictions only.

    Raises:
        DeclarationError: A value is out of its range, or two contradict each other.
    """
    given = [
        name
        for name, value in (
            ("unique", unique),
            ("debounce", debounce),
            ("throttle", throttle),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise DeclarationError(
            f"{' and '.join(given)} contradict each other: each says what becomes of a "
            f"second call. Choose one."
        )
    if max_wait is not None and debounce is None:
        raise DeclarationError("max_wait needs debounce, said in the same place.")
    if by is not None and given not in (["debounce"], ["throttle"]):
        raise DeclarationError(
            "by needs debounce or throttle, said in the same place; for unique say "
            "unique=Unique(by=…)."
        )
    if not given:
        return None
    if unique is False:
        return False
    named = unique.by if isinstance(unique, Unique) else by
    if key is not None and named is not None:
        raise DeclarationError(
            f"key and by={shown(named)} contradict each other: the key is the one or "
            f"the other. Leave one out."
        )
    with raised_as(DeclarationError):
        if unique is not None:
            return _unique_rule(unique)
        names = checked_by("by", by)
        if debounce is not None:
            return _debounce_rule(names, debounce, max_wait)
        jobs, period = as_rate(throttle, name="throttle")
        return Rule(by=names, hold=None, conflict="skip", period=period, jobs=jobs)


def _unique_rule(unique: object) -> Rule:
    if not isinstance(unique, Unique):
        raise DeclarationError(
            f"unique={shown(unique)}: it must be a Unique, such as "
            f"Unique(by='order_id'), or False."
        )
    by, period = unique.by, unique.period
    assert by is None or isinstance(by, tuple)
    if period is not None:
        period = as_timedelta(period, name="Unique(period=…)")
    return Rule(by=by, hold=unique.while_, conflict=unique.conflict, period=period)


def _debounce_rule(
    by: tuple[str, ...] | None, debounce: Duration, max_wait: Duration | None
) -> Rule:
    delay = as_timedelta(debounce, name="debounce", zero=False)
    longest = None
    if max_wait is not None:
        longest = as_timedelta(max_wait, name="max_wait", zero=False)
        if longest < delay:
            raise DeclarationError(
                f"max_wait={shown(max_wait)} is shorter than "
                f"debounce={shown(debounce)}: it is the longest that calls can put the "
                f"job off."
            )
    return Rule(
        by=by, hold="queued", conflict="debounce", delay=delay, max_wait=longest
    )


def checked_by(what: str, by: object) -> tuple[str, ...] | None:
    """
    Return the names in *by*, each once; None stays.

    Raises:
        DeclarationError: It is no name, and no collection of names.
    """
    if by is None:
        return None
    names = (by,) if isinstance(by, str) else by
    if not isinstance(names, Collection) or isinstance(names, (bytes, Mapping)):
        raise DeclarationError(
            f"{what} is {shown(by)}; it must be the name of a parameter, several "
            f"names, or () for the task alone."
        )
    for name in names:
        if not isinstance(name, str) or not name:
            raise DeclarationError(
                f"{what} has {shown(name)}; a name of a parameter is text."
            )
    return tuple(sorted(set(names)))


def checked_key(key: object) -> str:
    """
    Return the value of an explicit key, as JSON.

    Raises:
        InvalidOption: It is no text and no int, empty, too long, or holds what the
            database cannot store.
    """
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise InvalidOption(
            f"key={shown(key)}, a {type(key).__qualname__}: it must be text or an int."
        )
    if isinstance(key, int):
        # Not str(): beyond 4,300 digits that raises.
        if not -(10**18) < key < 10**18:
            raise InvalidOption("key is an int of more than 18 digits; say it as text.")
        key = int(key)
        text = str(key)
    else:
        text = str.__str__(key)
    if not 1 <= len(text) <= KEY_CHARACTERS_MAX:
        raise InvalidOption(
            f"key has {len(text):,} characters; it must have 1 to "
            f"{KEY_CHARACTERS_MAX:,}."
        )
    try:
        # As text, so that 7 and "7" are one key.
        return payload.encode_value(text)
    except ValueError as error:
        raise InvalidOption(f"key: {error}.") from None


def by_of(
    task: str,
    parameters: Parameters,
    names: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    is_hidden: bool,
) -> str:
    """
    Return the value of the key that a call makes, as JSON: an object of parameters.

    Args:
        task: The task's name, for errors.
        parameters: Those of its function.
        names: The parameters that count.
        args: Positional arguments that fit.
        kwargs: Keyword arguments that fit.
        is_hidden: Whether the key is not to be read by those who are shown it.

    Raises:
        InvalidArgument: A default value that counts cannot travel as JSON.
    """
    values = parameters.values(args, kwargs)
    text = payload.encode_at(task, "by", {name: values[name] for name in names})
    # The key of an array is hashed.
    return f"[{text}]" if is_hidden else text

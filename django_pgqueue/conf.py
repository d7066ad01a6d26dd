"""
Every setting of the package, each declared once as a row of a frozen dataclass.

A project writes ``PGQUEUE = {"LEASE_SECONDS": 120}`` in its settings. Each key has a
unit in its name or takes a duration: a number of seconds, a ``timedelta``, or text
such as ``"90s"``, ``"5m"``, ``"24h"``, ``"7d"``. Unknown keys are an error with a
suggestion, because a typo that is silently ignored is found in production.

A row has a reader, which returns the value or raises SettingsError, and a default. A
field without a default has to be given.
"""

# ruff: noqa: RUF009  # A row is a field: row() is called once, where it is declared.

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import timedelta
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from django_pgqueue.bounds import (
    DEAD_REASONS,
    DEPTH_MAX_MAX,
    EXPORT_CHARACTERS_MAX,
    EXPORT_TARGET,
    LANE_BURST_MAX,
    LANE_CAPACITY_MAX,
    LOG_BYTES_MAX,
    LOG_BYTES_MIN,
    PAYLOAD_BYTES_DEFAULT,
    QUEUE_DEFAULT,
    QUEUE_NAME,
    TASK_NAME_MAX,
)
from django_pgqueue.exceptions import (
    MissingExtra,
    SettingsError,
    did_you_mean,
    raised_as,
)
from django_pgqueue.options.durations import (
    SECONDS_MAX,
    as_bytes,
    as_bytes_within,
    as_timedelta,
)
from django_pgqueue.redaction.names import REDACT_DEFAULT

MODES = ("normal", "immediate")

EMAIL_BACKEND = "django_pgqueue.backends.email.EmailBackend"
# The task of the jobs that it stores.
MAIL_TASK = "django_pgqueue.deliver_mail"

# Each rule of REPROCESS costs the leader a look at dead letters a minute.
REPROCESS_RULES_MAX = 20

# What becomes of an enqueue into a queue that is full.
OnFull = Literal["refuse", "block", "signal"]
ON_FULL: tuple[OnFull, ...] = ("refuse", "block", "signal")

# Where the limits of a queue are kept among the options of its jobs.
DEPTH_LIMIT = "depth_limit"
FAIR_BY = "fair_by"
QUEUE_LIMIT = "queue_limit"


# Readers: what a value has to be ------------------------------------------------------

# Called with the name of the value, for the error, and the value.
Reader = Callable[[str, Any], Any]


def row(read: Reader, default: Any = MISSING, *, key: str | None = None) -> Any:
    """Declare a setting: its reader, its default, and its key if it has another."""
    metadata = {"read": read, "key": key}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def rows(kind: Any) -> dict[str, Field[Any]]:
    """Return the rows of a dataclass, by their keys."""
    return {item.metadata["key"] or item.name: item for item in fields(kind)}


def value(what: str, is_right: Callable[[Any], bool], then: Any = None) -> Reader:
    """Return a reader of values that fit; *then* converts them."""

    def read(key: str, value: Any) -> Any:
        if not is_right(value):
            raise SettingsError(f"{key} must be {what}, not {value!r}.")
        return value if then is None else then(value)

    return read


def optional(read: Reader) -> Reader:
    """Return a reader of None, too."""
    return lambda key, value: None if value is None else read(key, value)


def choice(choices: tuple[str, ...]) -> Reader:
    """Return a reader of one of some words."""

    def read(key: str, value: Any) -> Any:
        if value not in choices:
            words = " or ".join(map(repr, choices))
            raise SettingsError(f"{key} is {value!r}; it must be {words}.")
        return value

    return read


def converted(convert: Callable[..., Any]) -> Reader:
    """Return a reader that converts by a function that knows the name of the value."""

    def read(key: str, value: Any) -> Any:
        with raised_as(SettingsError):
            return convert(value, name=key)

    return read


@dataclass(frozen=True, slots=True)
class Number:
    """Reads a number between two limits, both allowed."""

    low: float
    high: float
    # "s": a duration, in seconds; "B": a whole number, or a size; else a whole number.
    unit: str = ""
    is_optional: bool = False

    def __call__(self, key: str, value: Any) -> float | int | None:
        """Return the number."""
        if value is None and self.is_optional:
            return None
        if self.unit == "s":
            value = duration(key, value).total_seconds()
        elif self.unit == "B" and isinstance(value, str):
            value = converted(as_bytes)(key, value)
        if self.unit != "s" and type(value) is not int:
            raise SettingsError(f"{key} must be a whole number, not {value!r}.")
        if not self.low <= value <= self.high:
            raise SettingsError(
                f"{key} is {value!r}; it must be from {self.low} to {self.high:,}."
            )
        number: float | int = value
        return number


def keys(kind: Any, what: str = "a dict") -> Reader:
    """Return a reader of a dict whose keys are the fields of a dataclass of rows."""

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{key} must be {what}, not {value!r}.")
        known = rows(kind)
        for name in value:
            if name not in known:
                raise SettingsError(
                    f"{key} has the unknown key {name!r}."
                    f"{did_you_mean(str(name), list(known))}"
                )
        return kind(
            **{
                item.name: item.metadata["read"](f"{key}[{name!r}]", value.get(name))
                for name, item in known.items()
                if name in value or item.default is item.default_factory is MISSING
            }
        )

    return read


def many(what: str, is_right: Callable[[Any], bool]) -> Reader:
    """Return a reader of a list, as a tuple."""
    return value(
        f"a list of {what}",
        lambda given: isinstance(given, (list, tuple)) and all(map(is_right, given)),
        tuple,
    )


def is_text(value: Any) -> bool:
    """Whether it is text, and not empty."""
    return isinstance(value, str) and bool(value)


boolean = value("True or False", lambda given: isinstance(given, bool))
alias = value("the name of a database", lambda given: isinstance(given, str))
text = value("text", is_text)
duration = converted(as_timedelta)
name = value(
    f"a name of 1 to {TASK_NAME_MAX} characters",
    lambda given: (
        is_text(given) and "\x00" not in given and len(given) <= TASK_NAME_MAX
    ),
)


def rate(key: str, value: Any) -> float:
    """Return the seconds from one to the next, of a rate such as "100/m"."""
    from django_pgqueue.options.lanes import Rate

    with raised_as(SettingsError, f"{key}: "):
        return Rate(value).spacing


def rate_text(key: str, value: Any) -> Any:
    """Return a rate as it is written."""
    rate(key, value)
    return value


def queue_name(key: str, value: Any) -> Any:
    """Return the name of a queue."""
    if not isinstance(value, str) or not QUEUE_NAME.fullmatch(value):
        raise SettingsError(
            f"{key} has {value!r}, which is no queue name: 1 to 63 letters, digits, "
            f"'_', '.' and '-', the first no '.' or '-'."
        )
    return value


def patterns(key: str, value: Any) -> Any:
    """Return regular expressions."""
    found = many("patterns", is_text)(key, value)
    for pattern in found:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"{key} has {pattern!r}, which is no regular expression: {error}."
            ) from None
    return found


def is_target(value: Any) -> bool:
    """Whether it is a path from the root, or a URI."""
    return isinstance(value, str) and EXPORT_TARGET.match(value) is not None


def target(key: str, value: Any) -> str:
    """Return a place that days are exported to, as the rows of days have it."""
    if not is_target(value):
        raise SettingsError(
            f"{key} must be a path that begins with / or a URI such as "
            f"'s3a://bucket/jobs', not {value!r}."
        )
    if len(value) > EXPORT_CHARACTERS_MAX:
        raise SettingsError(
            f"{key} has {len(value):,} characters; the limit is "
            f"{EXPORT_CHARACTERS_MAX:,}."
        )
    return str(value).rstrip("/")


def spark_config(key: str, value: Any) -> dict[str, str]:
    """Return Spark's own configuration, as text."""
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str)
        and name.startswith("spark.")
        and isinstance(wanted, (str, int, float))
        for name, wanted in value.items()
    ):
        raise SettingsError(
            f"{key} must be a dict of Spark's own configuration, such as "
            f"{{'spark.sql.shuffle.partitions': '8'}}, not {value!r}."
        )
    # Spark reads true and false, not Python's True and False.
    return {
        name: str(wanted).lower() if isinstance(wanted, bool) else str(wanted)
        for name, wanted in value.items()
    }


def trace(key: str, value: Any) -> Any:
    """Return whether to trace; that needs an extra."""
    if boolean(key, value):
        from django_pgqueue.extras import extra

        try:
            extra("opentelemetry.trace")
        except MissingExtra as error:
            raise SettingsError(f"{key} is True. {error}") from None
    return value


def options(key: str, value: Any, *, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return options of tasks."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} must be a dict of options, not {value!r}.")
    # Not at every start of Django: most of it is for those who declare tasks.
    from django_pgqueue.options.table import OF_SETTINGS

    for option, said in value.items():
        if option not in OF_SETTINGS:
            known = [*OF_SETTINGS, *besides]
            raise SettingsError(
                f"{key} has the unknown option {option!r}; known are "
                f"{', '.join(known)}.{did_you_mean(str(option), known)}"
            )
        with raised_as(SettingsError, f"{key}: "):
            OF_SETTINGS[option].check(said)
    return dict(value)


# Rows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished rows and messages are kept. None keeps them for ever."""

    archive: timedelta | None = row(optional(duration), timedelta(days=7))
    dead_letters: timedelta | None = row(optional(duration), timedelta(days=90))
    # Messages of topics that do not say retain=.
    log: timedelta | None = row(optional(duration), timedelta(days=7))
    # For how long after that messages wait for the pipeline job ingest, of topics that
    # do not say wait_for_ingest=; None: not at all.
    wait_for_ingest: timedelta | None = row(optional(duration), None)
    # How many bytes the log of all topics may have, whatever they say; None: any.
    log_bytes: int | None = row(
        optional(
            converted(partial(as_bytes_within, least=LOG_BYTES_MIN, most=LOG_BYTES_MAX))
        ),
        None,
    )
    # What inbox() has noted: what comes again later is taken for new.
    inbox: timedelta | None = row(optional(duration), timedelta(days=30))


@dataclass(frozen=True, slots=True)
class Spark:
    """Where the data pipeline runs."""

    # local[N], spark://…, yarn, k8s://… or sc://…; None: $SPARK_MASTER, else local[2].
    master: str | None = row(optional(text), None)
    # Of the driver, as Spark writes it.
    memory: str = row(text, "1g")
    # Spark's own configuration.
    config: Mapping[str, str] = row(spark_config, dict)
    # Paths and URIs below which runs that the queue is asked for may write.
    destinations: tuple[str, ...] = row(
        many(
            "paths that begin with / or URIs such as 's3a://bucket/log'",
            is_target,
        ),
        (),
    )


@dataclass(frozen=True, slots=True)
class Export:
    """Where the pipeline job `export` puts the days of the archive."""

    # A path from the root, or a URI.
    path: str = row(target)


@dataclass(frozen=True, slots=True)
class Email:
    """Where mails wait that the e-mail backend stores, and how they leave."""

    # An alias of MAILERS; without MAILERS the import path of a backend, None: Django's
    # for SMTP.
    through: str | None = row(
        optional(value("an alias of MAILERS or the import path of a backend", is_text)),
        None,
    )
    queue: str = row(queue_name, QUEUE_DEFAULT)


@dataclass(frozen=True, slots=True)
class Reprocess:
    """Which dead letters the leader redrives by itself, each of them once."""

    # The class of the last error, with or without its module; None: any.
    error: str | None = row(name, None)
    # Why the job gave up; None: for any reason.
    reason: str | None = row(choice(DEAD_REASONS), None)
    # None: of any task.
    task: str | None = row(name, None)
    # How long after it gave up.
    after: timedelta = row(duration, timedelta(minutes=10))
    # What gave up longer ago stays.
    max_age: timedelta = row(duration, timedelta(days=1))
    # At most so many in a time, as in QUEUES.
    rate: str = row(rate_text, "60/m")

    @property
    def spacing(self) -> float:
        """Seconds from one to the next."""
        return rate("'rate'", self.rate)


def reprocess(key: str, value: Any) -> tuple[Reprocess, ...]:
    """Return rules."""
    if not isinstance(value, (list, tuple)):
        raise SettingsError(f"{key} must be a list of dicts, not {value!r}.")
    if len(value) > REPROCESS_RULES_MAX:
        raise SettingsError(
            f"{key} has {len(value)} rules; the limit is {REPROCESS_RULES_MAX}."
        )
    rules = []
    for place, given in enumerate(value):
        rule = keys(Reprocess)(f"{key}[{place}]", given)
        if rule.error is None and rule.reason is None:
            raise SettingsError(
                f"{key}[{place}] says neither 'error' nor 'reason'; without one, what "
                f"no retry can mend would run again, too."
            )
        if rule.after >= rule.max_age:
            raise SettingsError(
                f"{key}[{place}] has 'after' {rule.after}, and 'max_age' "
                f"{rule.max_age}: nothing is ever both as old and as young. Raise "
                f"'max_age', or lower 'after'."
            )
        rules.append(rule)
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class DepthLimit:
    """How many jobs a queue may hold, and what a producer meets when it is full."""

    # Jobs that are not settled yet: waiting, running, retrying, scheduled, parked.
    depth_max: int = row(Number(1, DEPTH_MAX_MAX))
    on_full: OnFull = row(choice(ON_FULL), ON_FULL[0])
    # Of "block": seconds until it refuses after all.
    block_seconds: float = row(Number(0, 3_600, "s"), 30.0)


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """How many jobs of a queue may be claimed, on all workers together."""

    # Jobs at a time; None: any number.
    concurrency: int | None = row(Number(1, LANE_CAPACITY_MAX), None)
    # Seconds from one to the next; None: as they come. QUEUES has a rate for it.
    spacing: float | None = row(rate, None, key="rate")
    # How many may be ahead of that.
    burst: int = row(Number(1, LANE_BURST_MAX), 1)


# What QUEUES says of a queue itself, and not of its tasks' jobs.
OF_DEPTH = tuple(rows(DepthLimit))
OF_CLAIMS = tuple(rows(QueueLimit))
OF_QUEUE = (*OF_DEPTH, *OF_CLAIMS, FAIR_BY)


def queues(key: str, value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the options of queues, by their names."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} must be a dict by queue name, not {value!r}.")
    return {
        queue_name(key, name): queue_options(f"{key}[{name!r}]", options)
        for name, options in value.items()
    }


def queue_options(key: str, value: Any) -> Mapping[str, Any]:
    """Return the options of a queue, and its limits by the names above."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} must be a dict of options, not {value!r}.")
    found = options(
        key,
        {name: said for name, said in value.items() if name not in OF_QUEUE},
        besides=OF_QUEUE,
    )
    depth = {name: value[name] for name in OF_DEPTH if name in value}
    if depth:
        if "depth_max" not in depth:
            first = next(iter(depth))
            raise SettingsError(
                f"{key} has {first!r}, which needs 'depth_max' beside it."
            )
        found[DEPTH_LIMIT] = keys(DepthLimit)(key, depth)
        if "block_seconds" in depth and found[DEPTH_LIMIT].on_full != "block":
            raise SettingsError(
                f"{key} has 'block_seconds', which needs 'on_full': 'block' beside it."
            )
    claims = {name: value[name] for name in OF_CLAIMS if name in value}
    if claims:
        if "burst" in claims and "rate" not in claims:
            raise SettingsError(f"{key} has 'burst', which needs 'rate' beside it.")
        found[QUEUE_LIMIT] = keys(QueueLimit)(key, claims)
    if FAIR_BY in value:
        found[FAIR_BY] = fair_by(f"{key}[{FAIR_BY!r}]", value[FAIR_BY])
    return found


def fair_by(key: str, value: Any) -> tuple[str, ...]:
    """Return the parameters by whose values jobs start in turn."""
    from django_pgqueue.options.lanes import check_fair_by

    if callable(value) or value is False:
        raise SettingsError(
            f"{key} is {value!r}; it must be the name of a parameter, or a list of "
            f"them: tasks of the queue that take it have turns by its values."
        )
    with raised_as(SettingsError, f"{key}: "):
        lane = check_fair_by(value)
    return lane.by if lane else ()


# jsonb's own limit for one string.
JSON_BYTES_MAX = 268_435_455


@dataclass(frozen=True, slots=True)
class Settings:
    """The PGQUEUE setting, validated; one field per key, in lower case."""

    # Alias of the database that holds the queue tables.
    database: str = row(alias, "default")
    # False: workers poll only (behind a pooler that cannot LISTEN).
    listen: bool = row(boolean, True)
    # Alias with a direct connection for LISTEN; None: the same as database.
    listen_database: str | None = row(optional(alias), None)
    # Seconds between two looks of an idle worker; the truth when NOTIFY is lost.
    poll_interval_seconds: float = row(Number(0.05, 3_600, "s"), 5.0)
    # Seconds that a claimed job stays a worker's own without a heartbeat.
    lease_seconds: float = row(Number(1, 86_400, "s"), 60.0)
    # Seconds that a job waits, due, before it may no longer be passed over for ever by
    # jobs that go first; None: it may.
    ageing_seconds: float | None = row(Number(0, 86_400, "s", is_optional=True), 60.0)
    # Seconds that running jobs get to finish when a worker stops.
    grace_seconds: float = row(Number(0, 86_400, "s"), 30.0)
    # Bytes of args and kwargs together, as UTF-8 JSON.
    payload_bytes_max: int = row(Number(128, JSON_BYTES_MAX), PAYLOAD_BYTES_DEFAULT)
    # Bytes of a result as UTF-8 JSON; a larger one is not stored.
    result_bytes_max: int = row(Number(0, JSON_BYTES_MAX), 65_536)
    # Seconds after which a stored result is dropped; the archived row stays.
    result_ttl_seconds: float = row(Number(0, SECONDS_MAX, "s"), 86_400.0)
    retention: Retention = row(keys(Retention), Retention())
    # Options by queue name, e.g. {"mail": {"priority": 10}}.
    queues: Mapping[str, Mapping[str, Any]] = row(queues, dict)
    # Options for every task that does not say otherwise.
    defaults: Mapping[str, Any] = row(options, dict)
    # Seconds that a job of an undeclared task waits for a deploy before it is dead.
    unknown_task_grace_seconds: float = row(Number(0, SECONDS_MAX, "s"), 3_600.0)
    # Claims of one job that were no attempt (snoozes, crashes, returns) before it is
    # dead; a redrive counts anew.
    deliveries_max: int = row(Number(1, 1_000_000), 100)
    # Deliveries that ended without a settle before a job is dead.
    crashes_max: int = row(Number(1, 1_000), 3)
    # Jobs that a process runs before another takes its place; None: no limit.
    recycle_jobs: int | None = row(Number(1, 1_000_000_000, is_optional=True), None)
    # Seconds after which it is replaced; None: no limit.
    recycle_age_seconds: float | None = row(
        Number(1, SECONDS_MAX, "s", is_optional=True), None
    )
    # Bytes of memory at which it is replaced, also "512MB"; None: no limit.
    recycle_memory_bytes: int | None = row(
        Number(1_048_576, 1_099_511_627_776, "B", is_optional=True), None
    )
    # Modules imported from every app at start, so that their tasks are declared.
    task_modules: tuple[str, ...] = row(
        many("module names", lambda given: isinstance(given, str)), ("tasks",)
    )
    # Keys whose values the admin, the commands and exports replace; regular
    # expressions, found anywhere in a key, whatever the case.
    redact: tuple[str, ...] = row(patterns, REDACT_DEFAULT)
    spark: Spark = row(keys(Spark), Spark())
    # Retention waits until a day is exported there; None: it waits for nothing.
    export: Export | None = row(optional(keys(Export, "a dict or None")), None)
    email: Email = row(keys(Email), Email())
    # Rules by which dead letters go back to their queues; of none, somebody decides.
    reprocess: tuple[Reprocess, ...] = row(reprocess, ())
    # "immediate": delay() runs the job at once, in the caller's transaction; for tests.
    mode: str = row(choice(MODES), MODES[0])
    # Whether enqueues, attempts and publishes are spans of OpenTelemetry.
    trace: bool = row(trace, False)
    # The path of the committed document of topics and tasks that code is compared with
    # by the system checks; None: with none.
    contract: str | None = row(
        optional(
            value(
                "a path from the root, such as BASE_DIR / 'asyncapi.json'",
                lambda given: (
                    isinstance(given, (str, PathLike)) and Path(given).is_absolute()
                ),
                lambda given: str(Path(given)),
            )
        ),
        None,
    )

    @property
    def destinations(self) -> tuple[str, ...]:
        """Where runs of the pipeline may write that the queue is asked for."""
        named = () if self.export is None else (self.export.path,)
        return named + self.spark.destinations

    @property
    def depths_max(self) -> dict[str, int]:
        """How many jobs queues may hold, of those that have a limit."""
        found = {name: self.depth_limit(name) for name in self.queues}
        return {name: limit.depth_max for name, limit in found.items() if limit}

    def fair_by(self, queue: str) -> tuple[str, ...]:
        """Return the parameters by whose values jobs of *queue* start in turn."""
        options = self.queues.get(queue)
        return () if options is None else options.get(FAIR_BY, ())

    def depth_limit(self, queue: str) -> DepthLimit | None:
        """Return how many jobs *queue* may hold; None: as many as there are."""
        options = self.queues.get(queue)
        return None if options is None else options.get(DEPTH_LIMIT)

    @property
    def queue_limits(self) -> dict[str, QueueLimit]:
        """How many jobs of queues may be claimed, of those that have a limit."""
        return {
            name: options[QUEUE_LIMIT]
            for name, options in self.queues.items()
            if QUEUE_LIMIT in options
        }


READERS: dict[str, Reader] = {
    name: item.metadata["read"] for name, item in rows(Settings).items()
}

# Smallest and largest value of each number, both allowed.
LIMITS = {
    name: (read.low, read.high)
    for name, read in READERS.items()
    if isinstance(read, Number)
}


def get_settings() -> Settings:
    """
    Return the validated PGQUEUE setting; kept until the setting changes.

    Raises:
        SettingsError: An unknown key, a wrong type, or a value out of its limits.
    """
    from django.conf import settings

    raw = getattr(settings, "PGQUEUE", {})
    # Compared by what it prints: somebody may change the dict itself.
    shown = repr(raw)
    found = _parsed.get(shown)
    if found is None:
        found = parse(raw)
        _parsed.clear()
        _parsed[shown] = found
    return found


_parsed: dict[str, Settings] = {}


def readable_settings() -> Settings:
    """
    Return the settings, with the default for every key that is wrong.

    For what must not fail because of a typing error: starting Django, so that its
    system checks can say what is wrong. Nothing else may go on with these.
    """
    from django.conf import settings

    return Settings(**_read(getattr(settings, "PGQUEUE", {}))[0])


def stores_mail() -> bool:
    """Whether EMAIL_BACKEND, or MAILERS, which Django 6.1 has, names our backend."""
    from django.conf import settings

    mailers = getattr(settings, "MAILERS", None) or {}
    mappings = [each for each in mailers.values() if isinstance(each, Mapping)]
    if any(mailer.get("BACKEND") == EMAIL_BACKEND for mailer in mappings):
        return True
    # To read the setting is deprecated where a project has not written it.
    is_set = settings.is_overridden("EMAIL_BACKEND")  # type: ignore[misc]
    return is_set and settings.EMAIL_BACKEND == EMAIL_BACKEND


def parse(raw: object) -> Settings:
    """
    Validate the value of PGQUEUE.

    Raises:
        SettingsError: What is wrong, the limit, and the nearest known key.
    """
    values, errors = _read(raw)
    if errors:
        raise errors[0]
    return Settings(**values)


def problems(raw: object) -> list[SettingsError]:
    """Return what is wrong with the value of PGQUEUE, an error for each key."""
    return _read(raw)[1]


def _read(raw: object) -> tuple[dict[str, Any], list[SettingsError]]:
    """Return the fields of Settings that can be read, and what cannot."""
    if not isinstance(raw, Mapping):
        problem = f"PGQUEUE must be a dict, not {type(raw).__name__}."
        return {}, [SettingsError(problem)]
    known = {name.upper(): name for name in READERS}
    values: dict[str, Any] = {}
    errors: list[SettingsError] = []
    for key, value in raw.items():
        try:
            if key not in known:
                raise SettingsError(
                    f"PGQUEUE has the unknown key {key!r}."
                    f"{did_you_mean(str(key), list(known))}"
                )
            values[known[key]] = READERS[known[key]](f"PGQUEUE[{key!r}]", value)
        except SettingsError as error:
            errors.append(error)
    return values, errors

"""
Every setting of the package, in one frozen dataclass.

A project writes ``PGQUEUE = {"LEASE_SECONDS": 120}`` in its settings. Each key has a
unit in its name or takes a duration: a number of seconds, a ``timedelta``, or text
such as ``"90s"``, ``"5m"``, ``"24h"``, ``"7d"``. Unknown keys are an error with a
suggestion, because a typo that is silently ignored is found in production.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from django_pgqueue.bounds import (
    DEAD_REASONS,
    DEPTH_MAX_MAX,
    EXPORT_CHARACTERS_MAX,
    EXPORT_FORMATS,
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
    DeclarationError,
    InvalidOption,
    MissingExtra,
    SettingsError,
    did_you_mean,
)
from django_pgqueue.options.durations import (
    DURATION_MAX,
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


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished rows and messages are kept. None keeps them for ever."""

    archive: timedelta | None = timedelta(days=7)
    dead_letters: timedelta | None = timedelta(days=90)
    # Messages of topics that do not say retain=.
    log: timedelta | None = timedelta(days=7)
    # For how long after that messages wait for the pipeline job ingest, of topics that
    # do not say wait_for_ingest=; None: not at all.
    wait_for_ingest: timedelta | None = None
    # How many bytes the log of all topics may have, whatever they say; None: any.
    log_bytes: int | None = None
    # What inbox() has noted: what comes again later is taken for new.
    inbox: timedelta | None = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Spark:
    """Where the data pipeline runs."""

    # local[N], spark://…, yarn, k8s://… or sc://…; None: $SPARK_MASTER, else local[2].
    master: str | None = None
    # Of the driver, as Spark writes it.
    memory: str = "1g"
    # Spark's own configuration.
    config: Mapping[str, str] = field(default_factory=dict)
    # Paths and URIs below which runs that the queue is asked for may write.
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Export:
    """Where the pipeline job `export` puts the days of the archive."""

    # A path from the root, or a URI.
    path: str
    # "parquet" or "delta".
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class Email:
    """Where mails wait that the e-mail backend stores, and how they leave."""

    # An alias of MAILERS; without MAILERS the import path of a backend, None: Django's
    # for SMTP.
    through: str | None = None
    queue: str = QUEUE_DEFAULT


@dataclass(frozen=True, slots=True)
class Reprocess:
    """Which dead letters the leader redrives by itself, each of them once."""

    # The class of the last error, with or without its module; None: any.
    error: str | None = None
    # Why the job gave up; None: for any reason.
    reason: str | None = None
    # None: of any task.
    task: str | None = None
    # How long after it gave up.
    after: timedelta = timedelta(minutes=10)
    # What gave up longer ago stays.
    max_age: timedelta = timedelta(days=1)
    # At most so many in a time, as in QUEUES.
    rate: str = "60/m"

    @property
    def spacing(self) -> float:
        """Seconds from one to the next."""
        return _spacing("'rate'", self.rate)


@dataclass(frozen=True, slots=True)
class DepthLimit:
    """How many jobs a queue may hold, and what a producer meets when it is full."""

    # Jobs that are not settled yet: waiting, running, retrying, scheduled, parked.
    depth_max: int
    on_full: OnFull = "refuse"
    # Of "block": seconds until it refuses after all.
    block_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """How many jobs of a queue may be claimed, on all workers together."""

    # Jobs at a time; None: any number.
    concurrency: int | None = None
    # Seconds from one to the next; None: as they come.
    spacing: float | None = None
    # How many may be ahead of that.
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """The PGQUEUE setting, validated; one field per key, in lower case."""

    # Alias of the database that holds the queue tables.
    database: str = "default"
    # False: workers poll only (behind a pooler that cannot LISTEN).
    listen: bool = True
    # Alias with a direct connection for LISTEN; None: the same as database.
    listen_database: str | None = None
    # Seconds between two looks of an idle worker; the truth when NOTIFY is lost.
    poll_interval_seconds: float = 5.0
    # Seconds that a claimed job stays a worker's own without a heartbeat.
    lease_seconds: float = 60.0
    # Seconds that a job waits, due, before it may no longer be passed over for ever by
    # jobs that go first; None: it may.
    ageing_seconds: float | None = 60.0
    # Seconds that running jobs get to finish when a worker stops.
    grace_seconds: float = 30.0
    # Bytes of args and kwargs together, as UTF-8 JSON.
    payload_bytes_max: int = PAYLOAD_BYTES_DEFAULT
    # Bytes of a result as UTF-8 JSON; a larger one is not stored.
    result_bytes_max: int = 65_536
    # Seconds after which a stored result is dropped; the archived row stays.
    result_ttl_seconds: float = 86_400.0
    retention: Retention = field(default_factory=Retention)
    # Options by queue name, e.g. {"mail": {"priority": 10}}.
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Options for every task that does not say otherwise.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # Seconds that a job of an undeclared task waits for a deploy before it is dead.
    unknown_task_grace_seconds: float = 3_600.0
    # Claims of one job that were no attempt (snoozes, crashes, returns) before it is
    # dead; a redrive counts anew.
    deliveries_max: int = 100
    # Deliveries that ended without a settle before a job is dead.
    crashes_max: int = 3
    # Jobs that a process runs before another takes its place; None: no limit.
    recycle_jobs: int | None = None
    # Seconds after which it is replaced; None: no limit.
    recycle_age_seconds: float | None = None
    # Bytes of memory at which it is replaced, also "512MB"; None: no limit.
    recycle_memory_bytes: int | None = None
    # Modules imported from every app at start, so that their tasks are declared.
    task_modules: tuple[str, ...] = ("tasks",)
    # Keys whose values the admin, the commands and exports replace; regular
    # expressions, found anywhere in a key, whatever the case.
    redact: tuple[str, ...] = REDACT_DEFAULT
    spark: Spark = field(default_factory=Spark)
    # Retention waits until a day is exported there; None: it waits for nothing.
    export: Export | None = None
    email: Email = field(default_factory=Email)
    # Rules by which dead letters go back to their queues; of none, somebody decides.
    reprocess: tuple[Reprocess, ...] = ()
    # "immediate": delay() runs the job at once, in the caller's transaction; for tests.
    mode: str = "normal"
    # Whether enqueues, attempts and publishes are spans of OpenTelemetry.
    trace: bool = False
    # The path of the committed document of topics and tasks that code is compared with
    # by the system checks; None: with none.
    contract: str | None = None

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


# Smallest and largest value of each number, both allowed.
LIMITS: dict[str, tuple[float, float]] = {
    "poll_interval_seconds": (0.05, 3_600),
    "lease_seconds": (1, 86_400),
    "ageing_seconds": (0, 86_400),
    "grace_seconds": (0, 86_400),
    "payload_bytes_max": (128, 268_435_455),  # jsonb's own limit for one string.
    "result_bytes_max": (0, 268_435_455),
    "result_ttl_seconds": (0, DURATION_MAX.total_seconds()),
    "unknown_task_grace_seconds": (0, DURATION_MAX.total_seconds()),
    "deliveries_max": (1, 1_000_000),
    "crashes_max": (1, 1_000),
    "recycle_jobs": (1, 1_000_000_000),
    "recycle_age_seconds": (1, DURATION_MAX.total_seconds()),
    "recycle_memory_bytes": (1_048_576, 1_099_511_627_776),
}

# Of the numbers in QUEUES.
QUEUE_LIMITS: dict[str, tuple[float, float]] = {
    "depth_max": (1, DEPTH_MAX_MAX),
    "block_seconds": (0, 3_600),
    "concurrency": (1, LANE_CAPACITY_MAX),
    "burst": (1, LANE_BURST_MAX),
}

# What QUEUES says of a queue itself, and not of its tasks' jobs; and where it is kept
# among the options of a queue.
OF_DEPTH = tuple(item.name for item in fields(DepthLimit))
DEPTH_LIMIT = "depth_limit"
FAIR_BY = "fair_by"
OF_CLAIMS = ("concurrency", "rate", "burst")
QUEUE_LIMIT = "queue_limit"
OF_QUEUE = (*OF_DEPTH, *OF_CLAIMS, FAIR_BY)

# Numbers that may be None as well.
OPTIONAL = frozenset(
    {"ageing_seconds", "recycle_jobs", "recycle_age_seconds", "recycle_memory_bytes"}
)


def get_settings() -> Settings:
    """
    Return the validated PGQUEUE setting; cached until the setting changes.

    Raises:
        SettingsError: An unknown key, a wrong type, or a value out of its limits.
    """
    from django.conf import settings

    return _parse_cached(_Frozen(getattr(settings, "PGQUEUE", {})))


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


class _Frozen:
    """A setting as a cache key: compared by what it prints."""

    __slots__ = ("text", "value")

    def __init__(self, value: object) -> None:
        self.value = value
        self.text = repr(value)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and self.text == other.text


@lru_cache(maxsize=8)
def _parse_cached(frozen: _Frozen) -> Settings:
    return parse(frozen.value)


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
    known = {item.name.upper(): item.name for item in fields(Settings)}
    values: dict[str, Any] = {}
    errors: list[SettingsError] = []
    for key, value in raw.items():
        try:
            if key not in known:
                raise SettingsError(
                    f"PGQUEUE has the unknown key {key!r}."
                    f"{did_you_mean(str(key), list(known))}"
                )
            values[known[key]] = _value(known[key], value)
        except SettingsError as error:
            errors.append(error)
    return values, errors


def _value(name: str, value: Any) -> Any:
    key = f"PGQUEUE[{name.upper()!r}]"
    if name in OPTIONAL and value is None:
        return None
    if name in LIMITS:
        return read_number(name, key, value)
    return READERS[name](key, value)


def _task_modules(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(item, str) for item in value
    ):
        raise SettingsError(f"{key} must be a list of module names, not {value!r}.")
    return tuple(value)


def _listen(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{key} must be True or False, not {value!r}.")
    return value


def _mode(key: str, value: Any) -> str:
    if value not in MODES:
        raise SettingsError(f"{key} is {value!r}; it must be {_either(MODES)}.")
    return str(value)


def _trace(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{key} must be True or False, not {value!r}.")
    if value:
        from django_pgqueue.extras import extra

        try:
            extra("opentelemetry.trace")
        except MissingExtra as error:
            raise SettingsError(f"{key} is True. {error}") from None
    return value


def _contract(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, PathLike)) or not Path(value).is_absolute():
        raise SettingsError(
            f"{key} must be a path from the root, such as BASE_DIR / 'asyncapi.json', "
            f"not {value!r}."
        )
    return str(Path(value))


def _alias(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"{key} must be the name of a database, not {value!r}.")
    return value


def _alias_or_none(key: str, value: Any) -> str | None:
    return None if value is None else _alias(key, value)


def read_number(name: str, key: str, value: Any) -> float | int:
    """
    Return the number that *value* is for the setting *name*.

    Args:
        name: Of the setting, in lower case.
        key: What to call it in the error.
        value: As it is written.

    Raises:
        SettingsError: It is none, or out of its limits.
    """
    whole = not name.endswith("_seconds")
    try:
        if not whole:
            value = as_timedelta(value, name=key).total_seconds()
        elif isinstance(value, str) and name == "recycle_memory_bytes":
            value = as_bytes(value, name=key)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if whole and (isinstance(value, bool) or not isinstance(value, int)):
        raise SettingsError(f"{key} must be a whole number, not {value!r}.")
    low, high = LIMITS.get(name) or QUEUE_LIMITS[name]
    if not low <= value <= high:
        raise SettingsError(f"{key} is {value!r}; it must be from {low} to {high:,}.")
    return int(value) if whole else float(value)


def _patterns(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(item, str) and item for item in value
    ):
        raise SettingsError(f"{key} must be a list of patterns, not {value!r}.")
    for pattern in value:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"{key} has {pattern!r}, which is no regular expression: {error}."
            ) from None
    return tuple(value)


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(repr(choice) for choice in choices)


def _check_names(key: str, value: Any, kind: Any, what: str = "a dict") -> None:
    """Check that *value* is a dict whose keys are fields of the dataclass *kind*."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} must be {what}, not {value!r}.")
    known = [item.name for item in fields(kind)]
    for name in value:
        if name not in known:
            raise SettingsError(
                f"{key} has the unknown key {name!r}.{did_you_mean(str(name), known)}"
            )


def _retention(key: str, value: Any) -> Retention:
    _check_names(key, value, Retention)
    kept: dict[str, Any] = {}
    for name, keep in value.items():
        read = _log_bytes if name == "log_bytes" else _duration
        kept[name] = None if keep is None else read(f"{key}[{name!r}]", keep)
    return Retention(**kept)


def _log_bytes(key: str, value: Any) -> int:
    try:
        return as_bytes_within(value, name=key, least=LOG_BYTES_MIN, most=LOG_BYTES_MAX)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _duration(key: str, value: Any) -> timedelta:
    try:
        return as_timedelta(value, name=key)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _spark(key: str, value: Any) -> Spark:
    _check_names(key, value, Spark)
    kept: dict[str, Any] = {}
    for name, wanted in value.items():
        label = f"{key}[{name!r}]"
        if name == "config":
            kept[name] = _spark_config(label, wanted)
        elif name == "destinations":
            kept[name] = _destinations(label, wanted)
        elif name == "master" and wanted is None:
            kept[name] = None
        elif isinstance(wanted, str) and wanted:
            kept[name] = wanted
        else:
            raise SettingsError(f"{label} must be text, not {wanted!r}.")
    return Spark(**kept)


def _export(key: str, value: Any) -> Export | None:
    if value is None:
        return None
    _check_names(key, value, Export, "a dict or None")
    path = value.get("path")
    if not isinstance(path, str) or not EXPORT_TARGET.match(path):
        raise SettingsError(
            f"{key}['path'] must be a path that begins with / or a URI such as "
            f"'s3a://bucket/jobs', not {path!r}."
        )
    if len(path) > EXPORT_CHARACTERS_MAX:
        raise SettingsError(
            f"{key}['path'] has {len(path):,} characters; the limit is "
            f"{EXPORT_CHARACTERS_MAX:,}."
        )
    form = value.get("format", EXPORT_FORMATS[0])
    if form not in EXPORT_FORMATS:
        raise SettingsError(
            f"{key}['format'] is {form!r}; it must be {_either(EXPORT_FORMATS)}."
        )
    # As manifests have it.
    return Export(path.rstrip("/"), form)


def _email(key: str, value: Any) -> Email:
    _check_names(key, value, Email)
    kept: dict[str, Any] = {}
    for name, wanted in value.items():
        label = f"{key}[{name!r}]"
        if name == "queue":
            kept[name] = _queue_name(label, wanted)
        elif wanted is None or (isinstance(wanted, str) and wanted):
            kept[name] = wanted
        else:
            raise SettingsError(
                f"{label} must be an alias of MAILERS or the import path of a backend, "
                f"not {wanted!r}."
            )
    return Email(**kept)


def _reprocess(key: str, value: Any) -> tuple[Reprocess, ...]:
    if not isinstance(value, (list, tuple)):
        raise SettingsError(f"{key} must be a list of dicts, not {value!r}.")
    if len(value) > REPROCESS_RULES_MAX:
        raise SettingsError(
            f"{key} has {len(value)} rules; the limit is {REPROCESS_RULES_MAX}."
        )
    return tuple(
        _reprocess_rule(f"{key}[{place}]", rule) for place, rule in enumerate(value)
    )


def _reprocess_rule(key: str, value: Any) -> Reprocess:
    _check_names(key, value, Reprocess)
    if "error" not in value and "reason" not in value:
        raise SettingsError(
            f"{key} says neither 'error' nor 'reason'; without one, what no retry can "
            f"mend would run again, too."
        )
    kept: dict[str, Any] = {}
    for name, wanted in value.items():
        label = f"{key}[{name!r}]"
        if name in ("after", "max_age"):
            kept[name] = _duration(label, wanted)
        elif name == "rate":
            _spacing(label, wanted)
            kept[name] = wanted
        elif name == "reason":
            if wanted not in DEAD_REASONS:
                raise SettingsError(
                    f"{label} is {wanted!r}; it must be {_either(DEAD_REASONS)}."
                )
            kept[name] = wanted
        else:
            kept[name] = _name(label, wanted)
    rule = Reprocess(**kept)
    if rule.after >= rule.max_age:
        raise SettingsError(
            f"{key} has 'after' {rule.after}, and 'max_age' {rule.max_age}: nothing is "
            f"ever both as old and as young. Raise 'max_age', or lower 'after'."
        )
    return rule


def _name(key: str, value: Any) -> str:
    is_text = isinstance(value, str) and "\x00" not in value
    if not is_text or not 1 <= len(value) <= TASK_NAME_MAX:
        raise SettingsError(
            f"{key} must be a name of 1 to {TASK_NAME_MAX} characters, not {value!r}."
        )
    return str(value)


def _queue_name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not QUEUE_NAME.fullmatch(value):
        raise SettingsError(
            f"{key} has {value!r}, which is no queue name: 1 to 63 letters, digits, "
            f"'_', '.' and '-', the first no '.' or '-'."
        )
    return value


def _destinations(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(path, str) and EXPORT_TARGET.match(path) for path in value
    ):
        raise SettingsError(
            f"{key} must be a list of paths that begin with / or URIs such as "
            f"'s3a://bucket/log', not {value!r}."
        )
    return tuple(value)


def _spark_config(key: str, value: Any) -> Mapping[str, str]:
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


def _queues(key: str, value: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} must be a dict by queue name, not {value!r}.")
    return {
        _queue_name(key, name): _queue(f"{key}[{name!r}]", options)
        for name, options in value.items()
    }


def _queue(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key} must be a dict of options, not {value!r}.")
    others = {name: said for name, said in value.items() if name not in OF_QUEUE}
    options = _options(key, others, besides=OF_QUEUE)
    own: dict[str, Any] = {}
    if any(name in value for name in OF_DEPTH):
        own[DEPTH_LIMIT] = _depth_limit(key, value)
    if any(name in value for name in OF_CLAIMS):
        own[QUEUE_LIMIT] = _queue_limit(key, value)
    if FAIR_BY in value:
        own[FAIR_BY] = _fair_by(f"{key}[{FAIR_BY!r}]", value[FAIR_BY])
    return {**options, **own}


def _fair_by(key: str, value: Any) -> tuple[str, ...]:
    from django_pgqueue.options.lanes import check_fair_by

    if callable(value) or value is False:
        raise SettingsError(
            f"{key} is {value!r}; it must be the name of a parameter, or a list of "
            f"them: tasks of the queue that take it have turns by its values."
        )
    try:
        lane = check_fair_by(value)
    except InvalidOption as error:
        raise SettingsError(f"{key}: {error}") from None
    return lane.by if lane else ()


def _depth_limit(key: str, value: Mapping[str, Any]) -> DepthLimit:
    kept = {
        name: read_number(name, f"{key}[{name!r}]", value[name])
        for name in ("depth_max", "block_seconds")
        if name in value
    }
    on_full = value.get("on_full", ON_FULL[0])
    if on_full not in ON_FULL:
        raise SettingsError(
            f"{key}['on_full'] is {on_full!r}; it must be {_either(ON_FULL)}."
        )
    if "depth_max" not in kept:
        (first, *_) = (name for name in OF_DEPTH if name in value)
        raise SettingsError(f"{key} has {first!r}, which needs 'depth_max' beside it.")
    if "block_seconds" in kept and on_full != "block":
        raise SettingsError(
            f"{key} has 'block_seconds', which needs 'on_full': 'block' beside it."
        )
    return DepthLimit(int(kept.pop("depth_max")), on_full, **kept)


def _queue_limit(key: str, value: Mapping[str, Any]) -> QueueLimit:
    kept = {
        name: int(read_number(name, f"{key}[{name!r}]", value[name]))
        for name in ("concurrency", "burst")
        if name in value
    }
    if "rate" not in value:
        if "burst" in value:
            raise SettingsError(f"{key} has 'burst', which needs 'rate' beside it.")
        return QueueLimit(**kept)
    return QueueLimit(spacing=_spacing(f"{key}['rate']", value["rate"]), **kept)


def _spacing(key: str, value: Any) -> float:
    """Return the seconds from one to the next, of a rate such as "100/m"."""
    from django_pgqueue.options.lanes import Rate

    try:
        return Rate(value).spacing
    except DeclarationError as error:
        raise SettingsError(f"{key}: {error}") from None


def _options(
    key: str, value: Any, *, besides: tuple[str, ...] = ()
) -> Mapping[str, Any]:
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
        try:
            OF_SETTINGS[option].check(said)
        except InvalidOption as error:
            raise SettingsError(f"{key}: {error}") from None
    return dict(value)


READERS: dict[str, Callable[[str, Any], Any]] = {
    "database": _alias,
    "listen": _listen,
    "listen_database": _alias_or_none,
    "retention": _retention,
    "queues": _queues,
    "defaults": _options,
    "task_modules": _task_modules,
    "redact": _patterns,
    "spark": _spark,
    "export": _export,
    "email": _email,
    "reprocess": _reprocess,
    "mode": _mode,
    "trace": _trace,
    "contract": _contract,
}

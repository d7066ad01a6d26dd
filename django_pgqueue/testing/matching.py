"""
Matching: is this the job that a test expects, and if not, what is different?

Arguments are compared as they travel: what the test expects is encoded as delay() would
encode it. So a tuple equals the list that arrives, and a datetime itself. What cannot
travel, such as unittest.mock.ANY, is compared with ==.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_pgqueue.exceptions import UndecodablePayload, did_you_mean, raised_as
from django_pgqueue.models import Job
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.payload import TAG
from django_pgqueue.tasks.raised import Reject
from django_pgqueue.tasks.task import Task

COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": (">", operator.gt),
    "gte": (">=", operator.ge),
    "lt": ("<", operator.lt),
    "lte": ("<=", operator.le),
}

# Options by the column that holds them; those of the second kind can be compared.
PLAIN = {"queue": "queue", "headers": "headers", "tags": "tags"}
COMPARED = {
    "priority": "priority",
    "max_attempts": "max_attempts",
    "run_after": "run_after",
    "expires": "expires_at",
}
OPTIONS = [
    *PLAIN,
    *COMPARED,
    *(f"{name}__{suffix}" for name in COMPARED for suffix in COMPARISONS),
]
TIMES = ("run_after", "expires")

# A duration counts from the enqueue, whose moment the server takes microseconds before
# or after it adds the duration.
TOLERANCE = timedelta(seconds=1)

# Characters of a value that a message shows.
VALUE_CHARACTERS = 100

MISSING = object()


class Parameters:
    """A task's parameters, without the context: where each argument belongs."""

    def __init__(self, task: Task[Any, Any]) -> None:
        self._signature = task.call_signature
        found = list(self._signature.parameters.values())
        self.names = {
            p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        self._more = next((p.name for p in found if p.kind is p.VAR_POSITIONAL), None)
        self._rest = next((p.name for p in found if p.kind is p.VAR_KEYWORD), None)
        self.takes_any = self._rest is not None

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter; raise TypeError when they do not fit."""
        return self._flat(self._signature.bind_partial(*args, **kwargs).arguments)

    def all(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """As given(), of a whole call, with defaults."""
        bound = self._signature.bind(*args, **kwargs)
        said = set(bound.arguments)
        bound.apply_defaults()
        return self._flat(
            {
                name: value if name in said else _plain(value)
                for name, value in bound.arguments.items()
            }
        )

    def _flat(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        flat = dict(arguments)
        if self._more is not None:
            more = enumerate(flat.pop(self._more, ()))
            flat.update({f"{self._more}[{place}]": value for place, value in more})
        if self._rest is not None:
            flat.update(flat.pop(self._rest, {}))
        return flat


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that a test expects of a job besides its arguments."""

    name: str  # As using() calls it.
    suffix: str  # Of COMPARISONS, or "".
    value: Any

    def __str__(self) -> str:
        sign = COMPARISONS[self.suffix][0] if self.suffix else "="
        return f"{self.name}{sign}{shown(self.value)}"

    def difference(self, job: Job) -> str | None:
        """Say what is different about *job*; None: it is as expected."""
        actual = self._actual(job)
        if self._is_met(job, actual):
            return None
        sign = f"{COMPARISONS[self.suffix][0]} " if self.suffix else ""
        told = _of_option(self.name, actual)
        if self._is_relative and actual is not None:
            seconds = round((actual - job.enqueued_at).total_seconds(), 2)
            told = f"{timedelta(seconds=seconds)} after the enqueue"
        return f"{self.name} is {told}, not {sign}{shown(self.value)}"

    @property
    def _is_relative(self) -> bool:
        """Whether a duration is expected, which counts from the enqueue."""
        is_moment = self.value is None or isinstance(self.value, datetime)
        return self.name in TIMES and not is_moment

    def _actual(self, job: Job) -> Any:
        if self.name == "tags":
            return job.headers.get("tags", [])
        return getattr(job, (PLAIN | COMPARED)[self.name])

    def _is_met(self, job: Job, actual: Any) -> bool:
        expected = self.value
        if self.name == "tags":
            wanted = [expected] if isinstance(expected, str) else expected
            return all(tag in actual for tag in wanted)
        if self.name == "headers":
            return all(actual.get(k, MISSING) == v for k, v in expected.items())
        if self.name in TIMES and expected is not None:
            return self._is_met_by_time(job, actual)
        if self.suffix:
            return bool(COMPARISONS[self.suffix][1](actual, expected))
        return bool(expected == actual)

    def _is_met_by_time(self, job: Job, actual: datetime | None) -> bool:
        if actual is None:
            return False
        expected, tolerance = self.value, timedelta(0)
        if self._is_relative:
            expected = job.enqueued_at + as_timedelta(expected, name=self.name)
            tolerance = TOLERANCE
        elif timezone.is_naive(expected) and timezone.is_aware(actual):
            expected = timezone.make_aware(expected)
        if not self.suffix:
            return bool(abs(actual - expected) <= tolerance)
        if self.suffix.startswith("g"):
            expected -= tolerance
        else:
            expected += tolerance
        return bool(COMPARISONS[self.suffix][1](actual, expected))


@dataclass(frozen=True, slots=True)
class Differences:
    """What is different about a job; false when nothing is."""

    arguments: list[str]
    options: list[str]

    @property
    def lines(self) -> list[str]:
        """All of it, a line for each place."""
        return [*self.arguments, *self.options]

    @property
    def distance(self) -> tuple[int, int]:
        """How far away the job is: what it is about tells more than its options."""
        return len(self.lines), len(self.arguments)

    def __bool__(self) -> bool:
        return bool(self.lines)


class Expectation:
    """What a test expects of a job: its task, some of its arguments and options."""

    def __init__(
        self, task: Task[Any, Any], args: Sequence[Any], expected: Mapping[str, Any]
    ) -> None:
        self.task = task
        self._parameters = Parameters(task)
        arguments, self._options = self._sorted_out(expected)
        try:
            given = self._parameters.given(args, arguments)
        except TypeError as error:
            raise TypeError(f"{task.name} cannot be called so: {error}.") from None
        self._arguments = {name: _plain(value) for name, value in given.items()}

    def differences(self, job: Job) -> Differences:
        """Say what is different about *job*."""
        found: list[str] = []
        try:
            actual = self._parameters.all(job.args, job.kwargs)
        except TypeError as error:
            found.append(f"its arguments do not fit the function: {error}")
        else:
            for name, value in self._arguments.items():
                found += compared(name, value, actual.get(name, MISSING))
        told = [option.difference(job) for option in self._options]
        return Differences(found, [line for line in told if line is not None])

    def __str__(self) -> str:
        given = ", ".join(f"{k}={shown(v)}" for k, v in self._arguments.items())
        call = f"{short(self.task.name)}({given or '…'})"
        return "  ".join([call, *map(str, self._options)])

    def describe(self, job: Job) -> str:
        """Return *job* as a call, with what is special about it."""
        try:
            arguments = self._parameters.all(job.args, job.kwargs)
            call = ", ".join(f"{k}={shown(v)}" for k, v in arguments.items())
        except TypeError:
            call = call_of(job)
        return "  ".join([f"{short(self.task.name)}({call})", *specialties(job)])

    def _sorted_out(
        self, expected: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Option]]:
        """Tell arguments of the task from options: a parameter's name comes first."""
        arguments, options = {}, []
        for key, value in expected.items():
            if key in self._parameters.names:
                arguments[key] = value
            elif key in OPTIONS:
                name, _, suffix = key.partition("__")
                _check_option(key, name, value)
                options.append(Option(name, suffix, value))
            elif self._parameters.takes_any:
                arguments[key] = value
            else:
                known = sorted({*self._parameters.names, *OPTIONS, "count"})
                raise TypeError(
                    f"{key!r} is no parameter of {self.task.name}, and no option of a "
                    f"job.{did_you_mean(key, known)} The options are "
                    f"{', '.join([*PLAIN, *COMPARED])}, the last "
                    f"{len(COMPARED)} also with __gt, __gte, __lt, __lte."
                )
        return arguments, options


def compared(path: str, expected: Any, actual: Any) -> list[str]:
    """Return what is different at *path*, one line for each place in it."""
    if actual is MISSING:
        return [f"{path} was not given; expected {shown(expected)}"]
    if isinstance(expected, _Untravelled):
        same = bool(expected.value == _decoded(actual))
        return [] if same else [f"{path} is {shown(actual)}, not {shown(expected)}"]
    if expected == actual or _is_same_message(expected, actual):
        return []
    if _is_object(expected) and _is_object(actual):
        found = []
        for key in [*expected, *(key for key in actual if key not in expected)]:
            inner = f"{path}[{key!r}]"
            if key not in actual:
                found.append(f"{inner} is missing; expected {shown(expected[key])}")
            elif key not in expected:
                found.append(f"{inner} is {shown(actual[key])}, and was not expected")
            else:
                found += compared(inner, expected[key], actual[key])
        return found
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) == len(actual):
            pairs = enumerate(zip(expected, actual, strict=True))
            return [d for n, (e, a) in pairs for d in compared(f"{path}[{n}]", e, a)]
        counts = f"{path} has length {len(actual)}, not {len(expected)}"
        return [f"{counts}: {shown(actual)}, not {shown(expected)}"]
    return [f"{path} is {shown(actual)}, not {shown(expected)}"]


def specialties(job: Job) -> list[str]:
    """Return what is not ordinary about *job*, as options."""
    found = []
    if job.queue != "default":
        found.append(f"queue={job.queue!r}")
    if job.priority:
        found.append(f"priority={job.priority}")
    if job.run_after is not None:
        found.append(f"run_after={shown(job.run_after)}")
    if job.headers.get("tags"):
        found.append(f"tags={job.headers['tags']!r}")
    return found


def call_of(job: Job) -> str:
    """Return the arguments of *job* as a call has them, whatever its task takes."""
    given = [shown(value) for value in job.args]
    given += [f"{name}={shown(value)}" for name, value in job.kwargs.items()]
    return ", ".join(given)


def short(name: str) -> str:
    """Return the function's name of a task's name."""
    return name.rpartition(".")[2]


def shown(value: Any) -> str:
    """Return *value* as messages show it, what travels tagged as what it is."""
    text = _text(value)
    if len(text) <= VALUE_CHARACTERS:
        return text
    return f"{text[:VALUE_CHARACTERS]}… ({len(text):,} characters)"


class _Untravelled:
    """A value that cannot travel, so that no job has it; it may equal one that can."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _plain(value: Any) -> Any:
    """Return *value* as it is after its way through JSON."""
    try:
        return json.loads(payload.encode_value(value))
    except ValueError:
        return _Untravelled(value)


def _decoded(plain: Any) -> Any:
    try:
        return payload.decode_value(json.dumps(plain))
    except (UndecodablePayload, Reject):
        return plain


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and TAG not in value


def _is_same_message(expected: Any, actual: Any) -> bool:
    """Whether both are messages of one id, and one of them but refers to it."""
    told = [each["value"] for each in (expected, actual) if _is_message(each)]
    if len(told) < 2 or not any(isinstance(each, list) for each in told):
        return False
    return bool(_message_id(told[0]) == _message_id(told[1]))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get(TAG) == "message" and "value" in value


def _message_id(told: Any) -> Any:
    if isinstance(told, dict):
        return told.get("id")
    return told[0] if isinstance(told, list) and told else None


def _text(value: Any) -> str:
    if isinstance(value, _Untravelled):
        return repr(value.value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, dict) and TAG in value:
        if value[TAG] == "model":
            return f"<{value.get('value')} {_text(value.get('pk'))}>"
        if _is_message(value):
            told = value["value"]
            name = told.get("name", "") if isinstance(told, dict) else ""
            return f"message #{_message_id(told)} {name}".rstrip()
        return f"{value[TAG]} {value.get('value')}"
    if isinstance(value, dict):
        items = ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items())
        return f"{{{items}}}"
    return repr(value)


def _of_option(name: str, actual: Any) -> str:
    if actual is None and name == "run_after":
        return "None (at once)"
    if actual is None and name == "expires":
        return "None (never)"
    return shown(actual)


def _check_option(key: str, name: str, value: Any) -> None:
    """Refuse what would never be met, whatever the job."""
    if name in TIMES and value is not None and not isinstance(value, datetime):
        with raised_as(TypeError):
            as_timedelta(value, name=key)
    if key != name and value is None:
        raise TypeError(f"{key}=None: it must be a value to compare with.")
    if name == "headers" and not isinstance(value, Mapping):
        raise TypeError(f"headers={value!r}: it must be a dict.")

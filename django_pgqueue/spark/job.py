"""
Job: a pipeline job, declared by a function from DataFrames to DataFrames.

    @pipeline_job(
        sources={"archive": QueueTable("archive", columns=("task", "finished_at"))},
        sinks={"late": Files("parquet", "{folder}/late")},
    )
    def late_orders(archive, *, folder="/data", days=7):
        return archive.where(…)

The function needs no Django and no settings: whoever runs it hands in the frames of its
sources, and writes what it returns to its sinks. It is found by its name, and is never
imported because a command or a row says so.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from django_pgqueue.exceptions import (
    DeclarationError,
    SparkOptionError,
    did_you_mean,
)

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")

# Characters of the value of an option: it is stored with each run.
OPTION_CHARACTERS_MAX = 1_000

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")

OptionValue = str | int | float | bool | None

F = TypeVar("F", bound=Callable[..., Any])


class Source(Protocol):
    """Where rows come from."""

    def read(self, run: Any) -> Any:
        """Return a DataFrame, for a spark.run.Run."""


class Sink(Protocol):
    """Where rows go to."""

    def write(self, run: Any, frame: Any) -> int:
        """Write *frame*, all of it or nothing; return how many rows."""


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """
    A declared pipeline job.

    Attributes:
        name: What the command calls it.
        function: What makes the frames.
        sources: By the names of the function's parameters.
        sinks: By the keys of what the function returns.
        options: The function's keyword-only parameters, with their defaults.
        takes_run: Whether the run itself is the function's first argument.
        pushes_filters: Whether PostgreSQL answers its conditions.
    """

    name: str
    function: Callable[..., Any]
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    options: Mapping[str, OptionValue]
    takes_run: bool
    pushes_filters: bool = False

    @property
    def summary(self) -> str:
        """The first paragraph of the function's docstring, on one line."""
        told = inspect.getdoc(self.function) or ""
        return " ".join(told.split("\n\n")[0].split())

    def read_options(self, given: Mapping[str, Any]) -> dict[str, OptionValue]:
        """
        Return the value of each option, of the type of its default.

        Args:
            given: Texts, as a command line has them, or values.

        Raises:
            SparkOptionError: An unknown option, or a value of another type.
        """
        unknown = [name for name in given if name not in self.options]
        if unknown:
            known = ", ".join(self.options) or "none"
            near = did_you_mean(unknown[0], list(self.options))
            raise SparkOptionError(
                f"The pipeline job {self.name} has no option {unknown[0]!r}; it has: "
                f"{known}.{near}"
            )
        return {
            name: self._read(name, given[name]) if name in given else default
            for name, default in self.options.items()
        }

    def _read(self, name: str, value: Any) -> OptionValue:
        default = self.options[name]
        kind = str if default is None else type(default)
        if not isinstance(value, str):
            if type(value) is kind or (value is None and default is None):
                return value
            value = repr(value)
        elif len(value) > OPTION_CHARACTERS_MAX:
            raise SparkOptionError(
                f"The option {name} of {self.name} has {len(value):,} characters; the "
                f"limit is {OPTION_CHARACTERS_MAX:,}."
            )
        try:
            return _parsed(kind, value)
        except ValueError:
            raise SparkOptionError(
                f"The option {name} of {self.name} must be {_a(kind)}, as its default "
                f"{default!r} is, not {value!r}."
            ) from None


_jobs: dict[str, PipelineJob] = {}


def pipeline_job(
    *,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    name: str | None = None,
    pushes_filters: bool = False,
) -> Callable[[F], F]:
    """
    Declare the function below as a pipeline job; it stays the function that it is.

    Its parameters are `run` (a spark.run.Run; it may be left out), then the sources by
    their names, then the options: keyword-only, each with a default that says its type
    (text, whole number, number, true or false; None: text or nothing).

    It returns one DataFrame for one sink, or a dict with one for each.

    Args:
        sources: What is read: QueueTable, Files, or what else has read(run).
        sinks: What is written: Files, or what else has write(run, frame).
        name: Lower-case letters, digits and `_.-`, at most 100; by default, the
            function's.
        pushes_filters: Leave conditions on the queue's tables to PostgreSQL. Right only
            where each query reads a source once, and with a condition: else it may lack
            rows, as Spark mixes up the conditions of two uses.

    Raises:
        DeclarationError: It cannot be declared so, or another function has the name.
    """

    def declare(function: F) -> F:
        job_name = function.__name__ if name is None else name
        takes_run, options = _parameters(job_name, function, sources)
        if not NAME.fullmatch(job_name):
            raise DeclarationError(
                f"A pipeline job cannot be called {job_name!r}: its name has lower-"
                f"case letters, digits and '_.-', at most 100."
            )
        if not sinks:
            raise DeclarationError(f"The pipeline job {job_name} has no sink.")
        other = _jobs.get(job_name)
        if other is not None and _where(other.function) != _where(function):
            raise DeclarationError(
                f"Two pipeline jobs are called {job_name!r}: {_where(other.function)} "
                f"and {_where(function)}. Give one of them another name with "
                f"@pipeline_job(name=…)."
            )
        _jobs[job_name] = PipelineJob(
            job_name,
            function,
            dict(sources),
            dict(sinks),
            options,
            takes_run,
            pushes_filters,
        )
        return function

    return declare


def find_job(name: str) -> PipelineJob:
    """
    Return the pipeline job *name*.

    Raises:
        SparkOptionError: No declared one has it.
    """
    try:
        return _jobs[name]
    except KeyError:
        raise SparkOptionError(
            f"No pipeline job is called {name!r}.{did_you_mean(name, list(_jobs))} "
            f"Jobs are declared in the module pipelines of each app."
        ) from None


def declared_jobs() -> list[PipelineJob]:
    """Return all pipeline jobs, by name."""
    return [_jobs[name] for name in sorted(_jobs)]


def _parameters(
    name: str, function: Callable[..., Any], sources: Mapping[str, Source]
) -> tuple[bool, dict[str, OptionValue]]:
    frames: list[str] = []
    options: dict[str, OptionValue] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            if not isinstance(parameter.default, (str, int, float, bool, type(None))):
                raise DeclarationError(
                    f"The option {parameter.name} of the pipeline job {name} needs a "
                    f"default: a text, a number, True, False or None."
                )
            options[parameter.name] = parameter.default
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            frames.append(parameter.name)
        else:
            raise DeclarationError(
                f"The pipeline job {name} takes {parameter}: name each source and each "
                f"option."
            )
    takes_run = frames[:1] == ["run"] and "run" not in sources
    if set(frames[takes_run:]) != set(sources):
        raise DeclarationError(
            f"The pipeline job {name} takes {frames[takes_run:]}, and its sources are "
            f"{list(sources)}: they must have the same names. Options are keyword-only."
        )
    return takes_run, options


def _parsed(kind: type, text: str) -> OptionValue:
    if kind is not bool:
        return kind(text)  # type: ignore[no-any-return]
    if text.lower() not in (*TRUE, *FALSE):
        raise ValueError(text)
    return text.lower() in TRUE


def _a(kind: type) -> str:
    return {
        str: "text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
    }[kind]


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

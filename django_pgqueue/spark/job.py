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
from importlib import import_module
from typing import Any, Protocol, TypeVar

from django_pgqueue.exceptions import (
    DeclarationError,
    SparkOptionError,
    did_you_mean,
)
from django_pgqueue.spark.templates import RUN, names_in

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")

# Characters of the value of an option: it is stored with each run.
OPTION_CHARACTERS_MAX = 10_000

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")

OptionValue = str | int | float | bool | None

F = TypeVar("F", bound=Callable[..., Any])

# The package's own, by name, each in a module of that name. They are imported when
# somebody asks for a job, and not by each process of a project.
BUILT_IN = ("export", "failures", "fanout", "ingest", "metrics")
BUILT_IN_PACKAGE = "django_pgqueue.spark.jobs"


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
        in_queue: Whether a job of the queue may run it.
        pushes_filters: Whether PostgreSQL answers its conditions.
    """

    name: str
    function: Callable[..., Any]
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    options: Mapping[str, OptionValue]
    takes_run: bool
    in_queue: bool = True
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
    in_queue: bool = True,
    pushes_filters: bool = False,
) -> Callable[[F], F]:
    """
    Declare the function below as a pipeline job; it stays the function that it is.

    Its parameters are `run` (a spark.run.Run; it may be left out), then the sources by
    their names, then the options: keyword-only, each with a default that says its type
    (text, whole number, number, true or false; None: text or nothing).

    It returns one DataFrame for one sink, or a dict with one for each.

    Args:
        sources: What is read: QueueTable, Query, Files, or what else has read(run).
        sinks: What is written: Files, Jobs, or what else has write(run, frame).
        name: Lower-case letters, digits and `_.-`, at most 100; by default, the
            function's.
        in_queue: False: the task run_pipeline refuses it, since whoever may edit jobs
            would choose its options.
        pushes_filters: Leave conditions on the queue's tables to PostgreSQL. Right only
            where each query reads a source once, and with a condition: else it may lack
            rows, as Spark mixes up the conditions of two uses.

    Raises:
        DeclarationError: It cannot be declared so, or another function has the name.
    """

    def declare(function: F) -> F:
        job_name = function.__name__ if name is None else name
        _check_places(job_name, sources, "read", "source")
        _check_places(job_name, sinks, "write", "sink")
        takes_run, options = _parameters(job_name, function, sources)
        for kind, places in (("source", sources), ("sink", sinks)):
            _check_templates(job_name, kind, places, options)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(
            function
        ):
            raise DeclarationError(
                f"The pipeline job {job_name} must be a plain function that returns "
                f"DataFrames: neither async nor a generator."
            )
        if not NAME.fullmatch(job_name):
            raise DeclarationError(
                f"A pipeline job cannot be called {job_name!r}: its name has lower-"
                f"case letters, digits and '_.-', at most 100."
            )
        if not sinks:
            raise DeclarationError(f"The pipeline job {job_name} has no sink.")
        if job_name in BUILT_IN and function.__module__ != _built_in(job_name):
            raise DeclarationError(
                f"A pipeline job cannot be called {job_name!r}: one of the package is. "
                f"Give yours another name with @pipeline_job(name=…)."
            )
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
            in_queue,
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
        return _all_jobs()[name]
    except KeyError:
        raise SparkOptionError(
            f"No pipeline job is called {name!r}.{did_you_mean(name, list(_jobs))} "
            f"Jobs are declared in the module pipelines of each app."
        ) from None


def find_job_for_queue(name: str) -> PipelineJob:
    """
    Return the pipeline job *name*, which a job of the queue may run.

    Raises:
        SparkOptionError: No declared one has the name, or it is not for the queue.
    """
    job = find_job(name)
    if not job.in_queue:
        raise SparkOptionError(
            f"The pipeline job {name} is not for the queue: whoever may edit jobs "
            f"would choose what it reads. Declare one of your own, with what it reads "
            f"in its code."
        )
    return job


def declared_jobs() -> list[PipelineJob]:
    """Return all pipeline jobs, by name."""
    jobs = _all_jobs()
    return [jobs[name] for name in sorted(jobs)]


def _all_jobs() -> Mapping[str, PipelineJob]:
    for name in BUILT_IN:
        import_module(_built_in(name))
    return _jobs


def _built_in(name: str) -> str:
    return f"{BUILT_IN_PACKAGE}.{name}"


def _check_places(name: str, places: object, verb: str, kind: str) -> None:
    """Raise DeclarationError unless *places* can all do *verb*."""
    if not isinstance(places, Mapping):
        raise DeclarationError(
            f"The {kind}s of the pipeline job {name} must be a dict of names and "
            f"places, not {places!r:.80}."
        )
    for key, place in places.items():
        if not isinstance(key, str) or not callable(getattr(place, verb, None)):
            raise DeclarationError(
                f"The {kind} {key!r} of the pipeline job {name} is {place!r:.80}, "
                f"which has no {verb}()."
            )
        if inspect.isclass(place):
            raise DeclarationError(
                f"The {kind} {key!r} of the pipeline job {name} is the class "
                f"{place.__name__}: make an object of it."
            )


def _check_templates(
    name: str,
    kind: str,
    places: Mapping[str, Any],
    options: Mapping[str, OptionValue],
) -> None:
    """Raise DeclarationError where a text names what is no option."""
    for key, place in places.items():
        for text in getattr(place, "templates", ()):
            unknown = names_in(text) - {RUN, *options}
            if unknown:
                wrong = min(unknown)
                raise DeclarationError(
                    f"The {kind} {key!r} of the pipeline job {name} says {text!r}, and "
                    f"{wrong!r} is no option of it."
                    f"{did_you_mean(wrong, list(options))} Options are its keyword-"
                    f"only parameters."
                )


def _parameters(
    name: str, function: Callable[..., Any], sources: Mapping[str, Source]
) -> tuple[bool, dict[str, OptionValue]]:
    frames: list[str] = []
    options: dict[str, OptionValue] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.name == RUN:
                raise DeclarationError(
                    f"An option of the pipeline job {name} cannot be called run: that "
                    f"is the run itself, as the first parameter."
                )
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

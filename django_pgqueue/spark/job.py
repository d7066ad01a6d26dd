"""
Job: a pipeline job, declared by a function of its run.

    @pipeline_job(chooses=("folder",))
    def late_orders(run, *, folder="/data", days=7):
        late = run.read("archive", columns=("task", "finished_at"), where=…)
        late, rows = run.counted(late)
        late.write.mode("overwrite").parquet(f"{folder}/late")
        return rows()

The function needs no Django and no settings: its run reads, writes and tells. It is
found by its name, and is never imported because a command or a row says so.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import unquote

from django_pgqueue.exceptions import (
    DeclarationError,
    SparkOptionError,
    did_you_mean,
)
from django_pgqueue.spark.tables import TABLES

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")

# Characters of the value of an option: it is stored with each run.
OPTION_CHARACTERS_MAX = 10_000

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")

POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)

OptionValue = str | int | float | bool | None
Places = Callable[[Mapping[str, Any]], Sequence[str]]

F = TypeVar("F", bound=Callable[..., Any])

# The package's own, by the module that declares them. They are imported when somebody
# asks for a job, and not by each process of a project.
MODULES = ("backfill", "erase", "export", "failures", "fanout", "ingest", "metrics")
BUILT_IN = {name: name for name in (*MODULES, "replay")} | {
    "compact": "export",
    "verify": "export",
    "conservation": "metrics",
}
BUILT_IN_PACKAGE = "django_pgqueue.spark.jobs"


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """
    A declared pipeline job.

    Attributes:
        name: What the command calls it.
        function: What does the work.
        options: The function's keyword-only parameters, with their defaults.
        chooses: The options that choose where rows leave the database to.
        takes_out: The tables of the queue whose rows it takes out; None: any.
        in_queue: Whether a job of the queue may run it.
        hides: The options whose values no run keeps.
        places: What a run needs for itself, of its options; None: the whole job.
    """

    name: str
    function: Callable[..., Any]
    options: Mapping[str, OptionValue]
    chooses: tuple[str, ...] = ()
    takes_out: tuple[str, ...] | None = None
    in_queue: bool = True
    hides: tuple[str, ...] = ()
    places: Places | None = None

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
    name: str | None = None,
    chooses: Sequence[str] = (),
    takes_out: Sequence[str] | None = None,
    in_queue: bool = True,
    hides: Sequence[str] = (),
    places: Places | None = None,
) -> Callable[[F], F]:
    """
    Declare the function below as a pipeline job; it stays the function that it is.

    Its first parameter is `run`, a spark.run.Run. The others are its options: keyword-
    only, each with a default that says its type (text, whole number, number, true or
    false; None: text or nothing). It returns how many rows it has written, or None.

    Args:
        name: Lower-case letters, digits and `_.-`, at most 100; by default, the
            function's.
        chooses: The options that choose where rows leave the database to: folders and
            URIs. When the queue runs the job, they must lie below their defaults, or
            below what settings allow. An option that is only a part of an address is
            one of them as well, unless the function checks it.
        takes_out: The tables of the queue whose rows a run shows to whoever reads
            where it writes; None: any. In the admin, it is run by those who may see
            them. (): what it writes stays in the database.
        in_queue: False: the task run_pipeline refuses it, since whoever may edit jobs
            would choose its options.
        hides: The options whose values no run keeps.
        places: Returns what a run needs for itself, for its options: of two runs that
            need the same place, the second is refused. None: one run at a time.

    Raises:
        DeclarationError: It cannot be declared so, or another function has the name.
    """

    def declare(function: F) -> F:
        job_name = function.__name__ if name is None else name
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(
            function
        ):
            raise DeclarationError(
                f"The pipeline job {job_name} must be a plain function: neither async "
                f"nor a generator."
            )
        if not NAME.fullmatch(job_name):
            raise DeclarationError(
                f"A pipeline job cannot be called {job_name!r}: its name has lower-"
                f"case letters, digits and '_.-', at most 100."
            )
        options = _options(job_name, function)
        _check_names(job_name, "chooses", chooses, options, "option")
        _check_names(job_name, "hides", hides, options, "option")
        _check_names(job_name, "takes_out", takes_out or (), TABLES, "table")
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
            options,
            tuple(chooses),
            None if takes_out is None else tuple(takes_out),
            in_queue,
            tuple(hides),
            places,
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
    return f"{BUILT_IN_PACKAGE}.{BUILT_IN[name]}"


def _check_names(
    job: str, argument: str, names: object, known: Mapping[str, Any], kind: str
) -> None:
    """Raise DeclarationError unless *names* are some of *known*."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise DeclarationError(
            f"{argument} of the pipeline job {job} must be a tuple of names, not "
            f"{names!r:.80}."
        )
    for name in names:
        if name not in known:
            raise DeclarationError(
                f"{argument} of the pipeline job {job} names {name!r:.80}, which is no "
                f"{kind}.{did_you_mean(str(name), list(known))} There are: "
                f"{', '.join(known) or 'none'}."
            )


def _options(name: str, function: Callable[..., Any]) -> dict[str, OptionValue]:
    """Return the function's keyword-only parameters; its one other is the run."""
    first, *others = inspect.signature(function).parameters.values() or (None,)
    if first is None or first.name != "run" or first.kind not in POSITIONAL:
        raise DeclarationError(
            f"The first parameter of the pipeline job {name} must be run: by it, the "
            f"job reads and writes."
        )
    options: dict[str, OptionValue] = {}
    for parameter in others:
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise DeclarationError(
                f"The pipeline job {name} takes {parameter}: after run, it has nothing "
                f"but options, which are keyword-only: def {name}(run, *, …)."
            )
        if not isinstance(parameter.default, (str, int, float, bool, type(None))):
            raise DeclarationError(
                f"The option {parameter.name} of the pipeline job {name} needs a "
                f"default: a text, a number, True, False or None."
            )
        options[parameter.name] = parameter.default
    return options


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


def check_destinations(
    job: PipelineJob, options: Mapping[str, Any], allowed: Sequence[str]
) -> None:
    """
    Let the addresses pass that *options* say, if all of them are *allowed*.

    An allowed address stands for all that is below it.

    Raises:
        SparkOptionError: One is not.
    """
    known = [*map(normal, allowed), *map(normal, _addresses(job, job.options))]
    for address in _addresses(job, options):
        asked = normal(address)
        if not any(is_within(asked, prefix) for prefix in known if prefix):
            raise SparkOptionError(
                f"The pipeline job {job.name} may not write to {address!r} when the "
                f"queue runs it. Allowed are PGQUEUE['EXPORT']['path'] and what "
                f"PGQUEUE['SPARK']['destinations'] names: "
                f"{', '.join(allowed) or 'none'}. Add it there, or run it by manage.py "
                f"pgqueue_pipeline."
            )


def normal(address: str) -> str:
    """
    Return *address* with one spelling; "": it climbs with "..", and is nowhere.

    A path and its URI with file: are the same.
    """
    scheme, colon, rest = address.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", address
    host = ""
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        rest = slash + below
    # Some clients decode it, and some do not.
    if ".." in unquote(unquote(rest)).replace("\\", "/").split("/"):
        return ""
    path = posixpath.normpath(f"/{rest.lstrip('/')}").rstrip("/")
    return f"{scheme.lower()}://{host}{path}"


def is_within(address: str, prefix: str) -> bool:
    """Whether *address* is *prefix* or below it, both as normal() returns them."""
    return bool(address) and (
        address == prefix or address.startswith(f"{prefix.rstrip('/')}/")
    )


def _addresses(job: PipelineJob, options: Mapping[str, Any]) -> list[str]:
    return [str(options[name]) for name in job.chooses if options[name]]

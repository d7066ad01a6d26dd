"""Declared task: a function, its name, and what it makes of arguments and options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, PayloadTooLarge
from django_pgqueue.log.names import Pattern
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.accumulate import any_arguments
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.options import ResolvedOptions, TaskOptions
from django_pgqueue.tasks.parameters import Parameters
from django_pgqueue.tasks.spread import Item

if TYPE_CHECKING:
    from django_pgqueue.tasks.hints import Hints

# Queues whose options a task keeps resolved: bounded memory.
QUEUES_REMEMBERED_MAX = 1_000


class DeclaredTask:
    """
    What a worker runs: all of a task but what enqueues its jobs.

    Attributes:
        name: What a job's row says: ``module.qualname``, or the given name.
        function: What was decorated.
        aliases: Names of earlier days, so that old rows still run.
        options: What was declared.
        receives: The queues and patterns by which messages become its jobs.
        parameters: What the function takes of a job.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        aliases: Sequence[str],
        options: TaskOptions,
    ) -> None:
        # First: it copies the function's own attributes, whatever they are called.
        functools.update_wrapper(cast("Callable[..., Any]", self), function)
        self.function = function
        self.name = name
        self.aliases = tuple(aliases)
        self.options = options
        self.receives: tuple[tuple[str, Pattern], ...] = ()
        takes_context = options.takes_context
        if options.accumulate is not None:
            # What is enqueued is a call, and not the list of them that it takes.
            function, takes_context = any_arguments, False
        self.parameters = Parameters(function, takes_context=takes_context)
        self._hints: Hints | None = None
        self._resolved: dict[str, tuple[Settings, ResolvedOptions]] = {}
        if options.rule is not None:
            options.rule.check_names(self.parameters)
        if options.lane is not None:
            self.parameters.check_takes(options.lane.by, options.lane.option)

    def resolve(self, queue: str, settings: Settings) -> ResolvedOptions:
        """
        Return what holds for this task's jobs in *queue*; kept for the next job.

        Raises:
            InvalidOption: No worker claims from *queue*: it is a pull queue.
        """
        kept = self._resolved.get(queue)
        # The same object for as long as the setting does not change.
        if kept is not None and kept[0] is settings:
            return kept[1]
        if len(self._resolved) >= QUEUES_REMEMBERED_MAX:
            self._resolved.clear()
        resolved = self.options.for_queue(queue, settings)
        self._resolved[queue] = (settings, resolved)
        return resolved

    def run(
        self, context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """
        Call the function, with *context* first if it takes one.

        Returns what it returned; of an async task, a coroutine.

        Raises:
            TypeError: A plain function returned a coroutine, which nobody would await.
        """
        if self.options.takes_context:
            value = self.function(context, *args, **kwargs)
        else:
            value = self.function(*args, **kwargs)
        if not self.options.is_async and inspect.iscoroutine(value):
            value.close()
            raise TypeError(
                f"{self.name} is a plain function and returned a coroutine: define it "
                f"with async def, and any decorator on it likewise."
            )
        return value

    def encode(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], payload_bytes_max: int
    ) -> tuple[str, str]:
        """
        Return the arguments as JSON text, bound to the signature and checked.

        Raises:
            InvalidArgument: They do not fit the function, or cannot travel.
            PayloadTooLarge: They are larger than payload_bytes_max.
        """
        self.bind(args, kwargs)
        return payload.encode(
            self.name, args, kwargs, payload_bytes_max=payload_bytes_max
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """
        Check that a call with these arguments fits the function.

        Raises:
            InvalidArgument: It does not; the message says why.
        """
        names = self.parameters.all
        if names is not None and not args and kwargs.keys() == names:
            return
        try:
            self.parameters.check(args, kwargs)
        except TypeError as error:
            raise InvalidArgument(
                task=self.name, path="arguments", problem=f"do not fit: {error}"
            ) from None

    @property
    def hints(self) -> Hints:
        """
        The type hints of what the function takes of a job.

        Raises:
            DeclarationError: One names what its module does not have.
        """
        if self._hints is None:
            from django_pgqueue.tasks.hints import hints_of

            self._hints = hints_of(self.name, self.function, self.parameters.own)
        return self._hints

    def check_types(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        settings: Settings,
        filled: Collection[int | str] = (),
    ) -> None:
        """
        Check that arguments which fit the function are what its type hints say.

        Args:
            args: Positional arguments, as the function gets them.
            kwargs: Keyword arguments, likewise.
            settings: Where REDACT stands.
            filled: Those that are not known yet, by place or name.

        Raises:
            InvalidArgument: One is not; the message has the value, unless REDACT
                hides it, and the hint.
            DeclarationError: The hints cannot be read.
            MissingExtra: pydantic is not installed.
        """
        values = dict(self.parameters.given(args, kwargs))
        for each in filled:
            name = each if isinstance(each, str) else self.parameters.name_at(each)
            if name is not None:
                values.pop(name, None)
        misfit = self.hints.misfit(values, settings.redact)
        if misfit is not None:
            raise InvalidArgument(
                task=self.name,
                path=misfit.path,
                problem=f"{misfit.problem}. Give what the hint says, change the hint, "
                f"or declare the task with check_types=False.",
            )

    def encode_items(
        self, start: int, items: Sequence[Item], payload_bytes_max: int
    ) -> list[Items]:
        """
        Return the arguments of items of bulk() as JSON text, checked like encode().

        Args:
            start: The place of the first one, for errors.
            items: At least one.
            payload_bytes_max: The most bytes that one of them may take.
        """
        if self.parameters.fit_all(items):
            text = payload.encode_plain(items, payload_bytes_max=payload_bytes_max)
            if text is not None:
                return [Items(text, len(items))]
        return [
            Items(self._encode_item(place, item, payload_bytes_max), 1)
            for place, item in enumerate(items, start)
        ]

    def _encode_item(self, place: int, item: Item, payload_bytes_max: int) -> str:
        try:
            if isinstance(item, Mapping):
                return self.encode((), item, payload_bytes_max)[1]
            if isinstance(item, (list, tuple)):
                return self.encode(item, {}, payload_bytes_max)[0]
        except InvalidArgument as error:
            raise InvalidArgument(
                task=self.name,
                path=f"item {place}",
                problem=str(error).removeprefix(f"{self.name}: "),
            ) from None
        except PayloadTooLarge as error:
            raise PayloadTooLarge(
                task=f"{self.name}: item {place}",
                payload_bytes=error.payload_bytes,
                payload_bytes_max=error.payload_bytes_max,
            ) from None
        raise InvalidArgument(
            task=self.name,
            path=f"item {place}",
            problem=f"is a {type(item).__qualname__}; it must be a dict of keyword "
            f"arguments, or a list or tuple of positional ones",
        )

    @property
    def call_signature(self) -> inspect.Signature:
        """
        What the arguments of a job must fit, which is the function without its context.

        Of a task with accumulate anything, since a job is one call of its list.
        """
        return self.parameters.signature

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

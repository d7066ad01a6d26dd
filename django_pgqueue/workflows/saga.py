"""
Saga: steps that are undone if a later one gives up.

    order = saga("place-order")

    @order.step(compensate="release")
    def reserve(order_id: int) -> str: ...

    @order.compensation
    def release(order_id: int, reserve: str) -> None: ...

    @order.step(compensate="refund", retries=5)
    def charge(order_id: int) -> str: ...

    @order.compensation
    def refund(order_id: int, charge: str) -> None: ...

    @order.step
    def ship(order_id: int, charge: str) -> None: ...

    order.start(order_id=42, key="order-42")

Steps run in the order in which they were declared, each with its own retries. A
parameter is one of start()'s arguments, or the result of an earlier step by its name.
When a step gives up, those that have succeeded are undone, the last one first, each
compensation until it succeeds. A saga ends succeeded or compensated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, overload

from django_pgqueue.bounds import ATTEMPTS_MAX, QUEUE_DEFAULT
from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidArgument,
    InvalidOption,
    shown,
)
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.options.retry import Retry
from django_pgqueue.tasks.canvas import Signature, checked_name
from django_pgqueue.tasks.database import twin
from django_pgqueue.tasks.declare import Declares, DeclaresWithContext
from django_pgqueue.tasks.declare import task as declare_task
from django_pgqueue.tasks.errors import way_out
from django_pgqueue.tasks.options import TaskKeywords
from django_pgqueue.tasks.plan import Ends, Plan, start
from django_pgqueue.tasks.task import AsyncTask, Task
from django_pgqueue.tasks.workflow_result import WorkflowResult
from django_pgqueue.workflows import versions

P = ParamSpec("P")
R = TypeVar("R")

# "Without limit": 32,767 attempts, five minutes apart on average: almost four months.
UNTIL_IT_SUCCEEDS = Retry(max_attempts=ATTEMPTS_MAX, base=2, cap="10m")


@dataclass(frozen=True, slots=True)
class SagaStep:
    """A step of a saga, and the name of what undoes it."""

    name: str
    task: Task[Any, Any]
    compensate: str | None


@dataclass(frozen=True, slots=True)
class Compensation:
    """What undoes a step, and how long it waits before it starts."""

    task: Task[Any, Any]
    not_before: Duration | None


class Saga:
    """Steps with what undoes them. Made by saga()."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[str, SagaStep] = {}
        self._compensations: dict[str, Compensation] = {}
        versions.declare(self)

    @property
    def version(self) -> str:
        """
        Twelve hexadecimal digits that stand for its steps.

        By their order, names, tasks and parameters, and what undoes them when.
        """
        return versions.version_of([self._shape(step) for step in self._steps.values()])

    def _shape(self, step: SagaStep) -> list[object]:
        shape: list[object] = [
            step.name,
            step.task.name,
            sorted(step.task.parameters.named),
        ]
        undo = self._compensations.get(step.compensate or "")
        if undo is None:
            return shape
        waits = as_timedelta(undo.not_before or 0, name="not_before").total_seconds()
        named = sorted(undo.task.parameters.named)
        return [*shape, step.compensate, undo.task.name, named, waits]

    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def step(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def step(
        self,
        /,
        *,
        compensate: str | Callable[..., Any] | None = None,
        takes_context: Literal[True],
        **options: Unpack[TaskKeywords],
    ) -> DeclaresWithContext: ...
    @overload
    def step(
        self,
        /,
        *,
        compensate: str | Callable[..., Any] | None = None,
        takes_context: Literal[False] = False,
        **options: Unpack[TaskKeywords],
    ) -> Declares: ...
    def step(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        compensate: str | Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        """
        Declare a function as the next step, which is a task of its own as well.

        Args:
            function: The function, when used bare; or a task that there is.
            compensate: What undoes it, or its name, which may be declared later. None:
                there is nothing to undo.
            options: Those of @task.

        Raises:
            DeclarationError: There is a step of this name; or as @task.
        """
        if function is None:
            return functools.partial(self.step, compensate=compensate, **options)
        declared = _as_task(function, options)
        name = declared.function.__name__
        if name in self._steps:
            raise DeclarationError(f"saga {self.name!r} has a step {name!r} already.")
        undo = compensate
        if undo is not None and not isinstance(undo, str):
            undo = getattr(undo, "__name__", shown(undo))
        self._steps[name] = SagaStep(name, declared, undo)
        return declared

    @overload
    def compensation(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def compensation(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def compensation(
        self,
        /,
        *,
        not_before: Duration | None = None,
        takes_context: Literal[True],
        **options: Unpack[TaskKeywords],
    ) -> DeclaresWithContext: ...
    @overload
    def compensation(
        self,
        /,
        *,
        not_before: Duration | None = None,
        takes_context: Literal[False] = False,
        **options: Unpack[TaskKeywords],
    ) -> Declares: ...
    def compensation(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        not_before: Duration | None = None,
        **options: Any,
    ) -> Any:
        """
        Declare a function as what undoes a step, which names it as ``compensate``.

        It is tried until it succeeds, at most ten minutes apart, unless retries says
        otherwise. One that is dead all the same (it was rejected, say, or its process
        died again and again) waits for a human: redrive its dead letter, or set it
        aside once it was done by hand.

        Args:
            function: The function, when used bare; or a task that there is.
            not_before: How long it waits once its turn has come, a duration.
            options: Those of @task.

        Raises:
            DeclarationError: There is one of this name; or as @task.
        """
        if function is None:
            return functools.partial(
                self.compensation, not_before=not_before, **options
            )
        declared = _as_task(function, {"retries": UNTIL_IT_SUCCEEDS, **options})
        name = declared.function.__name__
        if name in self._compensations:
            raise DeclarationError(
                f"saga {self.name!r} has a compensation {name!r} already."
            )
        self._compensations[name] = Compensation(declared, not_before)
        return declared

    @way_out("start()", "saga.astart(…)")
    def start(
        self,
        /,
        *,
        key: str | None = None,
        deadline: Duration | None = None,
        **arguments: Any,
    ) -> WorkflowResult:
        """
        Store the saga, in the caller's transaction: one query. Its result is that of
        the last step.

        Args:
            key: Of sagas with this name and key only the first is stored; the answer
                to others is that one. Say what the saga is about: "order-42".
            deadline: If no last step has succeeded after this duration, what has is
                undone.
            arguments: What steps and compensations take by these names.

        Raises:
            InvalidArgument: A parameter is neither given nor an earlier step; an
                argument is taken by none; or as delay().
            DeclarationError: A step names a compensation that there is not.
        """
        return start(
            self._planned(arguments),
            name=self.name,
            key=key,
            kind="saga",
            deadline=deadline,
            version=self.version,
        )

    astart = twin(start)

    def _planned(self, arguments: Mapping[str, Any]) -> tuple[Plan, Ends]:
        if not self._steps:
            raise self._wrong("steps", "are none; declare some with @saga.step")
        plan = Plan(get_settings())
        places: dict[str, int] = {}
        taken: set[str] = set()
        ends = Ends()
        for step in self._steps.values():
            _refuse_ack_first(step.task, plan.settings)
            call, fills, used = self._call(step.task, arguments, places)
            ends = plan.step(call, after=ends.places, fills=fills, name=step.name)
            [places[step.name]] = ends.places
            taken |= used
        for step in self._steps.values():
            if step.compensate is None:
                continue
            undo = self._compensation_of(step)
            _refuse_ack_first(undo.task, plan.settings)
            call, fills, used = self._call(undo.task, arguments, places)
            if undo.not_before is not None:
                later = undo.task.using(run_after=undo.not_before)
                call = replace(call, enqueuer=later)
            plan.step(
                call,
                after=(),
                fills=fills,
                name=step.compensate,
                kind="compensation",
                compensates=places[step.name],
            )
            taken |= used
        if unused := sorted(arguments.keys() - taken):
            problem = "is taken by no step and no compensation"
            raise self._wrong(unused[0], problem)
        return plan, ends

    def _call(
        self,
        declared: Task[Any, Any],
        arguments: Mapping[str, Any],
        places: Mapping[str, int],
    ) -> tuple[Signature[Any], dict[int | str, int], set[str]]:
        """Return a call with what its parameters name, and which were given."""
        named = declared.parameters.named
        given = {name: arguments[name] for name in named if name in arguments}
        fills: dict[int | str, int] = {
            name: places[name] for name in named if name in places and name not in given
        }
        call = Signature(
            declared, (), {**given, **dict.fromkeys(map(str, fills))}, is_immutable=True
        )
        return call, fills, set(given)

    def _compensation_of(self, step: SagaStep) -> Compensation:
        assert step.compensate is not None
        found = self._compensations.get(step.compensate)
        if found is None:
            names: Iterable[str] = sorted(self._compensations) or ["none"]
            raise DeclarationError(
                f"saga {self.name!r}: step {step.name!r} names the compensation "
                f"{step.compensate!r}, which is not declared; there are: "
                f"{', '.join(names)}. Declare it with @saga.compensation."
            )
        return found

    def _wrong(self, path: str, problem: str) -> InvalidArgument:
        return InvalidArgument(task=self.name, path=path, problem=problem)


def _refuse_ack_first(declared: Task[Any, Any], settings: Settings) -> None:
    queue = declared.options.queue or QUEUE_DEFAULT
    if declared.resolve(queue, settings).ack_policy == "first":
        raise InvalidOption(
            f"{declared.name} cannot be part of a saga: it is declared with "
            f'ack_policy="first", and has ended before anybody knows whether it '
            f"succeeds. Declare it without."
        )


def _as_task(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    if isinstance(function, Task):
        said = sorted(options.keys() - {"retries"})
        if said or options.get("retries", UNTIL_IT_SUCCEEDS) is not UNTIL_IT_SUCCEEDS:
            raise DeclarationError(
                f"{function.name} is a task already: say {', '.join(options)} where it "
                f"is declared."
            )
        return function
    return declare_task(**options)(function)


def saga(name: str) -> Saga:
    """
    Return an empty saga, whose steps and compensations are declared with decorators.

    Args:
        name: What people call it; up to 255 characters.

    Raises:
        InvalidArgument: The name is none.
    """
    return Saga(checked_name("saga", name)[0])

"""
Flow: steps that wait for those that they name, as a graph without cycles.

    wf = flow("order")
    stock = wf.step(reserve, order_id)
    paid = wf.step(charge, order_id, after=[stock])
    wf.step(ship, order_id, receipt=paid, when=paid["state"] == "paid")
    wf.start(key=f"order-{order_id}")

A step stands for its result: given as an argument it is waited for, and the argument is
its result. A run has the graph that was stored when it started, whatever the code says
later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues.workflows import Comparison
from django_pgqueue.tasks.batch import part_of
from django_pgqueue.tasks.canvas import (
    Part,
    Signature,
    checked_name,
    refuse_on_error,
)
from django_pgqueue.tasks.database import twin
from django_pgqueue.tasks.enqueuer import Enqueuer
from django_pgqueue.tasks.errors import way_out
from django_pgqueue.tasks.payload import encode_at
from django_pgqueue.tasks.plan import Ends, Plan, start
from django_pgqueue.tasks.workflow_result import WorkflowResult


class Value:
    """The result of a step, or what stands at a path in it; for conditions."""

    __slots__ = ("_path", "_step")

    def __init__(self, step: FlowStep, path: tuple[str, ...] = ()) -> None:
        self._step = step
        self._path = path

    def __getitem__(self, key: str | int) -> Value:
        """Return what stands there: a key of an object, or a place of a list."""
        return Value(self._step, (*self._path, str(key)))

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    def is_in(self, values: Iterable[Any]) -> Condition:
        """Return whether it is one of these."""
        return self._compared("in", list(values))

    __hash__ = None  # type: ignore[assignment]  # Equality is no truth value here.

    def _compared(self, op: str, value: object) -> Condition:
        encode_at("flow", "condition", list(self._path))
        text = encode_at("flow", "condition", value)
        return Condition(self._step, self._path, op, json.loads(text))


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A comparison of a step's result with a value, made by the database."""

    step: FlowStep
    path: tuple[str, ...]
    op: str
    value: Any

    def __bool__(self) -> bool:
        raise TypeError(
            "a condition of a flow is not known before it runs: say when=…, and "
            "when=[…, …] where several must hold"
        )


@dataclass(frozen=True, slots=True, eq=False)
class FlowStep:
    """
    A step of a flow that is being put together. Made by Flow.step().

    As an argument of a later step it stands for its result; compared with a value, or
    indexed and compared, it is a condition.
    """

    flow: Flow
    place: int
    part: Part
    after: tuple[FlowStep, ...]
    fills: dict[int | str, FlowStep]
    when: tuple[Condition, ...]
    name: str | None

    @property
    def result(self) -> Value:
        """Its result; for conditions, as in ``when=paid.result == "paid"``."""
        return Value(self)

    def __getitem__(self, key: str | int) -> Value:
        """Return what stands there in its result, for conditions."""
        return Value(self)[key]


class Flow:
    """Steps that are put together, until start() stores them. Made by flow()."""

    def __init__(self, name: str, on_error: Signature[Any] | None) -> None:
        self._name = name
        self._on_error = on_error
        self._steps: list[FlowStep] = []

    def step(
        self,
        call: Enqueuer[Any, Any] | Part | Flow,
        /,
        *args: Any,
        after: Sequence[FlowStep] = (),
        when: Condition | Sequence[Condition] = (),
        name: str | None = None,
        **kwargs: Any,
    ) -> FlowStep:
        """
        Add a step, and return it for others to name.

        Args:
            call: A task, also one with using(…); or a signature, a chain, a group or
                another flow, which has no further arguments.
            args: Positional arguments; a step among them stands for its result.
            after: Steps that must have succeeded, or were skipped, before it starts.
            when: Conditions that must all hold, or it is skipped; what comes after it
                runs nevertheless, with null for its result.
            name: What people call it; the name of its task.
            kwargs: Keyword arguments, as args.

        Raises:
            InvalidArgument: What is called is none of these, or has an on_error of its
                own; a step is of another flow; or a condition is none.
        """
        if isinstance(call, Flow):
            refuse_on_error(self._name, "call", call._on_error)
            call = _SubFlow(call)
        plain = [None if isinstance(a, FlowStep) else a for a in args]
        named = {
            key: None if isinstance(value, FlowStep) else value
            for key, value in kwargs.items()
        }
        part = part_of(self._name, call, tuple(plain), named)
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs.items())
        fills = {to: of for to, of in given.items() if isinstance(of, FlowStep)}
        conditions = (when,) if isinstance(when, Condition) else tuple(when)
        for condition in conditions:
            if not isinstance(condition, Condition):
                problem = f"holds {shown(condition)}; it must be a comparison of a step"
                raise self._wrong("when", problem)
        needed = [*after, *fills.values(), *(each.step for each in conditions)]
        for each in needed:
            if not isinstance(each, FlowStep):
                raise self._wrong("after", f"holds {shown(each)}; it must be a step")
            if each.flow is not self:
                raise self._wrong("after", "holds a step of another flow")
        if name is not None:
            checked_name(self._name, name)
        step = FlowStep(
            flow=self,
            place=len(self._steps),
            part=part,
            after=tuple({each.place: each for each in needed}.values()),
            fills=fills,
            when=conditions,
            name=name,
        )
        self._steps.append(step)
        return step

    @way_out("start()", "flow.astart()")
    def start(
        self, *, key: str | None = None, deadline: Duration | None = None
    ) -> WorkflowResult:
        """
        Store the flow, in the caller's transaction: one query. Its result is that of
        the step that was said last.

        Args:
            key: Of flows with this name and key only the first is stored; the answer
                to others is that one.
            deadline: It is cancelled if it has not ended after this duration.

        Raises:
            InvalidArgument: There is no step; a flow is a step of itself; or as
                Chain.delay().
            InvalidOption: As Chain.delay().
        """
        return start(
            self._planned(), name=self._name, key=key, kind="flow", deadline=deadline
        )

    astart = twin(start)

    def _planned(self) -> tuple[Plan, Ends]:
        self._check()
        plan = Plan(get_settings())
        ends = self._add_to(plan, Ends())
        if self._on_error is not None:
            plan.on_error(self._on_error)
        return plan, ends

    def _check(self, outer: tuple[Flow, ...] = ()) -> None:
        """Raise InvalidArgument where a flow has no steps, or is a step of itself."""
        if self in outer:
            raise self._wrong("steps", "hold the flow itself, which would have no end")
        if not self._steps:
            raise self._wrong("steps", "are none; say step(…) before start()")
        for step in self._steps:
            if isinstance(step.part, _SubFlow):
                step.part.flow._check((*outer, self))

    def _add_to(self, plan: Plan, before: Ends) -> Ends:
        """Add all steps after *before*; return what the last one ends with."""
        found: list[Ends] = []
        for step in self._steps:
            fills = {to: self._one(plan, found, of) for to, of in step.fills.items()}
            condition = tuple(
                Comparison(
                    self._one(plan, found, each.step), each.path, each.op, each.value
                )
                for each in step.when
            )
            places = [*fills.values(), *(each.step for each in condition)]
            for each in step.after:
                places += found[each.place].places
            if not places:
                places = list(before.places)
            after = list(dict.fromkeys(places))
            if isinstance(step.part, Signature):
                said = {"name": step.name} if step.name else {}
                ends = plan.step(
                    step.part, after=after, fills=fills, condition=condition, **said
                )
            elif condition:
                problem = "is for one task; say it at the steps of a part"
                raise self._wrong("when", problem)
            else:
                # All of them wait; what they take of it is nothing.
                ends = step.part.plan(plan, plan.barrier(after))
            found.append(ends)
        return found[-1]

    def _one(self, plan: Plan, found: list[Ends], step: FlowStep) -> int:
        """Return the place of the one step that has the result of a step."""
        ends = found[step.place]
        if ends.is_list:
            ends = found[step.place] = plan.gather(ends)
        return ends.places[0]

    def _wrong(self, path: str, problem: str) -> InvalidArgument:
        return InvalidArgument(task=self._name, path=path, problem=problem)


@dataclass(frozen=True, slots=True)
class _SubFlow(Part):
    """A flow as a step of another one: its steps come after what that waits for."""

    flow: Flow

    def plan(self, plan: Plan, before: Ends) -> Ends:
        return self.flow._add_to(plan, replace(before))


def flow(name: str, *, on_error: Signature[Any] | None = None) -> Flow:
    """
    Return an empty flow, whose steps are said one after the other.

    Args:
        name: What people call it; up to 255 characters.
        on_error: Called once it has failed, with what has; as of chain().

    Raises:
        InvalidArgument: The name is none, or on_error no signature.
    """
    return Flow(*checked_name("flow", name, on_error))

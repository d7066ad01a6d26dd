"""
Canvas: calls of tasks that come after one another, as steps of one workflow.

    chain(fetch.s(url), parse.s(), store.s()).delay()
    chord([resize.s(pk, width) for width in (200, 800)], publish.s(pk)).delay()

A call that is not made yet is a signature, task.s(…). What stands before it is given to
it as its first argument: one result, or the list of a group's results. task.si(…) takes
none. Signatures, chains and groups stand in each other as they like.

All of it is checked and stored at once, in the caller's transaction; what comes later
is enqueued in the transaction that ends what it waits for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.options.durations import Duration
from django_pgqueue.tasks.database import twin
from django_pgqueue.tasks.errors import way_out
from django_pgqueue.tasks.payload import check_text
from django_pgqueue.tasks.plan import Ends, Plan, Planned, start

if TYPE_CHECKING:
    from django_pgqueue.tasks.result import JobResult
    from django_pgqueue.tasks.workflow_result import WorkflowResult

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Callee(Planned, Protocol[R_co]):
    """What a signature calls: a task with its options. That is an Enqueuer."""

    @property
    def task_name(self) -> str: ...
    def delay(self, /, *args: Any, **kwargs: Any) -> JobResult[R_co]: ...
    async def adelay(self, /, *args: Any, **kwargs: Any) -> JobResult[R_co]: ...


class Part(ABC):
    """What a workflow is made of: a signature, a chain or a group."""

    __slots__ = ()

    @abstractmethod
    def plan(self, plan: Plan, before: Ends) -> Ends:
        """Add this to *plan*, after the steps *before*; return what it ends with."""

    def __or__(self, other: object) -> Chain:
        """Return the chain of this and *other*."""
        return chain(self, other)


@dataclass(frozen=True, slots=True)
class Signature(Part, Generic[R]):
    """A call of a task that is not made yet. Made by task.s(…) and task.si(…)."""

    enqueuer: Callee[R]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    is_immutable: bool = False

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.enqueuer.task_name

    def delay(self) -> JobResult[R]:
        """Enqueue the call by itself, as one job of no workflow."""
        return self.enqueuer.delay(*self.args, **self.kwargs)

    async def adelay(self) -> JobResult[R]:
        """Enqueue the call by itself, from async code."""
        return await self.enqueuer.adelay(*self.args, **self.kwargs)

    def plan(self, plan: Plan, before: Ends) -> Ends:
        """Add one step."""
        return plan.call(self, before)

    def __repr__(self) -> str:
        values = [*map(repr, self.args)]
        values += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        call = "si" if self.is_immutable else "s"
        return f"{self.name}.{call}({', '.join(values)})"


@dataclass(frozen=True, slots=True)
class Composed(Part):
    """Several parts, and what is called if they fail."""

    parts: tuple[Part, ...]
    name: str
    error_callback: Signature[Any] | None = None

    @way_out("delay()", "….adelay()")
    def delay(
        self, *, key: str | None = None, deadline: Duration | None = None
    ) -> WorkflowResult:
        """
        Store the workflow, in the caller's transaction: one query.

        Args:
            key: Of workflows with this name and key only the first is stored; the
                answer to others is that one. Up to 255 characters.
            deadline: It is cancelled if it has not ended after this duration; its
                on_error is called then.

        Raises:
            InvalidArgument: Arguments do not fit a task, or cannot travel; the key is
                no text, or too long; there are more than 50,000 steps.
            InvalidOption: A task has an option that makes no sense for a step, or its
                result is taken and it stores none.
            PayloadTooLarge: Those of one exceed PGQUEUE['PAYLOAD_BYTES_MAX'].
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        return start(self.planned(), name=self.name, key=key, deadline=deadline)

    adelay = twin(delay)

    def planned(self) -> tuple[Plan, Ends]:
        """Return its steps, checked, and those that it ends with."""
        plan = Plan(get_settings())
        ends = self.plan(plan, Ends())
        if self.error_callback is not None:
            plan.on_error(self.error_callback)
        return plan, ends


@dataclass(frozen=True, slots=True)
class Chain(Composed):
    """Parts that come one after the other. Made by chain()."""

    def plan(self, plan: Plan, before: Ends) -> Ends:
        """Add each after the one before it."""
        for part in self.parts:
            before = part.plan(plan, before)
        return before


@dataclass(frozen=True, slots=True)
class Group(Composed):
    """Parts that run side by side. Made by group()."""

    def plan(self, plan: Plan, before: Ends) -> Ends:
        """Add all of them after what stands before; each has one result."""
        if not self.parts:
            return Ends(plan.gather(before, takes=False).places)
        if before.is_list:
            before = plan.gather(before)
        places: list[int] = []
        for part in self.parts:
            ends = part.plan(plan, before)
            if ends.is_list:
                ends = plan.gather(ends)
            places += ends.places
        return Ends(tuple(places), is_list=True)


def chain(
    *parts: object, name: str = "chain", on_error: Signature[Any] | None = None
) -> Chain:
    """
    Return parts that come one after the other, each with the result of the one before.

        chain(fetch.s(url), parse.s(), store.s()).delay()
        (fetch.s(url) | parse.s() | store.s()).delay()

    Args:
        parts: Signatures, chains and groups; at least one. Of a group the list of its
            results is passed on.
        name: What people call the workflow; up to 255 characters.
        on_error: Called once it has failed: when a step has given up, was cancelled or
            has expired, and nothing more can run. Its first argument says which: a
            dict with workflow, name, failed, and the first ten as steps.

    Raises:
        InvalidArgument: There are none, or one is none of these.
    """
    if len(parts) == 1 and isinstance(parts[0], (list, tuple)):
        parts = tuple(parts[0])
    checked = _checked("chain", parts)
    if not checked:
        raise InvalidArgument(
            task="chain", path="parts", problem="is empty; a chain has at least one"
        )
    flat: list[Part] = []
    for part in checked:
        # What a | b | c makes, and a chain within a chain, is one.
        is_plain = isinstance(part, Chain) and part.error_callback is None
        flat += part.parts if is_plain else [part]  # type: ignore[attr-defined]
    return Chain(tuple(flat), *checked_name("chain", name, on_error))


def group(
    *parts: object, name: str = "group", on_error: Signature[Any] | None = None
) -> Group:
    """
    Return parts that run side by side; the result is the list of theirs, in order.

        group(resize.s(pk, width) for width in (200, 800)).delay().get()

    Args:
        parts: Signatures, chains and groups, or one iterable of them. Of none the
            result is the empty list.
        name: As of chain().
        on_error: As of chain(); once all others have ended.

    Raises:
        InvalidArgument: One is none of these.
    """
    if len(parts) == 1 and isinstance(parts[0], Iterable):
        parts = tuple(parts[0])
    return Group(_checked("group", parts), *checked_name("group", name, on_error))


def chord(
    header: object,
    body: Signature[Any],
    *,
    name: str = "chord",
    on_error: Signature[Any] | None = None,
) -> Chain:
    """
    Return a group, and what is called with the list of its results.

        chord([resize.s(pk, width) for width in (200, 800)], publish.s(pk)).delay()

    Args:
        header: The group, or an iterable of its parts. Of none, the list is empty.
        body: Called once all of them have succeeded.
        name: As of chain().
        on_error: As of chain(); once all others have ended.

    Raises:
        InvalidArgument: One is none of these.
    """
    parts = header if isinstance(header, Group) else group(header)
    return chain(parts, body, name=name, on_error=on_error)


def _checked(what: str, parts: Sequence[object]) -> tuple[Part, ...]:
    for place, part in enumerate(parts):
        if not isinstance(part, Part):
            problem = f"is {shown(part)}; it must be a signature, a chain or a group"
            if hasattr(part, "si"):
                problem = "is a task; say task.s(…), which is a call of it"
            raise InvalidArgument(task=what, path=f"part {place}", problem=problem)
        refuse_on_error(what, f"part {place}", getattr(part, "error_callback", None))
    return tuple(part for part in parts if isinstance(part, Part))


def refuse_on_error(what: str, path: str, said: Signature[Any] | None) -> None:
    """Raise InvalidArgument where a part of a workflow has an on_error of its own."""
    if said is not None:
        problem = (
            "has an on_error of its own, and a workflow has one: say it at the "
            "outermost"
        )
        raise InvalidArgument(task=what, path=path, problem=problem)


def checked_name(
    what: str, name: str, on_error: object = None, *, path: str = "on_error"
) -> tuple[str, Signature[Any] | None]:
    """Return a name and what is called on an error; raise InvalidArgument."""
    check_text(what, "name", name)
    if on_error is not None and not isinstance(on_error, Signature):
        problem = f"is {shown(on_error)}; it must be a signature, task.s(…)"
        raise InvalidArgument(task=what, path=path, problem=problem)
    return name, on_error

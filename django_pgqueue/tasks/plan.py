"""
Plan: the steps of a workflow that is to be stored, each checked, and in what order.

What is said (canvas.py) is made a plan; start() stores it, in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, InvalidOption, WrongState
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.options.lanes import Lane
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import workflows
from django_pgqueue.queues.fair import hint_of
from django_pgqueue.queues.workflows import NewStep
from django_pgqueue.tasks.database import queue_connection
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.options import CallOptions
from django_pgqueue.tasks.payload import check_text
from django_pgqueue.tasks.unique import Rule
from django_pgqueue.tasks.workflow_result import WorkflowResult

# Steps of one workflow, those included that only gather results.
STEPS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Ends:
    """
    The steps that a part of a plan ends with.

    Attributes:
        places: Of the steps.
        is_list: Whether its result is the list of theirs.
        has_result: False: what comes after it takes nothing of it.
    """

    places: tuple[int, ...] = ()
    is_list: bool = False
    has_result: bool = True


class Planned(Protocol):
    """What plans a call as a step. That is an Enqueuer."""

    def as_step(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        settings: Settings,
        filled: Collection[int | str],
    ) -> tuple[NewStep, str | None]: ...


class Unmade(Protocol):
    """A call that is not made yet. That is a signature."""

    @property
    def name(self) -> str: ...
    @property
    def enqueuer(self) -> Planned: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def kwargs(self) -> Mapping[str, Any]: ...
    @property
    def is_immutable(self) -> bool: ...


class Plan:
    """The steps of a workflow that is to be stored, each checked."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.steps: list[NewStep] = []
        # Of each: why nobody can take its result; None: it can be taken.
        self._without_result: list[str | None] = []

    def call(self, signature: Unmade, before: Ends) -> Ends:
        """Add a call; it takes what stands before it, unless it says otherwise."""
        takes = None
        if before.places and before.has_result and not signature.is_immutable:
            takes = "results" if before.is_list else "result"
            self.need_results(signature.name, before.places)
        return self._add_call(signature, takes, after=before.places)

    def step(
        self,
        signature: Unmade,
        *,
        after: Sequence[int],
        fills: Mapping[int | str, int],
        **said: Any,
    ) -> Ends:
        """
        Add a call some of whose arguments are results of other steps.

        Args:
            signature: The call, with None for those.
            after: The places of the steps that it waits for.
            fills: Arguments, by place or name, and the places of the steps.
            said: Other fields of NewStep.
        """
        self.need_results(signature.name, list(fills.values()))
        new, why_not = signature.enqueuer.as_step(
            signature.args, signature.kwargs, self.settings, fills.keys()
        )
        return self._add(replace(new, after=after, fills=fills, **said), why_not)

    def gather(self, before: Ends, *, takes: bool = True) -> Ends:
        """Add a step that has the results of those before it as one list, or none."""
        step = NewStep(
            name="(gather)",
            placement=None,
            after=before.places,
            takes="results" if takes else None,
        )
        return self._add(step, None)

    def barrier(self, places: Sequence[int]) -> Ends:
        """Return what a part comes after that takes nothing of these steps."""
        if not places:
            return Ends()
        step = NewStep(name="(wait)", placement=None, after=places, takes=None)
        return replace(self._add(step, None), has_result=False)

    def on_error(self, signature: Unmade) -> None:
        """Add what is called once the workflow has failed."""
        takes = None if signature.is_immutable else "failure"
        self._add_call(signature, takes, kind="on_error")

    def callback(self, kind: str, signature: Unmade) -> None:
        """Add what is called, with its own arguments, once the workflow has ended."""
        self._add_call(signature, None, kind=kind)

    def need_results(self, name: str, places: Iterable[int]) -> None:
        """Raise InvalidOption where a step takes a result that is not stored."""
        for place in places:
            if (why_not := self._without_result[place]) is not None:
                raise InvalidOption(
                    f"{name} takes the result of {self.steps[place].name}, which has "
                    f"none: {why_not}. Say {name}.si(…), which takes none."
                )

    def _add_call(self, signature: Unmade, takes: str | None, **said: Any) -> Ends:
        args = signature.args if takes is None else (None, *signature.args)
        filled = () if takes is None else (0,)
        new, why_not = signature.enqueuer.as_step(
            args, signature.kwargs, self.settings, filled
        )
        return self._add(replace(new, takes=takes, **said), why_not)

    def _add(self, step: NewStep, why_not: str | None) -> Ends:
        if len(self.steps) >= STEPS_MAX:
            raise InvalidArgument(
                task=step.name,
                path="workflow",
                problem=f"has more than {STEPS_MAX:,} steps; divide it",
            )
        self.steps.append(step)
        self._without_result.append(why_not)
        return Ends((len(self.steps) - 1,))


# Start --------------------------------------------------------------------------------


# Each settle locks the rows of all of them; sql/start_workflow.sql counts them.
BATCHES_AROUND_MAX = 10


def start(
    planned: tuple[Plan, Ends],
    *,
    name: str,
    key: str | None,
    kind: str = "canvas",
    is_open: bool = False,
    deadline: Duration | None = None,
    version: str | None = None,
    parent: int | None = None,
) -> WorkflowResult:
    """
    Store a workflow, and the jobs of those steps that wait for none.

    Args:
        planned: Its steps, and those that it ends with.
        name: Of the workflow.
        key: Of several with the same name and key only the first is stored. None: each.
        kind: "canvas", "batch", "flow" or "saga".
        is_open: Whether steps may be added later.
        deadline: It is cancelled if it has not ended after this duration.
        version: By which declaration it is made.
        parent: The batch that it is in.

    Raises:
        InvalidArgument: The key is no text of 1 to 255 characters, or that of a batch
            that is not in *parent*; or there are more than ten batches around it.
        WrongState: *parent* has ended, or was cancelled.
        WrongDatabase: A transaction is open on another alias.
    """
    if key is not None:
        check_text(name, "key", key)
    lasts = None
    try:
        if deadline is not None:
            lasts = as_timedelta(deadline, name="deadline", zero=False)
    except ValueError as error:
        raise InvalidArgument(task=name, path="deadline", problem=str(error)) from None
    plan, ends = planned
    settings = plan.settings
    connection = queue_connection(name, settings.database)
    tracing: Any = nullcontext()
    if settings.trace:
        from django_pgqueue.tasks.tracing import sending

        tracing = sending("enqueue", name)
    with tracing, connection.cursor() as cursor:
        started = workflows.start(
            cursor,
            name=name,
            key=key,
            steps=list(_carried(plan.steps, settings)),
            ends=ends.places,
            is_list=ends.is_list,
            kind=kind,
            is_open=is_open,
            deadline=lasts,
            version=version,
            parent=parent,
        )
    if started.workflow is None:
        assert parent is not None
        _refuse(name, parent, started.refused)
    result = WorkflowResult(started.workflow, created=bool(started.is_new))
    if started.is_new:
        _announce(connection, plan.steps, started.first_id, settings)
    elif parent is not None and result._read().parent_id != parent:
        problem = (
            f"is that of batch {result.id}, which is not in batch {parent}; take "
            f"another key, or another name"
        )
        raise InvalidArgument(task=name, path="key", problem=problem)
    return result


def _refuse(name: str, parent: int, why: str | None) -> NoReturn:
    """Raise the error of a batch that cannot be in another one."""
    if why == "deep":
        problem = f"is in more than {BATCHES_AROUND_MAX} others; nest them less deeply"
        raise InvalidArgument(task=name, path="batch", problem=problem)
    status = WorkflowResult(parent).status
    raise WrongState(
        parent,
        status,
        "no batch can be stored in it any more. Its own jobs can store some while they "
        "run; others before close().",
        what="Workflow",
    )


def add(workflow: int, plan: Plan, *, name: str) -> bool:
    """Add steps to a batch, in the caller's transaction; False: it has ended."""
    settings = plan.settings
    connection = queue_connection(name, settings.database)
    with connection.cursor() as cursor:
        first = workflows.add(cursor, workflow, list(_carried(plan.steps, settings)))
    if first is not None:
        _announce(connection, plan.steps, first, settings)
    return first is not None


def _carried(steps: list[NewStep], settings: Settings) -> Iterator[NewStep]:
    """Yield the steps with the context of the current span, where there is one."""
    if not settings.trace:
        yield from steps
        return
    from django_pgqueue.tasks.tracing import carry

    for step in steps:
        if (at := step.placement) is None:
            yield step
        else:
            yield replace(step, placement=replace(at, headers=carry(at.headers)))


def _announce(
    connection: Any, steps: list[NewStep], first_id: int | None, settings: Settings
) -> None:
    """Wake workers after the commit, for the steps that have started."""
    first = {
        place
        for place, step in enumerate(steps)
        if not step.after and step.kind == "step"
    }
    if any(steps[place].placement is None for place in first):
        # What gathers nothing has let others start.
        first = set(range(len(steps)))
    hints = {
        at.queue if at.lane is None else hint_of(at.queue, at.lane_policy)
        for place in first
        if (at := steps[place].placement) is not None
    }
    for hint in sorted(hints):
        wake_after_commit(connection, hint)
    if settings.mode == "immediate" and first_id is not None:
        from django_pgqueue.tasks.inline import run_steps

        run_steps(first_id)


# As step ------------------------------------------------------------------------------


def check(
    task: DeclaredTask,
    options: CallOptions,
    rule: Rule | None,
    lane: Lane | None,
    filled: Collection[int | str],
) -> None:
    """
    Raise InvalidOption where a call cannot be a step.

    A step is one job, which exists once its turn has come: not a call that may stand
    for another one, nor one of many that run together.

    Args:
        task: Whose call it is.
        options: What the call says.
        rule: What becomes of a second call.
        lane: Where its job waits for others.
        filled: Its arguments that are results of other steps, by place or name.
    """
    problem = None
    if rule is not None:
        problem = (
            "unique, debounce and throttle let one call stand for another, and a step "
            "is a job of its own: say using(unique=False) for it"
        )
    elif task.options.accumulate is not None:
        problem = "accumulate=… runs many calls as one, and a step is a job of its own"
    elif options.spread is not None:
        problem = "spread() says when jobs of many calls run; say run_after for a step"
    elif filled and lane is not None:
        name_at = task.parameters.name_at
        names = {name_at(to) if isinstance(to, int) else to for to in filled}
        if lane.function is not None or not names.isdisjoint(lane.by):
            problem = (
                "its lane is chosen by an argument that is known only when the step "
                "before it has ended: give it that argument, or another lane"
            )
    if problem is not None:
        raise InvalidOption(f"{task.name} cannot be a step of a workflow: {problem}.")


def why_without_result(
    task: DeclaredTask, queue: str, settings: Settings
) -> str | None:
    """Return why a task's result is not stored; None: it is."""
    options = task.resolve(queue, settings)
    if not options.archive:
        return "it is declared with archive=False"
    if options.ack_policy == "first":
        return 'it is declared with ack_policy="first", and ends before it runs'
    return None

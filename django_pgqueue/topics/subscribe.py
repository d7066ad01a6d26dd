"""
Subscribe: a function that gets each message of a topic, as a job of its own.

    @subscribe("orders.*", queue="billing", where={"country": "FR"}, retries=5)
    def on_order(message: Message) -> None: ...

It is a task of one argument. What the task is told holds for its jobs: retries,
timeout, middleware, contexts, dead letters. Which messages it gets is a row in the
database, so that those who publish know nothing of it.
"""

# Without postponed annotations: the rows of the table are read here.

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.conf import readable_settings
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidArgument,
    TopicError,
    raised_as,
    shown,
)
from django_pgqueue.log.names import Pattern
from django_pgqueue.log.start import LATEST, Start
from django_pgqueue.options.breaker import Backlog
from django_pgqueue.options.lanes import (
    GroupKey,
    Key,
    Lane,
    Limit,
    Rate,
    as_lane,
    check_fair_by,
    check_group,
    check_limit,
    check_rate,
)
from django_pgqueue.options.table import (
    ContextKeywords,
    JobKeywords,
    OneByOneKeywords,
    Option,
    options_of,
    takes,
)
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.declare import DeclaresWithContext, declare_task
from django_pgqueue.tasks.options import problem_of_queue
from django_pgqueue.tasks.task import AsyncTask, Task
from django_pgqueue.topics.lanes import check_of_queue, check_of_task, check_parts

if TYPE_CHECKING:
    # Loaded where a model is subscribed to.
    from django_pgqueue.topics.changes import OfModel

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[Any, Any])

WHERE_BYTES_MAX = 8_192


class MessageLaneKeywords(TypedDict, total=False):
    """As LaneKeywords, of what makes the key of a message."""

    group: Annotated[
        GroupKey | Literal[False] | None,
        Option(
            'What makes the key: "key", that of the message; "name"; a field of its '
            'payload, such as "payload.customer_id"; or a list of these. Jobs of one '
            "key run one at a time, in the order of their messages. True: all of the "
            "task. Or a Group, which says what a failure does. False: no lane, "
            "whatever the task says.",
            check_group,
        ),
    ]
    limit: Annotated[
        Limit | Literal[False] | None,
        Option(
            "A Limit: at most so many at a time, of the task or of each such key.",
            check_limit,
        ),
    ]
    rate: Annotated[
        Rate | Literal[False] | None,
        Option(
            "A Rate: no more than so many in a time, likewise. With a group or a limit "
            "of the same key, both hold.",
            check_rate,
        ),
    ]
    fair_by: Annotated[
        Key | Literal[False] | None,
        Option(
            "What makes a key, likewise: jobs of each value start in turn, however "
            "many of another wait. With no group, limit or rate.",
            check_fair_by,
        ),
    ]


class ChangeKeywords(TypedDict, total=False):
    """What is said of a model, in place of a pattern."""

    on: Annotated[
        Collection[Literal["insert", "update", "delete"]] | None,
        Option(
            'Of a model: which of "insert", "update" and "delete"; all. Each is a '
            "subscription of its own."
        ),
    ]
    fields: Annotated[
        Sequence[str] | None,
        Option(
            "Of a model: only updates that change one of these fields, besides inserts "
            "and deletes. The database looks for one field; of several, the job of an "
            "update that changes none ends without a call."
        ),
    ]
    topic: Annotated[
        str | None,
        Option(
            "Of a model: as its CaptureChanges() says; by default the label in lower "
            'case, "shop.order".'
        ),
    ]


class SubscribeKeywords(
    OneByOneKeywords, MessageLaneKeywords, ChangeKeywords, total=False
):
    """What @subscribe takes besides takes_context."""

    where: Annotated[
        Mapping[str, Any] | None,
        Option(
            "Only messages whose payload contains this JSON object, at most "
            f"{WHERE_BYTES_MAX:,} bytes; the database looks, with ``@>``."
        ),
    ]
    start: Annotated[
        str | datetime | timedelta,
        Option(
            'With which message a new subscription begins: "latest": what is published '
            'from its commit on; "earliest": all that the log still has; a datetime, '
            'or "60 days ago": what was published from then on. Each message makes one '
            "job. An existing subscription does not look at it any more.",
            default=LATEST,
        ),
    ]
    backlog: Annotated[
        Backlog | None,
        Option(
            "A Backlog: how many jobs of its task may wait in its queue, and what is "
            "done beyond that."
        ),
    ]


OF_SUBSCRIBE = options_of(SubscribeKeywords, ContextKeywords)
# What a subscription says of its jobs, and not of their task.
OF_JOBS = options_of(JobKeywords)
OF_LANE = options_of(MessageLaneKeywords)
OF_CHANGE = options_of(ChangeKeywords)


class Subscribes(Protocol):
    """What subscribe(…) returns: a decorator of a function, or of a task."""

    @overload
    def __call__(self, function: T, /) -> T: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One @subscribe, checked; None: as the task says."""

    task: Task[Any, Any]
    pattern: Pattern
    queue: str
    where: str | None  # JSON text.
    start: Start
    priority: int | None = None
    max_attempts: int | None = None
    tags: tuple[str, ...] = ()
    # Where its jobs wait for one another; None: nowhere.
    lane: Lane | None = None
    # How many of them may wait; None: any number.
    backlog: Backlog | None = None
    # What it wants of a model.
    changes: "OfModel | None" = None

    @property
    def route(self) -> tuple[str, str]:
        """What it has alone among those of its task."""
        return self.queue, self.pattern.text

    def says_as(self, other: Self) -> bool:
        """Whether both are of one task and say the same."""
        return _content(self) == _content(other)


class _OfTask:
    """The subscriptions of one task."""

    def __init__(self, function: Callable[..., Any]) -> None:
        # By it, a module that is imported anew is told from a second @subscribe.
        self.function = function
        self.by_route: dict[tuple[str, str], Declaration] = {}


_declared: dict[str, _OfTask] = {}


@overload
def subscribe(
    pattern: Any,
    *,
    takes_context: Literal[True],
    **options: Unpack[SubscribeKeywords],
) -> DeclaresWithContext: ...
@overload
def subscribe(
    pattern: Any,
    *,
    takes_context: Literal[False] = False,
    **options: Unpack[SubscribeKeywords],
) -> Subscribes: ...
@takes("@subscribe", DeclarationError, OF_SUBSCRIBE)
def subscribe(pattern: Any, **options: Any) -> Any:
    """
    Make a function the task of each message that a pattern selects.

        @subscribe("orders.*", queue="billing", where={"country": "FR"})
        def on_order(message: Message) -> None: ...

    Publishing stores a job of it in the same statement as the message. Several
    @subscribe stand above one function, which is one task then; or above a @task, with
    pattern, queue, where, start, backlog, priority, retries, tags and a lane alone. A
    lane is that of one @subscribe, and of what it stands above only where a task says
    it.

    The row is written when a deploy migrates, and when a worker starts. It is never
    deleted or disabled by itself: once no code declares it, it is shown as stale.

    Args:
        pattern: "orders": every message of that topic, "orders.created": those of that
            name, ``*`` for a word: ``"orders.*"``, ``"*.created"``; or a topic(). Or
            a model, whose changes a migration captures: the function gets a Change.
        options: Those of the table; help() and the reference tell each. Above a task,
            what is said of the jobs alone.

    Raises:
        TopicError: The pattern, where or start is wrong; or the function is subscribed
            to the pattern already, in the same queue and with other words.
        DeclarationError: The function does not take one argument, the message; an
            option is wrong, as in task(); one of the task stands above a task; that
            task has unique, debounce, throttle or accumulate, which do not hold for
            jobs that are made in the database; or a lane has a key that is none of a
            message; on, fields or topic is said of a pattern, or a model of a task.
    """
    selected = list(_selected(pattern, options))
    begins = Start.parse(options.pop("start", LATEST))
    backlog = checked_backlog(options.pop("backlog", None))
    lane = _own_lane(options)

    def declare_it(function: Any) -> Task[Any, Any]:
        own: dict[str, Any] = {}
        changes = selected[0].changes
        if isinstance(function, Task):
            _refuse_options_of_task(function, options)
            task, own = function, _own_options(options)
            if changes is not None:
                raise DeclarationError(
                    f"@subscribe({changes.label}) stands above the task {task.name}: "
                    f"it goes on a function, which gets a Change."
                )
        elif changes is not None:
            from django_pgqueue.topics.changes import takes_change

            task = declare_task(takes_change(function, changes.columns), options)
        else:
            task = declare_task(function, options)
        _check_task(task)
        queue = own.pop("queue", None) or task.options.queue or QUEUE_DEFAULT
        if problem := problem_of_queue(queue):
            raise DeclarationError(f"@subscribe of {task.name}: {problem}")
        for each in selected:
            declaration = Declaration(
                task=task,
                pattern=each.pattern,
                queue=queue,
                where=each.where,
                start=begins,
                lane=_lane_for(task, queue, lane),
                backlog=backlog,
                changes=each.changes,
                **own,
            )
            _add(declaration)
        return task

    return declare_it


def declared() -> list[Declaration]:
    """Return what @subscribe has declared, by task, queue and pattern."""
    return [
        _declared[name].by_route[route]
        for name in sorted(_declared)
        for route in sorted(_declared[name].by_route)
    ]


class _Selected(NamedTuple):
    """Which messages one row selects."""

    pattern: Pattern
    where: str | None
    changes: "OfModel | None" = None


def _selected(pattern: Any, options: dict[str, Any]) -> Iterator[_Selected]:
    """Take out of *options* what says which messages are wanted; yield it by rows."""
    where = options.pop("where", None)
    said = {name: options.pop(name, None) for name in OF_CHANGE}
    if isinstance(pattern, type) and hasattr(pattern, "_meta"):
        from django_pgqueue.topics.changes import wanted_changes

        for each in wanted_changes(pattern, **said):
            both = each.where if where is None else _joined(where, each)
            yield _Selected(Pattern.parse(each.pattern), checked_where(both), each)
        return
    for name, value in said.items():
        if value is not None:
            raise DeclarationError(
                f"@subscribe({name}=…) is said of a model, and {shown(pattern)} is a "
                f"pattern. Say where=…, of what is in the payload."
            )
    yield _Selected(
        Pattern.parse(getattr(pattern, "name", pattern)), checked_where(where)
    )


def _joined(where: Any, changes: "OfModel") -> Any:
    """Return what a user wants of a change, and what makes it one of the model."""
    if not isinstance(where, Mapping):
        return where  # It is refused.
    for name in changes.where:
        if name in where:
            raise TopicError(
                f"@subscribe({changes.label}, where=…) has {name!r}, which the model "
                f"and fields=[…] say."
            )
    return {**where, **changes.where}


def _add(declaration: Declaration) -> None:
    """Keep it; what an earlier import of its module has said is forgotten."""
    task = declaration.task
    known = _declared.get(task.name)
    if known is None or known.function is not task.function:
        known = _declared[task.name] = _OfTask(task.function)
    other = known.by_route.get(declaration.route)
    if other is not None and not other.says_as(declaration):
        raise TopicError(
            f"{task.name} is subscribed to {declaration.pattern.text!r} in the queue "
            f"{declaration.queue!r} twice, with other options: each message would have "
            f"two jobs. Say it once, or name another queue."
        )
    known.by_route[declaration.route] = declaration
    task.receives = tuple(
        (each.queue, each.pattern) for each in known.by_route.values()
    )


def _content(declaration: Declaration) -> tuple[Any, ...]:
    each = declaration
    return (
        *(each.task.name, each.route, each.where, each.start),
        *(each.priority, each.max_attempts, each.tags, each.lane, each.backlog),
        each.changes,
    )


def checked_backlog(backlog: object) -> Backlog | None:
    """Return *backlog*, or raise DeclarationError."""
    if backlog is None or isinstance(backlog, Backlog):
        return backlog
    raise DeclarationError(
        f"@subscribe(backlog={shown(backlog)}): it must be a Backlog, such as "
        f"Backlog(100_000, on_full='pause')."
    )


def checked_where(where: object) -> str | None:
    """Return *where* as JSON text."""
    if where is None:
        return None
    if not isinstance(where, Mapping):
        raise TopicError(
            f"where={shown(where)}: it must be a dict, such as {{'country': 'FR'}}: "
            f"what the payload of a message must contain."
        )
    try:
        text = payload.encode_value(dict(where))
    except ValueError as error:
        raise TopicError(f"where: {error}.") from None
    size = len(text.encode())
    if size > WHERE_BYTES_MAX:
        raise TopicError(
            f"where takes {size:,} bytes as JSON; the limit is {WHERE_BYTES_MAX:,}. "
            f"Look at the message in the function."
        )
    return text


def _refuse_options_of_task(task: Task[Any, Any], options: Mapping[str, Any]) -> None:
    for option in [name for name in options if name not in OF_JOBS]:
        if options[option] not in (None, False, (), []):
            raise DeclarationError(
                f"@subscribe({option}=…) stands above the task {task.name}: that is "
                f"an option of the task. Say it in @task, or in the innermost "
                f"@subscribe."
            )


def _own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a subscription says of its jobs beside their task."""
    with raised_as(DeclarationError, "@subscribe: "):
        own = {
            name: option.check(options[name])
            for name, option in OF_JOBS.items()
            if options.get(name) is not None
        }
    if "retries" in own:
        own["max_attempts"] = own.pop("retries").max_attempts
    return own


def _own_lane(options: dict[str, Any]) -> Lane | Literal[False] | None:
    """Take what is said of a lane out of *options*; None: nothing, False: none."""
    said = {name: options.pop(name, None) for name in OF_LANE}
    with raised_as(DeclarationError, "@subscribe: "):
        lane = as_lane(
            *(
                None if said[name] is None else option.check(said[name])
                for name, option in OF_LANE.items()
            )
        )
    if lane:
        check_parts(lane)
    return lane


def _lane_for(
    task: Task[Any, Any], queue: str, own: Lane | Literal[False] | None
) -> Lane | None:
    """Return the lane that holds: a subscription's own, or else the task's."""
    if own is not None:
        return own or None
    if task.options.lane is not None:
        check_of_task(task.name, task.options.lane)
    elif names := readable_settings().fair_by(queue):
        check_of_queue(task.name, queue, names)
    return task.options.lane


def _check_task(task: Task[Any, Any]) -> None:
    """Raise DeclarationError unless a message can be its one argument."""
    options = task.options
    if options.accumulate is not None:
        raise DeclarationError(
            f"@subscribe: {task.name} has accumulate=…, which gathers calls of "
            f"delay(), and not messages. To get many messages at once: "
            f"@consume(batch=…)."
        )
    if options.rule is not None:
        raise DeclarationError(
            f"@subscribe: {task.name} has unique, debounce or throttle, and every "
            f"message makes a job. Let the function enqueue a task that has it."
        )
    try:
        task.bind((None,), {})
    except InvalidArgument as error:
        raise DeclarationError(
            f"@subscribe: {task.name} must take one argument, the message: {error}"
        ) from None

"""
Lanes: which lane each job of a call goes into.

Its name is that of the task, and the texts of the values that make its key; of a key
that is None there is none, and the job waits for nobody.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from django_pgqueue.bounds import FAIR, LANE_SEPARATOR
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.options.lanes import Lane, fair_lane_of, shortened
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues.enqueue import Placement
from django_pgqueue.queues.fair import HINT as FAIR_HINT
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.tasks import keys, payload
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.spread import Item, Spread

if TYPE_CHECKING:
    from django_pgqueue.queues.enqueue_rows import Argument, KeyPart


def lane_in(
    task: DeclaredTask,
    said: Lane | Literal[False] | None,
    queue: str,
    settings: Settings,
) -> Lane | None:
    """
    Return the lane for jobs of *task* in *queue*; None: they wait for nobody.

    Args:
        task: Whose jobs they are.
        said: By the call or the task; False: none, whatever the queue says; None:
            nothing was said.
        queue: Where they go, which may be shared by key.
        settings: PGQUEUE.
    """
    names = settings.fair_by(queue)
    if said is not None or not names:
        return said or None
    options = task.options
    if options.rule is not None or options.accumulate is not None:
        return None
    # Jobs of others take no turns.
    if not all(map(task.parameters.takes, names)):
        return None
    return fair_lane_of(queue, names)


def lane_of(
    task: DeclaredTask, lane: Lane, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """
    Return the lane of a job; None: it waits for nobody.

    Args:
        task: Whose job it is.
        lane: What the task or the call says.
        args: Positional arguments that fit the task.
        kwargs: Keyword arguments, likewise.

    Raises:
        InvalidArgument: A value of the key is of no kind that has one text.
    """
    if lane.function is not None:
        values = {"key": lane.function(*args, **kwargs)}
    else:
        find = task.parameters.value
        values = {name: find(name, args, kwargs, keys.MISSING) for name in lane.by}
    texts = [lane.queue or task.name]
    for name, value in values.items():
        if value is None:
            return None
        text = keys.key_text(value)
        if text is None or not is_stored(text):
            raise keys.misfit(task, name, value, _needs(lane))
        texts.append(text)
    return shortened(LANE_SEPARATOR.join(texts))


def announce(connection: Any, placement: Placement) -> None:
    """Arrange that workers hear of jobs with lanes, once they are committed."""
    if placement.lane_policy == FAIR:
        # Claims look there; those of them that have no lane are claimed as well.
        wake_after_commit(connection, f"{FAIR_HINT}{placement.queue}")
        return
    wake_after_commit(connection, LANES_HINT, tells_age=True)
    if placement.lane is None:
        wake_after_commit(connection, placement.queue)


def lane_of_stored(
    task: DeclaredTask, lane: Lane, args: str, kwargs: str
) -> str | None:
    """
    Return the lane of a job by its arguments as they are stored; as lane_of().

    Raises:
        InvalidArgument: As there; or they cannot be read, or the function that makes
            the key fails.
    """
    try:
        fetches = lane.function is not None
        return lane_of(task, lane, *payload.decode(args, kwargs, fetches=fetches))
    except InvalidArgument:
        raise
    except Exception as error:
        raise InvalidArgument(
            task=task.name,
            path="arguments",
            problem=f"say no lane: {lane.option}= fails with "
            f"{type(error).__name__}({shown(str(error))})",
        ) from error


def is_stored(text: str) -> bool:
    """Whether PostgreSQL can store *text*; what a function returns may be any."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def encode_items(
    task: DeclaredTask,
    spread: Spread | None,
    lane: Lane | None,
    typed_by: Settings | None,
    start: int,
    items: Sequence[Item],
    payload_bytes_max: int,
) -> list[Items]:
    """
    Return the arguments of items of bulk(), with their offsets and their lanes.

    Args:
        task: Whose jobs they are.
        spread: The window of their moments.
        lane: Where they wait for one another.
        typed_by: PGQUEUE, if each must be what the type hints say.
        start: As of DeclaredTask.encode_items(), and the rest likewise.
        items: Some of those that bulk() was given.
        payload_bytes_max: The most bytes that one of them may take.
    """
    encoded = task.encode_items(start, items, payload_bytes_max)
    if spread is not None and spread.by:
        of_one: Callable[..., Any] = functools.partial(keys.offset_of, task, spread)
        offsets = keys.of_items(task, items, start, of_one)
        encoded = keys.shared_out(encoded, "offsets", offsets)
    if lane is not None:
        of_one = functools.partial(lane_of, task, lane)
        names = keys.of_items(task, items, start, of_one)
        encoded = keys.shared_out(encoded, "lanes", names)
    if typed_by is not None:
        of_one = functools.partial(task.check_types, settings=typed_by)
        keys.of_items(task, items, start, of_one)
    return encoded


def key_of(
    task: DeclaredTask,
    lane: Lane,
    fields: Mapping[str, Any],
    arguments: Sequence[Argument],
) -> list[KeyPart]:
    """
    Return what the lanes of from_queryset() are made of; see keys.of_fields().

    Raises:
        InvalidArgument: As there; or a function makes the key, which the database
            cannot call.
    """
    from django_pgqueue.queues.enqueue_rows import KeyPart

    if lane.function is not None:
        raise InvalidArgument(
            task=task.name,
            path="fields",
            problem=f"do not come to Python, where {lane.option}= is a function: "
            f"name parameters in its place, or use bulk()",
        )
    of_fields = keys.of_fields(
        task, lane.by, fields, arguments, needs=_needs(lane), may_be_none=True
    )
    return [KeyPart(None, lane.queue or task.name), *of_fields]


def _needs(lane: Lane) -> str:
    return f"{lane.option}= needs {keys.FIT}, or None to wait for nobody"

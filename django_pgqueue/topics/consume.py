"""
Consume: a function that reads a topic's log, batch by batch, in order.

    @consume("clicks", group="stats", start="earliest", batch=500, atomic=True)
    def count(messages: list[Message]) -> None: ...

Each group reads everything, each at its own pace; messages of one key come in their
order. It is a task of one argument besides, so that a dead letter can be redriven: then
it gets a list of one.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, cast

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidArgument,
    TopicError,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.log.message import Message
from django_pgqueue.log.names import check_topic
from django_pgqueue.log.read import BATCH_BYTES_DEFAULT
from django_pgqueue.log.start import LATEST, Start
from django_pgqueue.options.checks import AckPolicy, check_queue
from django_pgqueue.options.durations import Duration, as_bytes_within, as_timedelta
from django_pgqueue.options.retry import Retry, as_retry
from django_pgqueue.tasks.declare import Declares, declare_task
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.task import Task
from django_pgqueue.topics import subscribe as subscriptions
from django_pgqueue.topics.subscribe import checked_where, subscribe

OnError = Literal["skip", "retry", "halt"]
ON_ERROR: tuple[OnError, ...] = ("skip", "retry", "halt")

BATCH_MESSAGES_DEFAULT, BATCH_MESSAGES_MAX = 500, 10_000
# Of text; what Python makes of it takes several times as much memory.
BATCH_BYTES_MIN, BATCH_BYTES_MAX = 1_024, 1_073_741_824
GROUP_RETRIES_DEFAULT = 4
GROUP_LEASE_DEFAULT = "60s"
GROUP_LEASE_MIN, GROUP_LEASE_MAX = timedelta(seconds=1), timedelta(days=1)
READERS_MAX = 256

BATCH, PER_MESSAGE = "batch", "per-message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One @consume, checked."""

    task: Task[Any, Any]
    topic: str
    group: str
    start: Start
    batch: int
    # Of the text of a batch, unless one message alone has more.
    batch_bytes: int
    is_atomic: bool
    where: str | None  # JSON text.
    on_error: OnError
    retry: Retry
    lease: timedelta
    queue: str
    # Threads of each worker process that serves the queue.
    readers: int
    ack_policy: AckPolicy

    def __str__(self) -> str:
        return f"{self.topic}/{self.group}"


_declared: dict[tuple[str, str], Consumer] = {}


def consume(
    topic: Any,
    *,
    group: str,
    start: str | datetime | timedelta = LATEST,
    batch: int = BATCH_MESSAGES_DEFAULT,
    batch_bytes: int | str = BATCH_BYTES_DEFAULT,
    atomic: bool = False,
    where: Mapping[str, Any] | None = None,
    on_error: OnError = "skip",
    retries: Retry | int = GROUP_RETRIES_DEFAULT,
    lease: Duration = GROUP_LEASE_DEFAULT,
    queue: str = QUEUE_DEFAULT,
    readers: int = 1,
    ack_policy: AckPolicy = "on_success",
    mode: Literal["batch", "per-message"] = "batch",
    name: str | None = None,
    aliases: Sequence[str] = (),
) -> Declares:
    """
    Make a function the handler of a topic's log: it gets lists of messages.

        @consume("clicks", group="stats", start="earliest", atomic=True)
        def count(messages: list[Message]) -> None: ...

    Workers that serve the queue read. Each partition of the topic is read by one reader
    at a time, in the order of ids; the group's position moves when the function has
    returned. A group begins where *start* says when its row is made, at a deploy or a
    worker's start, and goes on from its position ever after.

    Args:
        topic: A topic's name, or a topic().
        group: 1 to 63 letters, digits, "_" and "-". Groups know nothing of each other.
        start: With which message a new group begins: "latest": what is published from
            now on; "earliest": all that the log still has; a datetime, or "60 days
            ago": what was published from then on.
        batch: The most messages of one call, 1 to 10,000.
        batch_bytes: The most that payloads and headers of one call have as JSON text:
            a number of bytes, or text such as "4MB"; 1 kB to 1 GB, 16 MiB if not said.
            One message is handed over however large it is.
        atomic: Run the function and move the position in one transaction of the jobs'
            database: its writes there happen exactly once. Plain functions only.
            Without it, a batch comes again after a crash.
        where: Only messages whose payload contains this JSON object; the database
            looks, with ``@>``.
        on_error: What is done about a message that fails every attempt: "skip": it
            becomes a dead letter and the group goes on; "halt": the partition waits
            until somebody resumes it or seeks; "retry": it is tried for ever.
        retries: A number, or a Retry, of a message that fails. A batch that fails is
            tried once more, and then message by message.
        lease: How long a reader may take for a batch, 1 s to 1 day. Then TaskTimeout is
            raised in the function, its transaction is ended, and another reader gets
            the partition. Nothing renews it meanwhile.
        queue: Workers that serve it read; its dead letters stand there.
        readers: Threads that read for this group in each worker process, 1 to 256. No
            more than the topic has partitions are busy at once, over all processes.
        ack_policy: "on_success": the position moves after the function; "first":
            before it, so that no message comes twice, and what fails is only logged;
            "reject_on_error": a failure is not retried; "manual": the function gets
            Messages, and its position moves to the last one that it has acked in
            order. What is not acked comes again: at once where some were, else as
            after a failure.
        mode: "batch"; "per-message": a subscription, whose jobs are made as messages
            are published. The function then gets one message, as with @subscribe; only
            topic, start, where, retries, queue, atomic, ack_policy, name and aliases
            can be said.
        name: Of the task; by default the function's import path.
        aliases: As in task().

    Raises:
        TopicError: The topic, group, start or where is wrong, or another function
            reads as this group already.
        DeclarationError: The function does not take one argument, or an option is out
            of its range.
    """
    topic_name = check_topic(getattr(topic, "name", topic))
    _check_word(group)
    if mode not in (BATCH, PER_MESSAGE):
        raise DeclarationError(
            f"@consume(mode={shown(mode)}): it must be 'batch' or 'per-message'."
        )
    if mode == PER_MESSAGE:
        _refuse_of_batches(batch, batch_bytes, on_error, lease, readers)
        made = subscribe(
            topic_name,
            queue=queue,
            where=where,
            start=start,
            retries=None if ack_policy in ONCE else retries,
            ack_policy=ack_policy,
            atomic=atomic,
            name=name,
            aliases=aliases,
        )
        return cast("Declares", made)
    values: dict[str, Any] = {
        "topic": topic_name,
        "group": group,
        "start": Start.parse(start),
        "batch": _number("batch", batch, BATCH_MESSAGES_MAX),
        "batch_bytes": _bytes(batch_bytes),
        "where": checked_where(where),
        "on_error": _on_error(on_error),
        "lease": _lease(lease),
        "queue": _queue(queue),
        "readers": _number("readers", readers, READERS_MAX),
        "ack_policy": _ack_policy(ack_policy, atomic=atomic),
        "retry": Retry(max_attempts=1) if ack_policy in ONCE else _retry(retries),
    }

    def declare_it(function: Any) -> Task[Any, Any]:
        if isinstance(function, Task):
            raise DeclarationError(
                f"@consume goes on a function, and got {shown(function)}: call the "
                f"task from the function."
            )
        if ack_policy == "manual":
            from django_pgqueue.topics.acked import acking

            function = acking(function)
        options = {
            "queue": values["queue"],
            "retries": None if ack_policy in ONCE else retries,
            "atomic": atomic,
            # Of jobs, such as a dead letter that is redriven: acking() sees to it.
            "ack_policy": "on_success" if ack_policy == "manual" else ack_policy,
            "name": name,
            "aliases": aliases,
        }
        task = declare_task(function, options)
        _check_task(task)
        _add(Consumer(task=task, is_atomic=task.options.atomic, **values))
        return task

    return cast("Declares", declare_it)


# Policies by which nothing is tried again.
ONCE = ("first", "reject_on_error")


def declared() -> list[Consumer]:
    """Return what @consume has declared, by topic and group."""
    return [_declared[name] for name in sorted(_declared)]


def _add(consumer: Consumer) -> None:
    name = (consumer.topic, consumer.group)
    other = _declared.get(name)
    if other is not None and other.task.name != consumer.task.name:
        raise TopicError(
            f"Two functions read {consumer.topic!r} as the group {consumer.group!r}: "
            f"{other.task.name} and {consumer.task.name}. Each would get a part of the "
            f"messages. Give each a group of its own."
        )
    _declared[name] = consumer


def _check_word(group: object) -> None:
    try:
        check_topic(group)
    except TopicError:
        raise TopicError(
            f"group={shown(group)}: write 1 to 63 letters, digits, '_' and '-'."
        ) from None


def _check_task(task: Task[Any, Any]) -> None:
    try:
        task.bind(([],), {})
    except InvalidArgument as error:
        raise DeclarationError(
            f"@consume: {task.name} must take one argument, the list of messages: "
            f"{error}"
        ) from None


def _number(option: str, value: object, most: int) -> int:
    return check_whole(f"@consume({option}={{}})", value, most, DeclarationError)


def _bytes(value: int | str) -> int:
    with raised_as(DeclarationError, "@consume: "):
        return as_bytes_within(
            value, name="batch_bytes", least=BATCH_BYTES_MIN, most=BATCH_BYTES_MAX
        )


def _on_error(value: object) -> OnError:
    for known in ON_ERROR:
        if value == known:
            return known
    raise DeclarationError(
        f"@consume(on_error={shown(value)}): it must be 'skip', 'retry' or 'halt'."
    )


def _lease(value: Duration) -> timedelta:
    with raised_as(DeclarationError, "@consume: "):
        lease = as_timedelta(value, name="lease")
    if not GROUP_LEASE_MIN <= lease <= GROUP_LEASE_MAX:
        raise DeclarationError(
            f"@consume(lease={shown(value)}): it must be from 1 second to 1 day: how "
            f"long a batch may take."
        )
    return lease


def _retry(value: Retry | int) -> Retry:
    retry = as_retry(value)
    if retry is None:
        raise DeclarationError(
            "@consume(retries=None): it must be a number, or Retry(…)."
        )
    if retry.max_age is not None:
        raise DeclarationError(
            f"@consume(retries=Retry(max_age={shown(retry.max_age)})): a message may "
            f"be old when a group reads it. Say how often: Retry(max_attempts=…)."
        )
    return retry


def _queue(value: object) -> str:
    with raised_as(DeclarationError, "@consume: "):
        return check_queue(value)


def _ack_policy(value: AckPolicy, *, atomic: bool) -> AckPolicy:
    if value == "manual" and atomic:
        raise DeclarationError(
            "@consume(ack_policy='manual', atomic=True) cannot be: what an atomic "
            "function has written is committed for all messages or for none. Say one "
            "of the two."
        )
    return value


def _refuse_of_batches(
    batch: int, batch_bytes: int | str, on_error: str, lease: Duration, readers: int
) -> None:
    given = {
        "batch": (batch, BATCH_MESSAGES_DEFAULT),
        "batch_bytes": (batch_bytes, BATCH_BYTES_DEFAULT),
        "on_error": (on_error, "skip"),
        "lease": (lease, GROUP_LEASE_DEFAULT),
        "readers": (readers, 1),
    }
    for option, (value, default) in given.items():
        if value != default:
            raise DeclarationError(
                f"@consume(mode='per-message', {option}={shown(value)}): each message "
                f"is a job, and {option} is of groups that read batches."
            )


# Type hints of handlers --------------------------------------------------------------


class MistypedHandler(NamedTuple):
    """A handler whose type hint does not allow the argument that it gets."""

    task: str
    # As its hint says.
    expects: str
    gets: str
    # The topic whose schema the hint may mean; None if there are several.
    topic: str | None


def mistyped_handlers() -> Iterator[MistypedHandler]:
    """Return subscribers that do not take a message, and consumers without a list."""
    of_tasks = {each.task.name: each for each in subscriptions.declared()}
    for each in of_tasks.values():
        hint = _hint(each.task)
        if not _may_be(hint, Message):
            topic = each.pattern.topic
            yield MistypedHandler(each.task.name, _hint_text(hint), "a Message", topic)
    for reader in declared():
        hint = _hint(reader.task)
        items = typing.get_args(hint)
        if not _may_be(typing.get_origin(hint) or hint, list) or (
            len(items) == 1 and not _may_be(items[0], Message)
        ):
            yield MistypedHandler(
                reader.task.name, _hint_text(hint), "a list of Messages", reader.topic
            )


def _hint(task: DeclaredTask) -> Any:
    """Return the hint of the first parameter, or Any if it cannot be read."""
    try:
        return next(iter(task.hints.types.values()), Any)
    except DeclarationError:
        return Any


def _may_be(hint: Any, kind: type) -> bool:
    """Whether a value of *kind* may be what a hint says; True where that is unclear."""
    # Since Python 3.11, Any is a class.
    is_plain = isinstance(hint, type) and hint is not Any
    return not is_plain or issubclass(kind, hint)


def _hint_text(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)

"""
Topic: where messages are published.

    orders = topic("orders", schema=OrderEvent, partitions=16, retain="60d")
    orders.publish("orders.created", {"id": 42}, key="c7")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from django_pgqueue.bounds import LOG_BYTES_MAX, LOG_BYTES_MIN
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import TopicError, raised_as, shown
from django_pgqueue.log.message import Message
from django_pgqueue.log.names import (
    PARTITIONS_DEFAULT,
    are_plain_keys,
    check_key,
    check_name,
    check_partitions,
    check_topic,
)
from django_pgqueue.options.checks import When, check_check_types
from django_pgqueue.options.durations import Duration, as_bytes_within, as_timedelta
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks.database import twin
from django_pgqueue.tasks.payload import encode_plain
from django_pgqueue.topics import operate_groups
from django_pgqueue.topics import publish as publishing
from django_pgqueue.topics.group import Group
from django_pgqueue.topics.registry import (
    Declared,
    check_schema,
    declare,
    from_payload,
    schema_of,
)
from django_pgqueue.topics.write_after import Publication

if TYPE_CHECKING:
    from django_pgqueue.topics.replay import Replay

# Payloads that are written as JSON together, as in tasks/enqueuer.py.
TOGETHER = 250

# Headers of a message that has none.
EMPTY: dict[str, Any] = {}


class Topic:
    """A topic, by its name; topic() makes one."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = check_topic(name)

    @overload
    def publish(
        self,
        payload: Any,
        /,
        *,
        key: str | int | None = None,
        headers: Mapping[str, Any] | None = None,
        run_after: When | None = None,
    ) -> int: ...

    @overload
    def publish(
        self,
        name: str,
        payload: Any,
        /,
        *,
        key: str | int | None = None,
        headers: Mapping[str, Any] | None = None,
        run_after: When | None = None,
    ) -> int: ...

    def publish(
        self,
        *content: Any,
        key: str | int | None = None,
        headers: Mapping[str, Any] | None = None,
        run_after: When | None = None,
    ) -> int:
        """
        Publish one message, in the caller's transaction: one query.

            orders.publish("orders.created", {"id": 42}, key="c7")
            clicks.publish({"path": "/"}, key=visitor)

        Args:
            content: The payload; or the message's name and the payload. Without a name
                the message is called as the topic.
            key: A text of 1 to 1,000 characters, or an int: messages of one key keep
                their order.
            headers: A dict for whoever reads it; reserved keys are refused.
            run_after: A datetime, or a duration from now on the database's clock: it
                is published then, and can be cancelled until then. None: at once.

        Returns:
            The message's id. With run_after it is below zero, for cancel_message().

        Raises:
            TopicError: The name is not of this topic, the key cannot be, or the
                payload does not fit the schema.
            InvalidArgument, InvalidOption, PayloadTooLarge, WrongDatabase: As the
                function publish().
        """
        made = self.message(*content, key=key, headers=headers, run_after=run_after)
        return publishing.publish_one(made)

    apublish = twin(publish)

    def publish_many(
        self,
        items: Iterable[Any],
        *,
        name: str | None = None,
        key: str | Callable[[Any], object] | None = None,
        headers: Mapping[str, Any] | None = None,
        run_after: When | None = None,
    ) -> list[int]:
        """
        Publish many messages: all or nothing, one statement per 5,000.

            clicks.publish_many([{"path": "/", "visitor": "v1"}, …], key="visitor")

        Args:
            items: Payloads; or what message() returns, each with its own name, key
                and headers.
            name: What messages made of payloads are called; by default as the topic.
            key: Of those: a field of each payload, or a function that is given it.
            headers: Of those.
            run_after: Of those.

        Returns:
            Their ids, which rise in the order of the items; of what is published later,
            they are below zero, and fall.

        Raises:
            TopicError: An item is of another topic, or a payload has no such field.
            InvalidArgument, PayloadTooLarge, WrongDatabase: As publish(); nothing is
                published.
        """
        called = self.name if name is None else check_name(name, self.name)
        batches: list[Items | Publication] = []
        if type(items) is list or type(items) is tuple:
            for start in range(0, len(items), TOGETHER):
                together = items[start : start + TOGETHER]
                batches += self._encode(together, called, key, headers, run_after)
        else:
            # Each at once: a generator may yield one dict again and again, and change
            # what is in it between.
            for item in items:
                batches += self._encode((item,), called, key, headers, run_after)
        at_once = [each for each in batches if isinstance(each, Items)]
        later = [
            Items(each.item(), 1) for each in batches if isinstance(each, Publication)
        ]
        published, scheduled = (
            iter(ids.get(self.name, ()))
            for ids in publishing.store(
                {self.name: at_once} if at_once else {},
                {self.name: later} if later else {},
            )
        )
        return [
            message_id
            for each in batches
            for message_id in (
                [next(scheduled)]
                if isinstance(each, Publication)
                else islice(published, each.jobs)
            )
        ]

    apublish_many = twin(publish_many)

    def message(
        self,
        *content: Any,
        key: object = None,
        headers: Mapping[str, Any] | None = None,
        run_after: When | None = None,
    ) -> Publication:
        """
        Return a message that is checked and not published yet.

        For publish_many(), each with a moment of its own if you like, and for a
        schedule that publishes. Arguments and errors are those of publish().
        """
        if not 1 <= len(content) <= 2:
            raise TopicError(
                f"A message of {self.name!r} takes its payload, or its name and its "
                f"payload; {len(content)} arguments were given."
            )
        name = self.name if len(content) == 1 else check_name(content[0], self.name)
        return publishing.message(
            name, content[-1], key=key, headers=headers, run_after=run_after
        )

    def group(self, name: str) -> Group:
        """
        Return a consumer group of this topic, to be asked and moved.

        Args:
            name: As @consume(group=…) says it.

        Raises:
            TopicError: No group can be called so.
        """
        return Group(self.name, name)

    def replay(
        self,
        *,
        to: Any,
        since: int | str | datetime | timedelta,
        until: int | str | datetime | timedelta | None = None,
        where: Mapping[str, Any] | None = None,
        rate: int | None = None,
        by: str = "",
        reason: str = "",
    ) -> Replay:
        """
        Have messages of the log once more, as jobs of somebody who exists.

            clicks.replay(to="subscription:mail/clicks.*", since="2 days ago")

        The worker that leads makes the jobs, in the order of the messages, each once.
        They run beside what is published meanwhile, and in no order among themselves
        but that of their lanes: where order matters, let a group read again by seek().
        Their headers have "pgqueue.replay", the number of this replay.

        Args:
            to: "subscription:QUEUE/PATTERN", or the function of @subscribe: it gets a
                job for each message that it wants. "group:NAME", a Group, or the
                function of @consume: its task gets a job with a list of one message,
                as of a dead letter, and its position does not move. "queue:NAME", of
                a pull queue: it gets a copy of each.
            since: The first message: its id, "earliest", a datetime, or "2 days ago".
            until: The last message, by its id; or a time before which it was published.
                None: what is published by now.
            where: Only messages whose payload contains this JSON object.
            rate: So many messages a second at most, 1 to 100,000; None: as fast as it
                goes.
            by: Who asks; at most 150 characters.
            reason: Why; at most 2,000 characters.

        Raises:
            InvalidOption: A text is too long.
            MessagesLost: Retention has removed messages of the range.
            TopicError: There is no such topic, place or receiver.
        """
        from django_pgqueue.topics import replay

        if isinstance(to, Group):
            if to.topic != self.name:
                raise TopicError(
                    f"to={to!r} is a group of another topic than {self.name!r}: it "
                    f"does not read this log."
                )
            to = f"group:{to.name}"
        replay.check_rate(rate)
        meant = replay.plan(self.name, to, since=since, until=until, where=where)
        return replay.begin(meant, by=by, reason=reason, per_second=rate)

    areplay = twin(replay)

    def repartition(self, partitions: int) -> bool:
        """
        Let the topic have so many partitions, while it is published to and read.

        From the commit on, where a transaction is open. Messages of one key keep their
        order in each group; none is lost, and nobody waits. Say the same number where
        the topic is declared.

        Args:
            partitions: 1 to 256.

        Returns:
            False: it has so many already.

        Raises:
            TopicError: It cannot have so many; there is no such topic; or it is called
                in a transaction that is not READ COMMITTED.
        """
        return operate_groups.repartition(self.name, partitions)

    arepartition = twin(repartition)

    def read(self, message: Message) -> Any:
        """
        Return a message's payload as an instance of the topic's schema.

        Without a schema, the payload. Raises what the class raises about values that
        do not fit, as those of an older schema may.
        """
        schema = schema_of(self.name)
        payload = message.payload
        return payload if schema is None else from_payload(schema, payload)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and other.name == self.name

    def __hash__(self) -> int:
        return hash((Topic, self.name))

    def __repr__(self) -> str:
        return f"topic({self.name!r})"

    def _encode(
        self,
        items: Sequence[Any],
        name: str,
        key: str | Callable[[Any], object] | None,
        headers: Mapping[str, Any] | None,
        run_after: When | None,
    ) -> list[Items | Publication]:
        """Return some items as store() takes them, together if they are plain."""
        if not headers and run_after is None and schema_of(self.name) is None:
            rows = [
                (name, each, item, EMPTY)
                for each, item in zip(_keys(items, key), items, strict=True)
            ]
            text = encode_plain(
                rows,
                payload_bytes_max=get_settings().payload_bytes_max,
                unsure=items,
            )
            if text is not None:
                return [Items(text, len(items))]
        made = [self._one(each, name, key, headers, run_after) for each in items]
        return [each if each.is_later else Items(each.item(), 1) for each in made]

    def _one(
        self,
        item: Any,
        name: str,
        key: str | Callable[[Any], object] | None,
        headers: Mapping[str, Any] | None,
        run_after: When | None,
    ) -> Publication:
        if isinstance(item, Publication):
            check_name(item.name, self.name)
            return item
        return self.message(
            name, item, key=_key(item, key), headers=headers, run_after=run_after
        )


@overload
def topic(name: str) -> Topic: ...


@overload
def topic(
    name: str,
    *,
    schema: Any = None,
    partitions: int = PARTITIONS_DEFAULT,
    retain: Duration | None = None,
    check_types: bool | None = None,
    retain_bytes: int | str | None = None,
    wait_for_ingest: Duration | None = None,
) -> Topic: ...


def topic(name: str, **options: Any) -> Topic:
    """
    Declare a topic, or refer to one.

        orders = topic("orders", schema=OrderEvent, partitions=16, retain="60d")

    With its name alone it refers to the topic, declared here, elsewhere or nowhere.

    Args:
        name: 1 to 63 letters, digits, "_" and "-".
        schema: A dataclass or a pydantic model that payloads are checked against.
        partitions: 1 to 256: how many readers of one consumer group can work at a
            time. Messages of one key share one. What a topic has once stays, until
            repartition() changes it.
        retain: How long messages are kept, a duration up to ten years; by default
            PGQUEUE["RETENTION"]["log"].
        retain_bytes: How many bytes of messages are kept, a number or text such as
            "20GB", from 1 MiB to 1 PiB; by default any number. The oldest whole days
            go first; those of the last two days stay.
        wait_for_ingest: For how long after that messages wait for the pipeline job
            `ingest`, a duration; 0: not at all; by default
            PGQUEUE["RETENTION"]["wait_for_ingest"]. Bounds of bytes do not wait.
        check_types: Of a dataclass: whether values must be what its type hints say,
            and not its names alone; by default as PGQUEUE["DEFAULTS"] says. pydantic
            looks, of the extra ``schema``; its own models always check.

    Raises:
        TopicError: A value is out of its range, or another declaration of this topic
            says something else.
    """
    made = Topic(name)
    if not options:
        return made
    unknown = options.keys() - {
        *("schema", "partitions", "retain", "retain_bytes", "wait_for_ingest"),
        "check_types",
    }
    if unknown:
        raise TypeError(f"topic() got an unexpected argument {min(unknown)!r}")
    said = options.get("partitions", PARTITIONS_DEFAULT)
    partitions = check_partitions(said, f"topic({name!r}, partitions={{}})")
    retain, retain_bytes = options.get("retain"), options.get("retain_bytes")
    with raised_as(TopicError, f"topic({name!r}): "):
        if retain is not None:
            retain = as_timedelta(retain, name="retain", zero=False)
        if retain_bytes is not None:
            retain_bytes = as_bytes_within(
                retain_bytes,
                name="retain_bytes",
                least=LOG_BYTES_MIN,
                most=LOG_BYTES_MAX,
            )
        wait = options.get("wait_for_ingest")
        if wait is not None:
            wait = as_timedelta(wait, name="wait_for_ingest")
    schema = check_schema(name, options.get("schema"))
    check_types = options.get("check_types")
    if check_types is not None:
        with raised_as(TopicError, f"topic({name!r}): "):
            check_check_types(check_types)
    declare(Declared(name, schema, partitions, retain, check_types, retain_bytes, wait))
    return made


def _keys(
    items: Sequence[Any], key: str | Callable[[Any], object] | None
) -> list[str | None]:
    """Return the key of each payload; ordinary ones are checked all at once."""
    if isinstance(key, str) and {*map(type, items)} == {dict}:
        # What is missing is no text.
        found = [item.get(key) for item in items]
        if {*map(type, found)} == {str} and are_plain_keys(found):
            return found
    return [_key(item, key) for item in items]


def _key(item: Any, key: str | Callable[[Any], object] | None) -> str | None:
    """Return the key of a payload."""
    if key is None:
        return None
    if callable(key):
        return check_key(key(item))
    try:
        value = item[key] if isinstance(item, dict) else getattr(item, key)
    except (KeyError, AttributeError):
        raise TopicError(
            f"key={key!r} is no field of the payload {shown(item)}: name one that "
            f"each has, or give a function."
        ) from None
    return check_key(value)

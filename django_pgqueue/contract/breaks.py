"""
Breaks: which changes of code break somebody who goes by a committed document.

A topic is read by programs that know the older schema, and its log has messages that
were published by it; so a field may be added that has a default, and nothing else. A
task's jobs wait that an older version has stored: whatever it took must still be taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django_pgqueue.contract.document import MANY, MORE, QUEUE, TOPIC
from django_pgqueue.contract.references import words_of
from django_pgqueue.contract.unfit import ANYTHING, Side, Unfit, is_anything, unfit


class Break(NamedTuple):
    """A change that breaks somebody."""

    # "topic orders", or "task shop.tasks.send".
    subject: str
    problem: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}. {self.way_out}."


def breaks(before: dict[str, Any], now: dict[str, Any]) -> list[Break]:
    """
    Return what breaks between two documents, in the order of their names.

    Args:
        before: The committed one.
        now: That of code as it is.
    """
    return [*_topics(before, now), *_tasks(before, now)]


def _topics(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Break]:
    channels = _channels(now, TOPIC)
    for name, channel in sorted(_channels(before, TOPIC).items()):
        subject = f"topic {name}"
        if not channel[MORE].get("declared"):
            continue
        if not channels.get(name, {}).get(MORE, {}).get("declared"):
            yield Break(
                subject,
                "it is no longer declared, and its consumers get nothing",
                "Declare it, and publish to both topics until nobody reads this one",
            )
            continue
        # Of each topic all messages are of one schema.
        one = Side(before, channel["messages"][name]["payload"])
        other = Side(now, channels[name]["messages"][name]["payload"])
        yield from _payloads(subject, one, other)
    yield from _unsent(before, now)


def _payloads(subject: str, one: Side, other: Side) -> Iterator[Break]:
    told: set[tuple[str, ...]] = set()
    if not is_anything(one):
        for each in _of_readers(one, other):
            told.add(each.path)
            yield _for_readers(subject, each)
        # What the log has, for those who read it by the schema as it is now.
        for each in _broken(one, other):
            if each.path not in told and each.kind != "unknown":
                told.add(each.path)
                yield _for_the_log(subject, each)


def _broken(one: Side, other: Side) -> Iterator[Unfit]:
    """As unfit(); where *one* says nothing of a value, nothing was promised."""
    return (each for each in unfit(one, other) if each.one != ANYTHING)


def _of_readers(one: Side, other: Side) -> Iterator[Unfit]:
    """Return what a reader by *one* cannot make of a message by *other*."""
    gone = {each.path for each in unfit(one, _closed(other)) if each.kind == "unknown"}
    for path in sorted(gone):
        yield Unfit(path, "unknown")
    for each in unfit(other, one):
        # That it may be left out by who publishes says nothing: a default is written.
        if each.kind == "values":
            yield each


def _closed(side: Side) -> Side:
    """Return a schema that takes no further properties, at any depth."""

    def close(schema: Any) -> Any:
        if isinstance(schema, list):
            return [close(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        closed = {word: close(value) for word, value in schema.items()}
        if isinstance(closed.get("properties"), dict) and "type" in closed:
            closed.setdefault("additionalProperties", False)
        return closed

    return Side(close(side.document), close(side.schema))


def _for_readers(subject: str, each: Unfit) -> Break:
    field = _field(each)
    if each.kind == "unknown":
        return Break(
            subject,
            f"{field} is gone, and consumers read it",
            "Keep it until none does, or publish to a new topic beside this one",
        )
    return Break(
        subject,
        f"{field} was {each.other}, and may be {each.one} now, which consumers do not "
        f"know",
        "Add a field beside it, or publish to a new topic beside this one",
    )


def _for_the_log(subject: str, each: Unfit) -> Break:
    field = _field(each)
    if each.kind == "missing":
        return Break(
            subject,
            f"{field} is new and has no default, and messages of the log lack it: "
            f"topic.read() raises",
            "Give it a default",
        )
    return Break(
        subject,
        f"{field} was {each.one}, and is {each.other}; messages of the log have the "
        f"first",
        "Add a field beside it, or wait until retention has removed them",
    )


def _unsent(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Break]:
    sent, still = _sent(before), _sent(now)
    for topic, message in sorted(sent - still):
        yield Break(
            f"topic {topic}",
            f"no schedule publishes {message} any more, and consumers wait for it",
            "Keep its name, or publish under both until nobody selects this one",
        )


def _sent(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the messages that schedules publish, by topic and name."""
    found = set()
    for operation in document.get("operations", {}).values():
        if operation.get("action") != "send":
            continue
        for each in operation.get("messages", ()):
            _, channel, _, message = words_of(each["$ref"])
            kind, _, topic = channel.partition(".")
            if kind == TOPIC:
                found.add((topic, message))
    return found


def _tasks(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Break]:
    known: dict[str, Any] = {}
    for channel in _channels(now, QUEUE).values():
        for name, message in channel["messages"].items():
            for each in (name, *message.get(MORE, {}).get("aliases", ())):
                known[each] = message
    was: dict[str, Any] = {}
    for channel in _channels(before, QUEUE).values():
        was.update(channel["messages"])
    for name in sorted(was):
        subject = f"task {name}"
        if name not in known:
            yield Break(
                subject,
                "it is no longer declared, and its jobs that wait end as dead letters",
                f"Name it in aliases=[{name!r}] of the task that runs them; or keep it "
                f"until none waits",
            )
            continue
        one = Side(before, was[name]["payload"])
        other = Side(now, known[name]["payload"])
        found = [*_broken(one, other)]
        for each in found:
            yield _for_jobs(subject, each)
        told = {each.path[0] for each in found if each.path}
        yield from _places(subject, was[name], known[name], told)


def _places(
    subject: str, before: dict[str, Any], now: dict[str, Any], told: set[str]
) -> Iterator[Break]:
    """Tell of parameters that jobs have as args, and that stand elsewhere now."""
    places = now.get(MORE, {}).get("by_place", [])
    for place, name in enumerate(before.get(MORE, {}).get("by_place", [])):
        if (
            name in told
            or name in places[place : place + 1]
            or MANY in places[: place + 1]
        ):
            continue
        if name == MANY:
            if MANY not in places:
                yield Break(
                    subject,
                    "it takes no further positional arguments, and jobs that wait may "
                    "have some",
                    "Keep *args until none of them waits",
                )
            continue
        now_at = f"at place {places.index(name) + 1}" if name in places else "by name"
        yield Break(
            subject,
            f"parameter {name} was at place {place + 1}, and is {now_at}; jobs that "
            f"wait may have it by its place",
            "Keep the order, and put what is new behind",
        )


def _for_jobs(subject: str, each: Unfit) -> Break:
    name = "parameter " + _field(each)
    if each.kind == "missing":
        return Break(
            subject,
            f"{name} is new and has no default, and jobs that wait lack it",
            "Give it a default",
        )
    if each.kind == "unknown":
        return Break(
            subject,
            f"{name} is gone, and jobs that wait have it",
            "Keep it, with a default, until none of them waits",
        )
    return Break(
        subject,
        f"{name} was {each.one}, and is {each.other}; jobs that wait have the first",
        "Let the hint say both until none of them waits",
    )


def _field(each: Unfit) -> str:
    return ".".join(each.path).replace(".[]", "[]") or "the payload"


def _channels(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        channel["address"]: channel
        for channel in document["channels"].values()
        if channel.get(MORE, {}).get("kind") == kind
    }

"""
Unfit: why what one JSON schema allows may not be what another one does.

Of the words that pydantic writes. What a schema says beyond them is compared as text:
where the texts differ, nobody knows, and that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django_pgqueue.contract.references import follow
from django_pgqueue.tasks.payload import TAG

# Words that say nothing of values.
SILENT = frozenset(
    {"title", "description", "default", "examples", "deprecated", "$comment"}
)

# The higher, the fewer values; and the lower.
LOWER_BOUNDS = frozenset(
    {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
)
UPPER_BOUNDS = frozenset(
    {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
)

# Looked at one by one.
OWN = frozenset(
    {
        *("type", "enum", "const", "properties", "required", "additionalProperties"),
        *("items", "prefixItems", "anyOf", "oneOf", "allOf", "$ref"),
    }
)

ANYTHING = "anything"


class Unfit(NamedTuple):
    """A place where a value of the one may not be one of the other."""

    # The names on the way there.
    path: tuple[str, ...]
    # "missing": the other needs it; "unknown": it does not take it; "values": others.
    kind: str
    # Of "values": what the one allows, and the other.
    one: str = ""
    other: str = ""


class Side(NamedTuple):
    """A schema in its document."""

    document: Any
    schema: Any

    def at(self, schema: Any) -> Side:
        """Return another schema of the document."""
        return Side(self.document, schema)


def unfit(one: Side, other: Side) -> Iterator[Unfit]:
    """
    Return why a value that *one* allows may not be allowed by *other*.

    An object that says nothing of further properties allows any.
    """
    return _unfit(one, other, (), frozenset())


def _unfit(
    one: Side, other: Side, path: tuple[str, ...], seen: frozenset[Any]
) -> Iterator[Unfit]:
    pair = (_reference(one.schema), _reference(other.schema))
    if pair != (None, None):
        if pair in seen:
            return  # A schema that holds itself: what is asked is asked already.
        seen = seen | {pair}
    ones, others = _alternatives(one), _alternatives(other)
    if any(_is_anything(each.schema) for each in others):
        return
    for each in ones:
        trouble: list[Unfit] = []
        for choice in others:
            found = [*_unfit_plain(each, choice, path, seen)]
            if not found:
                break
            # That of the alternative of its type is worth telling.
            if not trouble or _kind(each.schema) == _kind(choice.schema):
                trouble = found
        else:
            if any(some.path == path for some in trouble):
                # The alternatives are read together.
                yield Unfit(path, "values", words(one), words(other))
                return
            yield from trouble


def _unfit_plain(
    one: Side, other: Side, path: tuple[str, ...], seen: frozenset[Any]
) -> Iterator[Unfit]:
    """As _unfit(), of schemas that are neither references nor alternatives."""
    mine, theirs = one.schema, other.schema
    if not _type_fits(mine, theirs) or not _words_fit(mine, theirs):
        yield Unfit(path, "values", words(one), words(other))
        return
    yield from _properties(one, other, path, seen)
    yield from _items(one, other, path, seen)


def _type_fits(mine: Any, theirs: Any) -> bool:
    allowed = _constants(theirs)
    if allowed is not None:
        values = _constants(mine)
        return values is not None and all(value in allowed for value in values)
    wanted, kind = theirs.get("type"), mine.get("type")
    if wanted is None:
        return True
    if kind is None:
        values = _constants(mine) or [None]
        return all(_is_of(value, wanted) for value in values)
    return kind == wanted or (kind, wanted) == ("integer", "number")


def _words_fit(mine: Any, theirs: Any) -> bool:
    for word, value in theirs.items():
        if word in SILENT or word in OWN:
            continue
        own = mine.get(word)
        if own == value or _constants(mine) is not None:
            continue
        if word in LOWER_BOUNDS and own is not None and own >= value:
            continue
        if word in UPPER_BOUNDS and own is not None and own <= value:
            continue
        return False
    return True


def _properties(
    one: Side, other: Side, path: tuple[str, ...], seen: frozenset[Any]
) -> Iterator[Unfit]:
    mine, theirs = one.schema, other.schema
    known, wanted = mine.get("properties", {}), theirs.get("properties", {})
    for name in sorted(set(theirs.get("required", ())) - set(mine.get("required", ()))):
        yield Unfit((*path, name), "missing")
    more = theirs.get("additionalProperties", True)
    for name in sorted(known):
        if name in wanted:
            yield from _unfit(
                one.at(known[name]), other.at(wanted[name]), (*path, name), seen
            )
        elif more is False:
            yield Unfit((*path, name), "unknown")
        elif more is not True:
            yield from _unfit(one.at(known[name]), other.at(more), (*path, name), seen)
    own = mine.get("additionalProperties", True)
    if more is True or mine.get("type") != "object":
        return
    if more is False:
        if own is not False and "additionalProperties" in mine:
            yield Unfit((*path, "*"), "unknown")
    elif own is not False:
        yield from _unfit(one.at(own), other.at(more), (*path, "*"), seen)


def _items(
    one: Side, other: Side, path: tuple[str, ...], seen: frozenset[Any]
) -> Iterator[Unfit]:
    mine, theirs = one.schema, other.schema
    first, wanted = mine.get("prefixItems", []), theirs.get("prefixItems", [])
    rest, more = mine.get("items", True), theirs.get("items", True)
    for place in range(max(len(first), len(wanted))):
        item = first[place] if place < len(first) else rest
        want = wanted[place] if place < len(wanted) else more
        if item is not False:
            yield from _unfit(one.at(item), other.at(want), (*path, str(place)), seen)
    if rest is not False and mine.get("type") == "array":
        yield from _unfit(one.at(rest), other.at(more), (*path, "[]"), seen)


def _alternatives(side: Side) -> list[Side]:
    """Return the schemas of which a value fits one, without references."""
    schema, hops = side.schema, 0
    while isinstance(schema, dict) and "$ref" in schema and hops < 100:
        schema, hops = follow(side.document, schema["$ref"]), hops + 1
    if schema is True or not isinstance(schema, dict):
        schema = {} if schema is not False else {"enum": []}
    if len(schema.get("allOf", ())) == 1:
        return _alternatives(side.at(schema["allOf"][0]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [
                found for each in schema[word] for found in _alternatives(side.at(each))
            ]
    if isinstance(schema.get("type"), list):
        return [side.at({**schema, "type": each}) for each in schema["type"]]
    return [side.at(schema)]


def _is_anything(schema: Any) -> bool:
    return not schema.keys() - SILENT


def is_anything(side: Side) -> bool:
    """Whether a schema says nothing of values."""
    return any(_is_anything(each.schema) for each in _alternatives(side))


def words(side: Side) -> str:
    """Return what a schema allows, for people."""
    told = [_told(each.schema) for each in _alternatives(side)]
    return " or ".join(dict.fromkeys(told))


def _told(schema: Any) -> str:
    constants = _constants(schema)
    if constants is not None:
        return " or ".join(map(repr, constants)) or "nothing"
    if _is_anything(schema):
        return ANYTHING
    kind = str(schema.get("type", "a value"))
    tag = _tag(schema)
    if tag is not None:
        return tag
    bounds = [
        f"{word} {schema[word]}"
        for word in sorted(schema.keys() - SILENT - OWN)
        if not isinstance(schema[word], (dict, list))
    ]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _tag(schema: Any) -> str | None:
    """Return what an object stands for, of a value that travels as one."""
    constant = schema.get("properties", {}).get(TAG, {}).get("const")
    return None if constant is None else str(constant)


def _kind(schema: Any) -> Any:
    return _tag(schema) or schema.get("type")


def _constants(schema: Any) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found: list[Any] | None = schema.get("enum")
    return found


def _reference(schema: Any) -> str | None:
    return schema.get("$ref") if isinstance(schema, dict) else None


IS_OF: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    ),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _is_of(value: Any, kind: str) -> bool:
    return kind in IS_OF and IS_OF[kind](value)

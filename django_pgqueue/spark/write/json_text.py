"""
JSON text: a column of values as tasks/payload.py would write each of them.

Arrow puts the texts together, column by column, at the speed of C; Python looks only at
the few values that need it: a text with a quote in it, a large float, bytes. A value
that cannot travel becomes NULL, and so does all that holds it; a NULL of Spark's is the
text null. What becomes of each type is told in docs/reference/spark-write.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.tasks.plain import DEPTH_MAX, ENCODER, TAG
from django_pgqueue.tasks.walk import Unfit, text_of

# Characters that JSON writes in another way.
ESCAPED = r'["\\\x01-\x1f]'

# Between these, Arrow writes the digits that Python does, and no exponent.
FLOAT_EASY_MIN, FLOAT_EASY_MAX = 1e-4, 1e9

# What Python's dates can be, as Arrow counts them: days and microseconds since 1970.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MIN = (date.min - EPOCH.date()).days
DAY_MAX = (date.max - EPOCH.date()).days
MICROSECOND_MIN = DAY_MIN * 86_400_000_000
MICROSECOND_MAX = (DAY_MAX + 1) * 86_400_000_000 - 1

TAGGED = f'{{"{TAG}":"%s","value":'


def json_text(values: Any) -> Any:
    """
    Return the JSON texts of *values*, a pyarrow.Array; NULL for one that cannot travel.

    Raises:
        TypeError: Values of this type cannot travel at all.
    """
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    if arrow.types.is_null(values.type):
        return arrow.repeat(arrow.scalar("null"), len(values))
    texts = _writer(values.type)(values)
    if values.null_count == 0:
        return texts
    return compute.if_else(values.is_null(), "null", texts)


def json_objects(names: Sequence[str], texts: Sequence[Any]) -> Any:
    """Return a JSON object for each row, of the JSON texts of one field or more."""
    pieces: list[Any] = []
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        pieces += [f"{',' if place else '{'}{ENCODER.encode(name)}:", text]
    return extra("pyarrow.compute").binary_join_element_wise(*pieces, "}", "")


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    types = extra("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    types = extra("pyarrow").types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def problem_of_type(kind: Any, depth: int = 1) -> str | None:
    """
    Return why no value of the Arrow type *kind* can travel, or None.

    The values stand on the level *depth*; the arguments themselves are on 0.
    """
    types = extra("pyarrow").types
    if types.is_null(kind):
        return None
    try:
        _writer(kind)
    except TypeError as error:
        return str(error)
    inner = list(_inner(kind))
    if inner and depth >= DEPTH_MAX:
        return f"is nested deeper than {DEPTH_MAX} levels"
    if types.is_map(kind) and not is_text(kind.key_type):
        return "is a map whose keys are no texts; JSON keys are text"
    if types.is_struct(kind) and any(_is_variant(field) for field in kind):
        return "is a VARIANT: write to_json(…) of it into a column of JSON text"
    if types.is_struct(kind) and any(field.name == TAG for field in kind):
        return f"has the field {TAG!r}, which is reserved"
    for name, each in inner:
        problem = problem_of_type(each, depth + 1)
        if problem is not None:
            return f"{name} {problem}" if name else problem
    return None


def explain(value: Any, path: str) -> str:
    """
    Return where and why the one value of an array cannot travel.

    The *value* is a pyarrow.Array of length 1, of which json_text() makes NULL.
    """
    try:
        text_of(_python(value[0].as_py(), value.type))
    except Unfit as unfit:
        return f"{path}{unfit.path} {unfit.problem}"
    except UnicodeDecodeError:
        return f"{path} is not UTF-8"
    except (OverflowError, ValueError) as error:
        return f"{path} holds what Python cannot read: {error}"
    return f"{path} cannot be stored as JSON"


def _python(value: Any, kind: Any) -> Any:
    """Return what Arrow gives for a value, but maps as dicts."""
    types = extra("pyarrow").types
    if value is None:
        return None
    if types.is_map(kind):
        return {key: _python(item, kind.item_type) for key, item in value}
    if types.is_struct(kind):
        return {field.name: _python(value[field.name], field.type) for field in kind}
    if is_list(kind):
        return [_python(item, kind.value_type) for item in value]
    return value


# One writer for each type ----------------------------------------------------------


def _writer(kind: Any) -> Callable[[Any], Any]:
    """
    Return what writes values of the Arrow type *kind*.

    Raises:
        TypeError: There is none.
    """
    types = extra("pyarrow").types
    for is_kind, writer in (
        (is_text, _texts),
        (types.is_integer, _cast),
        (types.is_boolean, _cast),
        (types.is_floating, _floats),
        (types.is_timestamp, _timestamps),
        (types.is_date32, _dates),
        (types.is_decimal, _decimals),
        (types.is_struct, _structs),
        (types.is_map, _maps),
        (is_list, _lists),
        (_is_bytes, _by_python),
        (types.is_duration, _by_python),
        (types.is_time, _by_python),
    ):
        if is_kind(kind):
            return writer
    raise TypeError(f"is of the type {kind}, which cannot be stored as JSON")


def _inner(kind: Any) -> list[tuple[str, Any]]:
    types = extra("pyarrow").types
    if types.is_struct(kind):
        return [(f".{field.name}", field.type) for field in kind]
    if types.is_map(kind):
        return [("", kind.item_type)]
    return [("", kind.value_type)] if is_list(kind) else []


def _is_variant(field: Any) -> bool:
    return b"variant" in (field.metadata or {})


def _is_bytes(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_utf8(values: Any) -> bool:
    try:
        values.validate(full=True)
    except extra("pyarrow").ArrowInvalid:
        return False
    return True


def _cast(values: Any) -> Any:
    return values.cast(extra("pyarrow").string())


def _encoded(value: Any) -> str | None:
    """Return a value as JSON; None: it is NULL, or cannot travel."""
    try:
        value = value.as_py()
        return None if value is None else text_of(value)
    except (Unfit, OverflowError, ValueError):
        return None


def _by_python(values: Any) -> Any:
    arrow = extra("pyarrow")
    return arrow.array(map(_encoded, values), arrow.string())


def _merged(values: Any, hard: Any, easy: Any, write: Callable[[Any], Any]) -> Any:
    """Return *easy*, but for the values of the mask *hard*, which *write* writes."""
    compute = extra("pyarrow.compute")
    hard = compute.fill_null(hard, False)
    if not hard.true_count:
        return easy
    return compute.replace_with_mask(easy, hard, write(values.filter(hard)))


def storable(values: Any) -> Any:
    """Return texts, and NULL for those that PostgreSQL cannot store."""
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    if not _is_utf8(values):
        texts = [_utf8(value) for value in values.cast(arrow.binary()).to_pylist()]
        values = arrow.array(texts, arrow.string())
    values = values.cast(arrow.string())
    has_nul = compute.match_substring(values, "\x00")
    return compute.if_else(has_nul, None, values) if has_nul.true_count else values


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _texts(values: Any) -> Any:
    compute = extra("pyarrow.compute")
    values = storable(values)
    hard = compute.match_substring_regex(values, ESCAPED)
    easy = compute.binary_join_element_wise('"', values, '"', "")
    return _merged(values, hard, easy, _escaped)


def _escaped(values: Any) -> Any:
    arrow = extra("pyarrow")
    return arrow.array(map(ENCODER.encode, values.to_pylist()), arrow.string())


def _floats(values: Any) -> Any:
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    values = values.cast(arrow.float64())
    size = compute.abs(values)
    hard = compute.or_(
        # Also NaN, which is neither.
        compute.invert(compute.less(size, FLOAT_EASY_MAX)),
        compute.and_(compute.less(size, FLOAT_EASY_MIN), compute.greater(size, 0.0)),
    )
    easy = _cast(values)
    has_point = compute.match_substring(easy, ".")
    whole = compute.binary_join_element_wise(easy, ".0", "")
    return _merged(values, hard, compute.if_else(has_point, easy, whole), _by_python)


def _tagged(name: str, texts: Any) -> Any:
    join = extra("pyarrow.compute").binary_join_element_wise
    return join(f'{TAGGED % name}"', texts, '"}', "")


def _decimals(values: Any) -> Any:
    return _tagged("decimal", _cast(values))


def _within(values: Any, numbers: Any, least: int, most: int) -> Any:
    """Return *values*, NULL where the number is not between *least* and *most*."""
    compute = extra("pyarrow.compute")
    fits = compute.and_(
        compute.greater_equal(numbers, least), compute.less_equal(numbers, most)
    )
    if compute.all(fits).as_py() is not False:  # None: all are NULL.
        return values
    return compute.if_else(fits, values, None)


def _dates(values: Any) -> Any:
    days = values.cast(extra("pyarrow").int32())
    return _tagged("date", _cast(_within(values, days, DAY_MIN, DAY_MAX)))


def _timestamps(values: Any) -> Any:
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    offset = "" if values.type.tz is None else "+00:00"
    values = values.cast(arrow.timestamp("us", tz=values.type.tz))
    numbers = values.cast(arrow.int64())
    numbers = _within(numbers, numbers, MICROSECOND_MIN, MICROSECOND_MAX)
    # Of the moment in UTC, whatever the session's zone is called.
    texts = _cast(numbers.cast(arrow.timestamp("us")))
    texts = compute.replace_substring(texts, " ", "T")
    texts = compute.replace_substring(texts, ".000000", "")
    if offset:
        texts = compute.binary_join_element_wise(texts, offset, "")
    return _tagged("datetime", texts)


def _structs(values: Any) -> Any:
    names = [field.name for field in values.type]
    if not names:
        return extra("pyarrow").repeat("{}", len(values))
    return json_objects(names, [json_text(child) for child in values.flatten()])


def _lists(values: Any) -> Any:
    first, count, offsets = _range(values)
    texts = json_text(values.values.slice(first, count))
    return _joined("[", offsets, texts, "]")


def _maps(values: Any) -> Any:
    first, count, offsets = _range(values)
    keys = _map_keys(values.keys.slice(first, count))
    items = json_text(values.items.slice(first, count))
    join = extra("pyarrow.compute").binary_join_element_wise
    return _joined("{", offsets, join(keys, items, ":"), "}")


def _map_keys(keys: Any) -> Any:
    compute = extra("pyarrow.compute")
    texts = _texts(keys)
    return compute.if_else(compute.equal(texts, f'"{TAG}"'), None, texts)


def _range(values: Any) -> tuple[int, int, Any]:
    """Return where the items of a slice begin, how many, and the offsets from there."""
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    offsets = compute.subtract(values.offsets, first).cast(arrow.int32())
    return first, last - first, offsets


def _joined(start: str, offsets: Any, texts: Any, end: str) -> Any:
    """Return the texts between each two offsets, with commas between."""
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    joined = compute.binary_join(arrow.ListArray.from_arrays(offsets, texts), ",")
    return compute.binary_join_element_wise(start, joined, end, "")

"""
Texts: a column of the DataFrame as texts for COPY, checked for all rows at once.

Python looks at a value by itself only to say why it is refused, and at names, once at
each. NULL stays NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.extras import arrow, compute, types
from django_pgqueue.options.marks import check_headers, check_tags
from django_pgqueue.spark.write.options import WriteOptions
from django_pgqueue.tasks.walk import (
    DEPTH_MAX,
    ENCODER,
    TAG,
    Unfit,
    plain_items,
    plain_text,
    text_of,
)

# By the place of a refused row: why.
Reasons = dict[int, str]

# Makes texts of the values of a column, whose name errors have.
Texts = Callable[[Any, str, Reasons], Any]


def refuse(mask: Any, reasons: Reasons, why: Callable[[int], str]) -> None:
    """Refuse the rows where *mask* is true, unless they are refused already."""
    if mask.true_count:
        for place in compute.indices_nonzero(mask).to_pylist():
            if place not in reasons:
                reasons[place] = why(place)


def refuse_nulls(values: Any, name: str, reasons: Reasons) -> None:
    """Refuse the rows that have a NULL."""
    refuse(values.is_null(), reasons, lambda _: f"{name} is NULL")


def json_texts(values: Any, path: str, reasons: Reasons) -> Any:
    """Return the JSON texts of *values*; those that cannot travel are refused."""
    return _explained(values, json_text(values), path, reasons)


def fit(values: Any, name: str, reasons: Reasons) -> Any:
    """Return texts; those that PostgreSQL cannot store are refused."""
    return _explained(values, storable(values), name, reasons)


def _explained(values: Any, made: Any, path: str, reasons: Reasons) -> Any:
    if made.null_count:
        lost = compute.and_(values.is_valid(), made.is_null())
        refuse(lost, reasons, lambda place: explain(values.take([place]), path))
    return made


def looked_up(
    encoded: Any, made: list[tuple[str | None, str]], reasons: Reasons
) -> Any:
    """Return the text for each row of a dictionary array; those of None are refused."""
    if any(text is None for text, _ in made):
        wrong = arrow.array([text is None for text, _ in made])
        refuse(
            wrong.take(encoded.indices),
            reasons,
            lambda place: made[encoded.indices[place].as_py()][1],
        )
    return arrow.array([text for text, _ in made], arrow.string()).take(encoded.indices)


def names(problem_of: Callable[[str], str | None]) -> Texts:
    """Take names, of which *problem_of* says what is wrong; each is looked at once."""

    def texts(values: Any, name: str, reasons: Reasons) -> Any:
        encoded = values.cast(arrow.binary()).dictionary_encode()
        made: list[tuple[str | None, str]] = []
        for value in encoded.dictionary.to_pylist():
            try:
                text = value.decode()
                problem = problem_of(text)
            except UnicodeDecodeError:
                problem = f"{name} is not UTF-8"
            made.append((None, problem) if problem else (text, ""))
        return looked_up(encoded, made, reasons)

    return texts


def keys(high: int) -> Texts:
    """Take texts of 1 to *high* characters, or whole numbers."""

    def texts(values: Any, name: str, reasons: Reasons) -> Any:
        if not is_text(values.type):
            return values.cast(arrow.string())
        values = fit(values, name, reasons)
        lengths = compute.utf8_length(values)
        wrong = compute.or_(compute.less(lengths, 1), compute.greater(lengths, high))
        refuse(
            wrong,
            reasons,
            lambda place: (
                f"{name} has {lengths[place].as_py():,} characters; it has 1 to "
                f"{high:,}, or is NULL"
            ),
        )
        return values

    return texts


def numbers(low: float, high: int, kind: str = "int64", limits: str = "") -> Texts:
    """Take numbers from *low* to *high*; limits: the same in words."""
    limits = limits or f"from {low} to {high:,}"

    def texts(values: Any, name: str, reasons: Reasons) -> Any:
        values = values.cast(kind)
        # NaN is neither.
        fits = compute.and_(
            compute.greater_equal(values, low), compute.less_equal(values, high)
        )
        refuse(
            compute.invert(fits),
            reasons,
            lambda place: f"{name} is {values[place].as_py()}; it must be {limits}",
        )
        return values.cast(arrow.string())

    return texts


def moments(values: Any, name: str, reasons: Reasons) -> Any:
    """Take moments of the years that PostgreSQL and Python know."""
    values = values.cast(arrow.timestamp("us", tz="UTC")).cast(arrow.int64())
    low, high = (round(at.timestamp()) * 1_000_000 for at in (TIME_MIN, TIME_MAX))
    wrong = compute.or_(compute.less(values, low), compute.greater(values, high))
    refuse(wrong, reasons, lambda _: f"{name} must be in the years 1900 to 9000")
    # Of the moment in UTC; a wrong one may be of a year that has no text.
    values = compute.if_else(wrong, None, values)
    texts = values.cast(arrow.timestamp("us")).cast(arrow.string())
    return compute.binary_join_element_wise(texts, "+00", "")


NAMES: dict[type, str] = {dict: "object", list: "array"}


def check_texts(
    texts: Sequence[str | None], kind: type | None, path: str
) -> tuple[list[str], dict[int, str]]:
    """
    Return the JSON texts to store, and by place why a text is refused.

    Args:
        texts: None: no arguments.
        kind: dict or list: what each text must hold; None: any value.
        path: Where they stand, for errors: "kwargs".
    """
    problems: dict[int, str] = {}
    values: list[Any] = []
    for place, text in enumerate(texts):
        value = kind() if kind else None
        if text is not None:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                problems[place] = f"{path} is no JSON that can be read: {error}"
            else:
                if kind and type(value) is not kind:
                    problems[place] = f"{path} must be a JSON {NAMES[kind]}"
                    value = kind()
        values.append(value)
    empty = ENCODER.encode(kind() if kind else None)
    stored = [empty if text is None else text for text in texts]
    if values and plain_items(values) is None:
        for place, value in enumerate(values):
            if plain_text(value) is None and place not in problems:
                try:
                    # A float of Python's may be written in a way of ours.
                    stored[place] = text_of(value)
                except Unfit as unfit:
                    problems[place] = f"{path}{unfit.path} {unfit.problem}"
    return stored, problems


def marks(options: WriteOptions, headers: str, tags: str) -> tuple[str | None, str]:
    """
    Return the headers of a job as JSON text, or None and why it is refused.

    Args:
        options: With headers of all jobs, which the row's replace, and tags of all,
            before the row's.
        headers: The row's, a JSON object.
        tags: The row's, a JSON array.
    """
    try:
        values = {**options.headers, **check_headers(json.loads(headers))}
        every = check_tags([*options.tags, *json.loads(tags)])
        text = text_of({**values, "tags": list(every)} if every else values)
    except InvalidOption as error:
        return None, str(error).rstrip(".")
    except Unfit as unfit:
        return None, f"headers{unfit.path} {unfit.problem}"
    except (ValueError, RecursionError) as error:
        return None, f"headers are no JSON: {error}"
    size, bytes_max = len(text.encode()), options.payload_bytes_max
    if size > bytes_max:
        return None, f"headers take {size:,} bytes as JSON; the limit is {bytes_max:,}"
    return text, ""


# JSON text --------------------------------------------------------------------------
# Arrow puts the texts together, column by column, at the speed of C; Python looks only
# at the few values that need it: a text with a quote in it, a large float, bytes. A
# value that cannot travel becomes NULL, and so does all that holds it; a NULL of
# Spark's is the text null. What becomes of each type is told in
# docs/reference/spark-write.md.

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
    return compute.binary_join_element_wise(*pieces, "}", "")


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    return bool(types.is_list(kind) or types.is_large_list(kind))


def problem_of_type(kind: Any, depth: int = 1) -> str | None:
    """
    Return why no value of the Arrow type *kind* can travel, or None.

    The values stand on the level *depth*; the arguments themselves are on 0.
    """
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
    if types.is_struct(kind):
        return [(f".{field.name}", field.type) for field in kind]
    if types.is_map(kind):
        return [("", kind.item_type)]
    return [("", kind.value_type)] if is_list(kind) else []


def _is_variant(field: Any) -> bool:
    return b"variant" in (field.metadata or {})


def _is_bytes(kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_utf8(values: Any) -> bool:
    try:
        values.validate(full=True)
    except arrow.ArrowInvalid:
        return False
    return True


def _cast(values: Any) -> Any:
    return values.cast(arrow.string())


def _encoded(value: Any) -> str | None:
    """Return a value as JSON; None: it is NULL, or cannot travel."""
    try:
        value = value.as_py()
        return None if value is None else text_of(value)
    except (Unfit, OverflowError, ValueError):
        return None


def _by_python(values: Any) -> Any:
    return arrow.array(map(_encoded, values), arrow.string())


def _merged(values: Any, hard: Any, easy: Any, write: Callable[[Any], Any]) -> Any:
    """Return *easy*, but for the values of the mask *hard*, which *write* writes."""
    hard = compute.fill_null(hard, False)
    if not hard.true_count:
        return easy
    return compute.replace_with_mask(easy, hard, write(values.filter(hard)))


def storable(values: Any) -> Any:
    """Return texts, and NULL for those that PostgreSQL cannot store."""
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
    values = storable(values)
    hard = compute.match_substring_regex(values, ESCAPED)
    easy = compute.binary_join_element_wise('"', values, '"', "")
    return _merged(values, hard, easy, _escaped)


def _escaped(values: Any) -> Any:
    return arrow.array(map(ENCODER.encode, values.to_pylist()), arrow.string())


def _floats(values: Any) -> Any:
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
    join = compute.binary_join_element_wise
    return join(f'{TAGGED % name}"', texts, '"}', "")


def _decimals(values: Any) -> Any:
    return _tagged("decimal", _cast(values))


def _within(values: Any, numbers: Any, least: int, most: int) -> Any:
    """Return *values*, NULL where the number is not between *least* and *most*."""
    fits = compute.and_(
        compute.greater_equal(numbers, least), compute.less_equal(numbers, most)
    )
    if compute.all(fits).as_py() is not False:  # None: all are NULL.
        return values
    return compute.if_else(fits, values, None)


def _dates(values: Any) -> Any:
    days = values.cast(arrow.int32())
    return _tagged("date", _cast(_within(values, days, DAY_MIN, DAY_MAX)))


def _timestamps(values: Any) -> Any:
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
        return arrow.repeat("{}", len(values))
    return json_objects(names, [json_text(child) for child in values.flatten()])


def _lists(values: Any) -> Any:
    first, count, offsets = _range(values)
    texts = json_text(values.values.slice(first, count))
    return _joined("[", offsets, texts, "]")


def _maps(values: Any) -> Any:
    first, count, offsets = _range(values)
    keys = _map_keys(values.keys.slice(first, count))
    items = json_text(values.items.slice(first, count))
    join = compute.binary_join_element_wise
    return _joined("{", offsets, join(keys, items, ":"), "}")


def _map_keys(keys: Any) -> Any:
    texts = _texts(keys)
    return compute.if_else(compute.equal(texts, f'"{TAG}"'), None, texts)


def _range(values: Any) -> tuple[int, int, Any]:
    """Return where the items of a slice begin, how many, and the offsets from there."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    offsets = compute.subtract(values.offsets, first).cast(arrow.int32())
    return first, last - first, offsets


def _joined(start: str, offsets: Any, texts: Any, end: str) -> Any:
    """Return the texts between each two offsets, with commas between."""
    joined = compute.binary_join(arrow.ListArray.from_arrays(offsets, texts), ",")
    return compute.binary_join_element_wise(start, joined, end, "")

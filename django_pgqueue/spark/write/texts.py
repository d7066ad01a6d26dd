"""
Texts: a column of the DataFrame as texts for COPY, checked for all rows at once.

Python looks at a value by itself only to say why it is refused, and at names, once at
each. NULL stays NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.extras import extra
from django_pgqueue.options.marks import check_headers, check_tags
from django_pgqueue.spark.write.json_text import explain, is_text, json_text, storable
from django_pgqueue.spark.write.options import WriteOptions
from django_pgqueue.tasks.plain import ENCODER, plain_items, plain_text
from django_pgqueue.tasks.walk import Unfit, text_of

# By the place of a refused row: why.
Reasons = dict[int, str]

# Makes texts of the values of a column, whose name errors have.
Texts = Callable[[Any, str, Reasons], Any]


def refuse(mask: Any, reasons: Reasons, why: Callable[[int], str]) -> None:
    """Refuse the rows where *mask* is true, unless they are refused already."""
    if mask.true_count:
        for place in extra("pyarrow.compute").indices_nonzero(mask).to_pylist():
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
        lost = extra("pyarrow.compute").and_(values.is_valid(), made.is_null())
        refuse(lost, reasons, lambda place: explain(values.take([place]), path))
    return made


def looked_up(
    encoded: Any, made: list[tuple[str | None, str]], reasons: Reasons
) -> Any:
    """Return the text for each row of a dictionary array; those of None are refused."""
    arrow = extra("pyarrow")
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
        encoded = values.cast(extra("pyarrow").binary()).dictionary_encode()
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
        compute = extra("pyarrow.compute")
        if not is_text(values.type):
            return values.cast(extra("pyarrow").string())
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
        compute = extra("pyarrow.compute")
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
        return values.cast(extra("pyarrow").string())

    return texts


def moments(values: Any, name: str, reasons: Reasons) -> Any:
    """Take moments of the years that PostgreSQL and Python know."""
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
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

"""
Texts: a column of the DataFrame as texts for COPY, checked for all rows at once.

Python looks at a value by itself only to say why it is refused, and at names, once at
each. NULL stays NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.extras import extra
from django_pgqueue.spark.write.json_text import explain, is_text, json_text, storable

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

"""
Mask: secrets of a DataFrame, masked as redact.py does it for the other source.

Only columns of JSON that a query uses, and of these only texts that are long enough for
a secret, are shown to Python, which answers NULL for all but the rows that have one.
Expressions of Spark alone would be slower: Java's regular expressions take a multiple
of what RE2 takes, handing over included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.spark.redact import SHORTEST, Redaction, Redactor
from django_pgqueue.spark.tables import Column


def masked(frame: Any, columns: Sequence[Column], redaction: Redaction) -> Any:
    """Return *frame*, of *columns* and task, with the secrets of its JSON masked."""
    shown = {
        column.name: _masked(column.name, redaction)
        for column in columns
        if column.is_json and redaction.patterns
    }
    return frame.withColumns(shown) if shown else frame


def _masked(column: str, redaction: Redaction) -> Any:
    functions = extra("pyspark.sql.functions")
    text = functions.col(column)
    by_task = column == "args" and redaction.places
    # Without the words of patterns, nothing says how short a secret may be.
    is_long = functions.octet_length(text) >= SHORTEST
    if redaction.sought() is None or by_task:
        is_long = text.isNotNull()
    given = [functions.when(is_long, text)]
    if by_task:
        given.append(functions.col("task"))
    return functions.coalesce(_in_python(column, redaction)(*given), text)


def _in_python(column: str, redaction: Redaction) -> Callable[..., Any]:
    """Return a function of Spark's: masked texts, or NULL where nothing is hidden."""
    functions = extra("pyspark.sql.functions")
    redactors: list[Redactor] = []

    def mask(values: Any, tasks: Any = None) -> Any:
        # Made where it runs: what Arrow has compiled does not travel.
        if not redactors:
            redactors.append(Redactor(redaction))
        found = redactors[0].masked(column, values, tasks)
        return (
            extra("pyarrow").nulls(len(values), values.type)
            if found is values
            else found
        )

    # Spark goes by them, and this module knows no Arrow until it is asked.
    array = extra("pyarrow").Array
    mask.__annotations__ = dict.fromkeys(("values", "tasks", "return"), array)
    made: Callable[..., Any] = functions.arrow_udf(mask, "string")
    return made

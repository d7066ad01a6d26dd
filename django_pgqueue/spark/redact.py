"""
Redact: the secrets of a batch, masked before it leaves the reader.

Almost no row has one. So Arrow looks through each column of JSON for the words of the
patterns, at the speed of C, and only the rows in which one occurs are gone through as
the admin does. What is looked for finds more than what is hidden, never less. A pattern
that is no plain word, perhaps with ^ or (^|_) before it and $ or (_|$) behind it,
cannot be looked for that way: then every row is gone through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.extras import arrow, compute, functions
from django_pgqueue.redaction.names import REDACT_DEFAULT, SHAPE_BEGINS
from django_pgqueue.redaction.values import redact_json
from django_pgqueue.spark.tables import Column

# A plain word, also one that stands alone.
WORD = re.compile(r"(?:\^|\(\^\|_\))?([A-Za-z0-9_]+)(?:\$|\(_\|\$\))?", re.ASCII)

# Between two words of a key stands any of these, or nothing: see names.WORD_START. An
# escape, since a key may have a tab.
BETWEEN = r'(?:[^A-Za-z0-9\\]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*'

# What Python takes for the same letter in another case, and RE2 does not.
SAME = {"i": "[iI\u0130\u0131]", "s": "[sS\u017f]", "k": "[kK\u212a]"}

# Bytes of the shortest secret there is. With a key of no letter, nothing is sought.
SHORTEST = len('"a=1"')

# What is hidden under any name: passwords of URLs (text.USER_INFO), well-known secrets,
# and rows in PostgreSQL's errors.
UNNAMED = rf"""://[^\s:/@'"]*:[^\s/'"]|Failing row contains|{SHAPE_BEGINS}"""


@dataclass(frozen=True, slots=True)
class Redaction:
    """
    What is hidden, as plain values that travel to the executors.

    Attributes:
        patterns: Regular expressions for names, as PGQUEUE["REDACT"] has them.
        places: By task: whether each positional argument is secret; the last one holds
            for all further arguments. Only a project that declares the tasks knows.
    """

    patterns: tuple[str, ...] = REDACT_DEFAULT
    places: Mapping[str, Sequence[bool]] = field(default_factory=dict)

    def sought(self) -> str | None:
        """Return the expression, for RE2, that each secret's row matches, or None."""
        found = [WORD.fullmatch(pattern) for pattern in self.patterns]
        words = [word[1].strip("_").lower() for word in found if word is not None]
        if len(words) < len(self.patterns) or not all(words):
            return None
        return "|".join(map(_loosely, words))


class Redactor:
    """Masks the columns of one reader's batches."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._sought = redaction.sought() if redaction.patterns else None
        self._tasks = arrow.array(
            list(redaction.places) if redaction.patterns else [], arrow.string()
        )

    def needs_task(self, column: str) -> bool:
        """Whether the row's task is asked for, to mask *column*."""
        return column == "args" and len(self._tasks) > 0

    def masked(self, column: str, values: Any, tasks: Any) -> Any:
        """
        Return the JSON texts *values* of *column*, without secrets.

        Args:
            column: Its name; `args` is not like the others.
            values: A pyarrow.StringArray.
            tasks: The tasks of the same rows, where needs_task().
        """
        if not self._redaction.patterns:
            return values
        if self._is_too_short(column, values):
            return values
        suspects = self._suspects(column, values, tasks)
        texts = values.filter(suspects)
        if len(texts) == 0:
            return values
        masked = self._gone_through(
            texts.to_pylist(), tasks and tasks.filter(suspects).to_pylist()
        )
        return compute.replace_with_mask(
            values, suspects, arrow.array(masked, arrow.string())
        )

    def _is_too_short(self, column: str, values: Any) -> bool:
        """Whether no text can have what is sought: most errors are []."""
        if self._sought is None or self.needs_task(column):
            return False
        longest = compute.max(compute.binary_length(values)).as_py()
        return longest is None or bool(longest < SHORTEST)

    def _suspects(self, column: str, values: Any, tasks: Any) -> Any:
        """Return which rows may have a secret; none that is NULL."""
        if self._sought is None:
            return compute.is_valid(values)
        sought = f"{self._sought}|{UNNAMED}"
        found = compute.match_substring_regex(values, sought, ignore_case=True)
        if self.needs_task(column):
            found = compute.or_(found, compute.is_in(tasks, value_set=self._tasks))
        return compute.fill_null(found, False)

    def _gone_through(
        self, texts: list[str], tasks: Sequence[str | None] | None
    ) -> list[str]:
        patterns, places = self._redaction.patterns, self._redaction.places
        return [
            redact_json(
                text, patterns, secret_places=places.get(task, ()) if task else ()
            )
            for text, task in zip(texts, tasks or [None] * len(texts), strict=True)
        ]


def _loosely(word: str) -> str:
    """Return an expression that finds *word* in a key, however that writes it."""
    parts = filter(None, word.split("_"))
    return BETWEEN.join(
        "".join(SAME.get(letter, letter) for letter in part) for part in parts
    )


def masked(frame: Any, columns: Sequence[Column], redaction: Redaction) -> Any:
    """Return *frame*, of *columns* and task, with the secrets of its JSON masked."""
    shown = {
        column.name: _masked(column.name, redaction)
        for column in columns
        if column.is_json and redaction.patterns
    }
    return frame.withColumns(shown) if shown else frame


def _masked(column: str, redaction: Redaction) -> Any:
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
    redactors: list[Redactor] = []

    def mask(values: Any, tasks: Any = None) -> Any:
        # Made where it runs: what Arrow has compiled does not travel.
        if not redactors:
            redactors.append(Redactor(redaction))
        found = redactors[0].masked(column, values, tasks)
        return arrow.nulls(len(values), values.type) if found is values else found

    # Spark goes by them, and this module knows no Arrow until it is asked.
    array = arrow.Array
    mask.__annotations__ = dict.fromkeys(("values", "tasks", "return"), array)
    made: Callable[..., Any] = functions.arrow_udf(mask, "string")
    return made

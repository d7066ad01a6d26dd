"""
Theirs: which rows of a batch belong to one customer, by an argument or a payload.

What the files have in JSON is compared as PostgreSQL compares jsonb: 42 is 42.0, and
neither is "42".
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline.erasures import PAYLOAD, Sought
from django_pgqueue.redaction.values import redact_json
from django_pgqueue.spark.redact import Redaction

PATH = re.compile(
    r"(args(?=\[)|kwargs(?=\.)|payload(?=[.\[]))((?:\.[A-Za-z_][\w-]*|\[\d{1,4}\])+)",
    re.ASCII,
)
STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]", re.ASCII)

PATH_CHARACTERS_MAX = 200

# A text of which JSON has just one spelling.
PLAIN = re.compile(r"[A-Za-z0-9 _.,:@+-]+", re.ASCII)

MISSING = object()


def sought(path: str, value: str, task: str, redaction: Redaction) -> Sought:
    """
    Return what the options say.

    Raises:
        SparkOptionError: One of them is wrong, or the files do not have the value.
    """
    found = PATH.fullmatch(path) if len(path) <= PATH_CHARACTERS_MAX else None
    if found is None:
        raise SparkOptionError(
            f"The option path is {path[:PATH_CHARACTERS_MAX]!r}; it must be an "
            f"argument such as kwargs.customer_id, or args[0] with a task, or of "
            f"messages a part of the payload such as payload.customer_id; of at most "
            f"{PATH_CHARACTERS_MAX} characters."
        )
    if not value:
        raise SparkOptionError(
            "The option value is empty; it must be the customer's, as JSON or as text."
        )
    if found[1] == "args" and not task:
        raise SparkOptionError(
            f"The option path is {path}, which means something else in each task: say "
            f"whose with -o task=shop.tasks.send."
        )
    if found[1] == PAYLOAD and task:
        raise SparkOptionError(
            f"The option path is {path}, which is of messages, and the option task is "
            f"of jobs: leave it out, or name an argument."
        )
    steps = tuple(key or index for key, index in STEP.findall(found[2]))
    asked = Sought(found[1], steps, _value(value), task)
    if not isinstance(asked.value, (str, int, float)) or isinstance(asked.value, bool):
        raise SparkOptionError(
            "The option value must be a text or a number, which a customer has alone."
        )
    _check_shown(path, asked, redaction)
    return asked


def _value(text: str) -> Any:
    try:
        # NaN is no JSON.
        return json.loads(text, parse_constant=int)
    except ValueError:
        return text


def _check_shown(path: str, asked: Sought, redaction: Redaction) -> None:
    """Raise SparkOptionError where files have [redacted] in place of the value."""
    whole: Any = asked.value
    for step in reversed(asked.path):
        # Those before are of no matter.
        whole = [*[None] * int(step), whole] if step.isdigit() else {step: whole}
    places = redaction.places.get(asked.task, ()) if asked.column == "args" else ()
    shown = redact_json(json.dumps(whole), redaction.patterns, secret_places=places)
    if json.loads(shown) != whole:
        raise SparkOptionError(
            f"What {path} has is a secret, so exported files do not have it: name "
            f"another argument of the same jobs."
        )


@dataclass(frozen=True, slots=True)
class Theirs:
    """
    Finds rows of one customer in batches of files.

    Attributes:
        value: What they have.
        column: In which column.
        paths: And where in its JSON; at one of them.
        task: "": of any.
        messages: Jobs of these are theirs too.
    """

    value: Any
    column: str
    paths: Sequence[Sequence[str]]
    task: str = ""
    messages: Sequence[int] = ()

    @property
    def columns(self) -> list[str]:
        """What a batch must have."""
        return [
            self.column,
            *(["task"] if self.task else []),
            *(["message_id"] if self.messages else []),
        ]

    @classmethod
    def of_jobs(cls, asked: Sought, messages: Sequence[int] = ()) -> Theirs:
        """Return what finds jobs, also those of some *messages*."""
        column, paths = asked.in_jobs
        return cls(asked.value, column, paths, task=asked.task, messages=messages)

    @classmethod
    def of_messages(cls, asked: Sought) -> Theirs:
        """Return what finds messages."""
        return cls(asked.value, PAYLOAD, [asked.path])

    def mask(self, batch: Any) -> Any:
        """Return which rows of a pyarrow.RecordBatch are theirs."""
        arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
        texts = batch.column(self.column).cast(arrow.string())
        found = compute.is_valid(texts)
        if (literal := _literal(self.value)) is not None:
            found = compute.match_substring(texts, literal)
            found = compute.fill_null(found, False)
        if self.task:
            tasks = batch.column("task").cast(arrow.string())
            found = compute.and_(found, compute.equal(tasks, self.task))
        if compute.any(found).as_py():
            of_suspects = [
                self._is_theirs(text) for text in texts.filter(found).to_pylist()
            ]
            found = compute.replace_with_mask(
                found, found, arrow.array(of_suspects, arrow.bool_())
            )
        if self.messages:
            wanted = arrow.array(self.messages, arrow.int64())
            of_theirs = compute.is_in(batch.column("message_id"), value_set=wanted)
            found = compute.or_(found, of_theirs)
        return found

    def _is_theirs(self, text: str) -> bool:
        whole: Any = json.loads(text, parse_float=Decimal)
        return any(self._has(whole, path) for path in self.paths)

    def _has(self, found: Any, path: Sequence[str]) -> bool:
        for step in path:
            found = _below(found, step)
        value = self.value
        if isinstance(value, str) or isinstance(found, (str, bool)):
            return type(found) is type(value) and bool(found == value)
        return isinstance(found, (int, Decimal)) and found == Decimal(repr(value))


def _below(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step, MISSING)
    if isinstance(found, list) and step.isdigit() and int(step) < len(found):
        return found[int(step)]
    return MISSING


def _literal(value: Any) -> str | None:
    """Return what each text with *value* has in it; None: that is not known."""
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) else None
    return str(value) if isinstance(value, int) and abs(value) < 10**15 else None

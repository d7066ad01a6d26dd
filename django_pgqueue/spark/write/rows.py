"""
Rows: the rows of a batch, checked as delay() or publish() checks, as text for COPY.

Each part of a job or a message is one column of texts, checked for all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.bounds import LANE_CHARACTERS_MAX, LANE_SEPARATOR, QUEUE_DEFAULT
from django_pgqueue.exceptions import SparkOptionError, TopicError
from django_pgqueue.extras import arrow, compute
from django_pgqueue.log.names import check_name, topic_of
from django_pgqueue.options.lanes import shortened
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.spark.write.options import WriteOptions
from django_pgqueue.spark.write.parts import (
    JOB,
    JOB_TYPES,
    MESSAGE,
    MESSAGE_TYPES,
    REASON,
    Columns,
)
from django_pgqueue.spark.write.texts import (
    Reasons,
    check_texts,
    fit,
    is_text,
    json_objects,
    json_texts,
    looked_up,
    marks,
    names,
    refuse,
    refuse_nulls,
)

# Bytes of a batch that are worked on at once, since an Arrow column of texts holds 2 GB
# and the text for COPY is a copy, several times over, of what came.
SLICE_BYTES_MAX = 8_388_608

# What each column of JSON holds, and what a NULL of it is.
JSON: Mapping[str, tuple[type | None, str]] = {
    "args": (list, "[]"),
    "kwargs": (dict, "{}"),
    "headers": (dict, "{}"),
    "payload": (None, "null"),
}

# What COPY's text format writes in another way.
SPECIAL = r"[\\\t\n\r]"
ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


@dataclass(frozen=True, slots=True)
class Checked:
    """What has become of some rows."""

    # Rows for COPY, each with its line break; as many as `rows`.
    text: Any
    rows: int
    queues: frozenset[str]
    # Those that are refused, with the column of reasons; None: no row is.
    refused: Any
    # Of the refused: its place among the rows that were given, and why.
    reasons: Mapping[int, str]


class Rows:
    """Makes jobs, or messages, of the rows of a write; for COPY, each behind *lead*."""

    def __init__(
        self, columns: Columns, options: WriteOptions, *, lead: str = ""
    ) -> None:
        self._columns = columns
        self._options = options
        self._lead = lead
        is_messages = options.is_messages
        self._parts = MESSAGE if is_messages else JOB
        stored = {self._parts[name].stored for name in columns.found}
        if is_messages or columns.fields:
            stored.add("payload" if is_messages else "kwargs")
        if options.lane_by:
            stored.add("lane")
        # What all rows have, as text; and which columns differ, in the order of COPY.
        self.constants = {
            name: text for name, text in options.constants.items() if name not in stored
        }
        if "headers" not in stored and (options.headers or options.tags):
            self.constants["headers"] = headers_of_all(options)
        types = MESSAGE_TYPES if is_messages else JOB_TYPES
        self.varying = tuple(name for name in types if name in stored)

    def check(self, batch: Any) -> Iterator[Checked]:
        """Yield what has become of the rows of a pyarrow.RecordBatch, in order."""
        step = max(1, batch.num_rows * SLICE_BYTES_MAX // max(1, batch.nbytes))
        for first in range(0, batch.num_rows, step):
            yield self._check(batch.slice(first, step), first)

    def _check(self, batch: Any, first: int) -> Checked:
        reasons: Reasons = {}
        made = self._texts(batch, reasons)
        refused = None
        if reasons:
            good = arrow.array([row not in reasons for row in range(batch.num_rows)])
            places = sorted(reasons)
            refused = batch.take(arrow.array(places)).append_column(
                REASON, arrow.array([reasons[place] for place in places])
            )
            made = {name: texts.filter(good) for name, texts in made.items()}
        rows = batch.num_rows - len(reasons)
        return Checked(
            text=_copy_text(self._lead, [made[name] for name in self.varying], rows),
            rows=rows,
            queues=self._queues(made) if rows else frozenset(),
            refused=refused,
            reasons={first + place: why for place, why in reasons.items()},
        )

    def _queues(self, made: Mapping[str, Any]) -> frozenset[str]:
        if self._options.is_messages:
            return frozenset()  # Found out when they are published.
        if "queue" not in made:
            return frozenset({self.constants.get("queue", QUEUE_DEFAULT)})
        return frozenset(compute.unique(made["queue"]).to_pylist())

    def _texts(self, batch: Any, reasons: Reasons) -> dict[str, Any]:
        """Return a column of texts by column of the table, for those that differ."""
        options = self._options
        made: dict[str, Any] = {}
        for name, column in self._columns.found.items():
            part, values = self._parts[name], batch.column(column)
            if part.is_needed and values.null_count:
                refuse_nulls(values, name, reasons)
            texts = names(self._problem_of_name) if name == "name" else part.texts
            if texts is not None:
                made[part.stored] = texts(values, name, reasons)
                if part.null is not None:
                    made[part.stored] = compute.fill_null(made[part.stored], part.null)
        if "headers" in self.varying:
            made["headers"] = self._headers(batch, reasons)
        if options.lane_by:
            key = [(name, batch.column(name)) for name in options.lane_by]
            task = made.get("task", self.constants.get("task"))
            made["lane"] = _lanes(task, key, reasons)
        for name in ("args", "kwargs", "payload"):
            if name in self.varying:
                made[name] = self._json(batch, name, reasons)
        if options.is_messages:
            sized, what = ("payload", "headers"), "payload and headers take"
        else:
            sized, what = ("args", "kwargs"), "arguments take"
        self._refuse_too_large([made[n] for n in sized if n in made], what, reasons)
        return made

    def _json(self, batch: Any, name: str, reasons: Reasons) -> Any:
        """Return the JSON of arguments or of a payload: of one column, or of fields."""
        if name not in self._columns.found:
            fields = self._columns.fields
            texts = [
                json_texts(batch.column(f), f"{name}.{f}", reasons) for f in fields
            ]
            return json_objects(fields, texts)
        kind, empty = JSON[name]
        values = batch.column(self._columns.found[name])
        if self._options.is_encoded:
            # As the queue's tables have it: nobody looks at it again.
            refuse(
                compute.match_substring(values, PLACEHOLDER),
                reasons,
                lambda _: (
                    f"{name} has {PLACEHOLDER}: what stood there was hidden by "
                    f"redaction"
                ),
            )
            return compute.fill_null(values, empty)
        if is_text(values.type):
            given = fit(values, name, reasons).to_pylist()
            stored, problems = check_texts(given, kind, name)
            for place, problem in problems.items():
                reasons.setdefault(place, problem)
            return arrow.array(stored, arrow.string())
        texts = json_texts(values, name, reasons)
        return compute.if_else(values.is_null(), empty, texts)

    def _headers(self, batch: Any, reasons: Reasons) -> Any:
        """Return the headers with the tags in them, looking at each set once."""
        found, options = self._columns.found, self._options
        if options.is_encoded:
            return self._json(batch, "headers", reasons)
        texts = []
        for name, empty in (("headers", "{}"), ("tags", "[]")):
            if name not in found:
                texts.append(arrow.repeat(empty, batch.num_rows))
                continue
            values = batch.column(found[name])
            make = fit if is_text(values.type) else json_texts
            text = make(values, name, reasons)
            nothing = compute.or_(values.is_null(), text.is_null())
            texts.append(compute.if_else(nothing, empty, text))
        # Neither has a bare line break: JSON escapes it.
        both = compute.binary_join_element_wise(*texts, "\x01").dictionary_encode()
        made = [
            marks(options, *pair.split("\x01", 1))
            for pair in both.dictionary.to_pylist()
        ]
        return looked_up(both, made, reasons)

    def _refuse_too_large(
        self, texts: Sequence[Any], what: str, reasons: Reasons
    ) -> None:
        """Refuse rows of which two texts are too large; one that is not there is {}."""
        if not texts:
            return
        bytes_max = self._options.payload_bytes_max
        sizes = [compute.cast(compute.binary_length(each), "int64") for each in texts]
        size = compute.add(sizes[0], sizes[1] if len(sizes) == 2 else 2)
        refuse(
            compute.greater(size, bytes_max),
            reasons,
            lambda place: (
                f"{what} {size[place].as_py():,} bytes as JSON; the limit is "
                f"{bytes_max:,} (option payloadBytesMax)"
            ),
        )

    def _problem_of_name(self, name: str) -> str | None:
        try:
            check_name(name, topic_of(self._options.constants["name"]))
        except TopicError as error:
            return str(error).rstrip(".")
        return None


def headers_of_all(options: WriteOptions) -> str:
    """Return the headers that all jobs have; raise SparkOptionError."""
    text, problem = marks(options, "{}", "[]")
    if text is None:
        raise SparkOptionError(f"The options headers and tags: {problem}.")
    return text


def _lanes(task: Any, key: list[tuple[str, Any]], reasons: Reasons) -> Any:
    """Return the lanes that a key makes, as tasks/lanes.py does; NULL: none."""
    texts = [
        (
            fit(values, f"lane: {name}", reasons) if is_text(values.type) else values
        ).cast(arrow.string())
        for name, values in key
    ]
    lanes = compute.binary_join_element_wise(task, *texts, LANE_SEPARATOR)
    lanes = lanes.cast(arrow.string())
    too_long = compute.greater(compute.utf8_length(lanes), LANE_CHARACTERS_MAX)
    if not too_long.true_count:
        return lanes
    encoded = lanes.dictionary_encode()
    short = [shortened(name) for name in encoded.dictionary.to_pylist()]
    return arrow.array(short, arrow.string()).take(encoded.indices)


def _copy_text(lead: str, columns: Sequence[Any], rows: int) -> Any:
    """Return *rows* rows of COPY's text format, each behind *lead*, as a buffer."""
    if rows == 0 or not columns:
        return memoryview(f"{lead}\n".encode() * rows)
    pieces: list[Any] = [lead]
    for place, texts in enumerate(columns):
        pieces += ["\t"] if place else []
        pieces.append(_escaped(texts))
    texts = compute.binary_join_element_wise(*pieces, "\n", "")
    texts = texts.cast(arrow.string())
    _, offsets, data = texts.buffers()
    whole = memoryview(offsets).cast("i")
    first, last = whole[texts.offset], whole[texts.offset + len(texts)]
    return memoryview(data)[first:last]


def _escaped(texts: Any) -> Any:
    if compute.any(compute.match_substring_regex(texts, SPECIAL)).as_py():
        for character, escape in ESCAPES:
            texts = compute.replace_substring(texts, character, escape)
    return compute.fill_null(texts, "\\N") if texts.null_count else texts

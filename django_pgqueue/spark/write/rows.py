"""
Rows: the rows of a batch, checked as delay() checks, as text for COPY.

Each part of a job is one column of texts, checked for all rows at once. Python looks at
a row by itself only to say why it is refused, and at JSON that came as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_pgqueue.bounds import (
    ATTEMPTS_DEFAULT,
    ATTEMPTS_MAX,
    LANE_BURST_MAX,
    LANE_CAPACITY_MAX,
    LANE_CHARACTERS_MAX,
    LANE_SEPARATOR,
    LANE_SPACING_MAX,
    LANE_SPACING_MIN,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_DEFAULT,
    TIME_MAX,
    TIME_MIN,
)
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.extras import extra
from django_pgqueue.options.lanes import shortened
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.spark.write.columns import Columns
from django_pgqueue.spark.write.json_given import check_texts
from django_pgqueue.spark.write.json_text import explain, json_objects, json_text
from django_pgqueue.spark.write.marks import marks
from django_pgqueue.spark.write.options import (
    WriteOptions,
    problem_of_lane,
    problem_of_policy,
    problem_of_queue,
    problem_of_task,
)

# Of the column.
DEDUP_CHARACTERS_MAX = 255

# In place of NULL, until it is put back.
NO_NAME = "-"

# Bytes of a batch that are worked on at once, since an Arrow column of texts holds 2 GB
# and the text for COPY is a copy, several times over, of what came.
SLICE_BYTES_MAX = 8_388_608

# JSON of a column that is NULL, by what it holds; None: any value.
EMPTY: Mapping[type | None, str] = {list: "[]", dict: "{}", None: "null"}

# What COPY's text format writes in another way.
SPECIAL = r"[\\\t\n\r]"
ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))

# Of the same columns as `parts`, the reason for each refused row.
Reasons = dict[int, str]


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
    """Makes jobs of the rows of one write."""

    def __init__(self, columns: Columns, options: WriteOptions, reason: str) -> None:
        """
        Fix what each row of COPY holds.

        Args:
            columns: Where the parts of a job are.
            options: What all jobs have, and the limits.
            reason: The column that refused rows get.
        """
        self._columns = columns
        self._options = options
        self._reason = reason
        has_arguments = bool(columns.kwargs or columns.arguments)
        has_marks = bool(
            columns.tags or columns.headers or options.tags or options.headers
        )
        used = {
            "task": True,
            "queue": columns.queue,
            "args": columns.args,
            "kwargs": has_arguments,
            "headers": has_marks,
            "priority": columns.priority,
            "max_attempts": columns.max_attempts,
            "run_after": columns.run_at,
            "expires_at": columns.expires_at,
            "dedup_key": columns.dedup_key,
            "lane": columns.lane or options.lane_by,
            "lane_capacity": columns.lane_capacity,
            "lane_spacing": columns.lane_spacing,
            "lane_burst": columns.lane_burst,
            "lane_policy": columns.lane_policy,
        }
        # Columns of pgqueue_job, in the order of COPY.
        self.names = tuple(
            name for name in used if used[name] or name in options.constants
        )
        # What all rows have, as text; and which columns differ.
        self.constants = dict(options.constants)
        if has_marks and not (columns.tags or columns.headers):
            self.constants["headers"] = headers_of_all(options)
        self.varying = tuple(name for name in self.names if name not in self.constants)
        self._copied = self.names
        self._lead = ""

    def leave_out_constants(self, *, lead: str) -> None:
        """From now on, write *lead* before each row, and none of the constants."""
        self._lead = lead
        self._copied = self.varying

    def check(self, batch: Any) -> Iterator[Checked]:
        """Yield what has become of the rows of a pyarrow.RecordBatch, in order."""
        step = max(1, batch.num_rows * SLICE_BYTES_MAX // max(1, batch.nbytes))
        for first in range(0, batch.num_rows, step):
            yield self._check(batch.slice(first, step), first)

    def _check(self, batch: Any, first: int) -> Checked:
        arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
        reasons: Reasons = {}
        parts = self._parts(batch, reasons)
        refused = None
        if reasons:
            good = arrow.array([row not in reasons for row in range(batch.num_rows)])
            places = sorted(reasons)
            refused = batch.take(arrow.array(places)).append_column(
                self._reason, arrow.array([reasons[place] for place in places])
            )
            parts = {
                name: part if isinstance(part, str) else part.filter(good)
                for name, part in parts.items()
            }
        rows = batch.num_rows - len(reasons)
        queue = parts.get("queue", QUEUE_DEFAULT)
        if not isinstance(queue, str):
            queues = frozenset(compute.unique(queue).to_pylist())
        else:
            queues = frozenset({queue} if rows else ())
        return Checked(
            text=_copy_text(self._lead, [parts[name] for name in self._copied], rows),
            rows=rows,
            queues=queues,
            refused=refused,
            reasons={first + place: why for place, why in reasons.items()},
        )

    def _parts(self, batch: Any, reasons: Reasons) -> dict[str, Any]:
        """Return a column of texts, or one text for all rows, by column of the job."""
        columns = self._columns
        parts: dict[str, Any] = dict(self.constants)
        for name, of, default in (
            ("task", problem_of_task, None),
            ("queue", problem_of_queue, QUEUE_DEFAULT),
        ):
            column = getattr(columns, name)
            if column is not None:
                parts[name] = name_texts(
                    batch.column(column), name, of, default, reasons
                )
        for name, low, high, usual in (
            ("priority", PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT),
            ("max_attempts", 1, ATTEMPTS_MAX, ATTEMPTS_DEFAULT),
        ):
            column = getattr(columns, name)
            if column is not None:
                parts[name] = number_texts(
                    batch.column(column), name, low, high, usual, reasons
                )
        for name, of_job in (("run_at", "run_after"), ("expires_at", "expires_at")):
            column = getattr(columns, name)
            if column is not None:
                parts[of_job] = moment_texts(batch.column(column), name, reasons)
        if columns.dedup_key is not None:
            parts["dedup_key"] = _dedup_keys(batch.column(columns.dedup_key), reasons)
        if "headers" in self.varying:
            parts["headers"] = self._headers(batch, reasons)
        self._lane(batch, parts, reasons)
        self._arguments(batch, parts, reasons)
        return parts

    def _lane(self, batch: Any, parts: dict[str, Any], reasons: Reasons) -> None:
        """Add the lane and what it takes to *parts*."""
        compute, columns = extra("pyarrow.compute"), self._columns
        for name, of in (("lane", problem_of_lane), ("lane_policy", problem_of_policy)):
            column = getattr(columns, name)
            if column is not None:
                values = batch.column(column)
                names = name_texts(values, name, of, NO_NAME, reasons)
                parts[name] = compute.if_else(values.is_null(), None, names)
        for name, high in (
            ("lane_capacity", LANE_CAPACITY_MAX),
            ("lane_burst", LANE_BURST_MAX),
        ):
            column = getattr(columns, name)
            if column is not None:
                parts[name] = number_texts(
                    batch.column(column), name, 1, high, None, reasons
                )
        if columns.lane_spacing is not None:
            spacings = batch.column(columns.lane_spacing)
            parts["lane_spacing"] = _spacings(spacings, reasons)
        if self._options.lane_by:
            key = [(name, batch.column(name)) for name in self._options.lane_by]
            parts["lane"] = _lanes(parts["task"], key, reasons)

    def _whole(
        self, batch: Any, column: str, kind: type | None, path: str, reasons: Reasons
    ) -> Any:
        """Return JSON of which a column holds all: of a kind, or None: of any."""
        values = batch.column(column)
        if self._options.is_encoded:
            return stored_texts(values, path, EMPTY[kind], reasons)
        return _whole(values, kind, path, reasons)

    def _headers(self, batch: Any, reasons: Reasons) -> Any:
        """Return the headers with the tags in them, looking at each set once."""
        arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
        columns, options = self._columns, self._options
        if options.is_encoded:
            assert columns.headers is not None
            return self._whole(batch, columns.headers, dict, "headers", reasons)
        texts = []
        for column, empty in ((columns.headers, "{}"), (columns.tags, "[]")):
            if column is None:
                texts.append(arrow.repeat(empty, batch.num_rows))
                continue
            values = batch.column(column)
            text = json_texts(values, column, reasons)
            if is_text(values.type):
                text = compute.if_else(text.is_null(), None, values)
            nothing = compute.or_(values.is_null(), text.is_null())
            texts.append(compute.if_else(nothing, empty, text))
        # Neither has a bare line break: JSON escapes it.
        both = compute.binary_join_element_wise(*texts, "\x01").dictionary_encode()
        made = [
            marks(
                *pair.split("\x01", 1),
                of_all=options.headers,
                tags_of_all=options.tags,
                bytes_max=options.payload_bytes_max,
            )
            for pair in both.dictionary.to_pylist()
        ]
        return _looked_up(both, made, reasons)

    def _arguments(self, batch: Any, parts: dict[str, Any], reasons: Reasons) -> None:
        """Add args and kwargs to *parts*; the size of both is checked."""
        columns, bytes_max = self._columns, self._options.payload_bytes_max
        if columns.args is not None:
            parts["args"] = self._whole(batch, columns.args, list, "args", reasons)
        if columns.kwargs is not None:
            parts["kwargs"] = self._whole(
                batch, columns.kwargs, dict, "kwargs", reasons
            )
        elif columns.arguments:
            texts = [
                json_texts(batch.column(name), f"kwargs.{name}", reasons)
                for name in columns.arguments
            ]
            parts["kwargs"] = json_objects(columns.arguments, texts)
        texts = [parts[name] for name in ("args", "kwargs") if name in parts]
        if texts:
            # The one that is not there takes two bytes.
            refuse_too_large(texts, "arguments take", bytes_max, reasons)


def headers_of_all(options: WriteOptions) -> str:
    text, problem = marks(
        "{}",
        "[]",
        of_all=options.headers,
        tags_of_all=options.tags,
        bytes_max=options.payload_bytes_max,
    )
    if text is None:
        raise SparkOptionError(f"The options headers and tags: {problem}.")
    return text


def places_of(mask: Any) -> list[int]:
    """Return where *mask* is true; NULL is not."""
    if mask.true_count == 0:
        return []
    found: list[int] = extra("pyarrow.compute").indices_nonzero(mask).to_pylist()
    return found


def is_text(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def json_texts(values: Any, path: str, reasons: Reasons) -> Any:
    """Return the JSON texts of *values*; those that cannot travel are refused."""
    texts = json_text(values)
    if texts.null_count:
        for place in places_of(texts.is_null()):
            reasons.setdefault(place, explain(values.take([place]), path))
    return texts


def stored_texts(values: Any, path: str, empty: str, reasons: Reasons) -> Any:
    """
    Return JSON texts as a table of the queue has them: nobody looks at them again.

    A row with a value that redaction has hidden, when it was read, is refused.
    """
    compute = extra("pyarrow.compute")
    for place in places_of(compute.match_substring(values, PLACEHOLDER)):
        reasons.setdefault(
            place, f"{path} has {PLACEHOLDER}: what stood there was hidden by redaction"
        )
    return compute.fill_null(values, empty)


def refuse_too_large(
    texts: Sequence[Any], what: str, bytes_max: int, reasons: Reasons
) -> None:
    """Refuse rows of which two texts are too large; one that is not there is {}."""
    compute = extra("pyarrow.compute")
    sizes = [compute.cast(compute.binary_length(each), "int64") for each in texts]
    size = compute.add(sizes[0], sizes[1] if len(sizes) == 2 else 2)
    for place in places_of(compute.greater(size, bytes_max)):
        reasons.setdefault(
            place,
            f"{what} {size[place].as_py():,} bytes as JSON; the limit is "
            f"{bytes_max:,} (option payloadBytesMax)",
        )


def _looked_up(
    encoded: Any, made: list[tuple[str | None, str]], reasons: Reasons
) -> Any:
    """Return the text for each row of a dictionary array; None is refused."""
    arrow = extra("pyarrow")
    texts = arrow.array([text for text, _ in made], arrow.string())
    found = texts.take(encoded.indices)
    if texts.null_count:
        for place in places_of(found.is_null()):
            reasons.setdefault(place, made[encoded.indices[place].as_py()][1])
    return found


def name_texts(
    values: Any,
    name: str,
    problem_of: Callable[[str], str | None],
    default: str | None,
    reasons: Reasons,
) -> Any:
    """Return names of tasks or queues; each is looked at once, however many rows."""
    arrow = extra("pyarrow")
    encoded = values.cast(arrow.binary()).dictionary_encode(null_encoding="encode")
    made: list[tuple[str | None, str]] = []
    for value in encoded.dictionary.to_pylist():
        text = default
        problem = None if default else f"{name} is NULL"
        if value is not None:
            try:
                text = value.decode()
                problem = problem_of(text)
            except UnicodeDecodeError:
                problem = f"{name} is not UTF-8"
        made.append((None, problem) if problem else (text, ""))
    return _looked_up(encoded, made, reasons)


def number_texts(
    values: Any, name: str, low: int, high: int, usual: int | None, reasons: Reasons
) -> Any:
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    values = values.cast(arrow.int64())
    if usual is not None:
        values = compute.fill_null(values, usual)
    wrong = compute.or_(compute.less(values, low), compute.greater(values, high))
    for place in places_of(wrong):
        reasons.setdefault(
            place,
            f"{name} is {values[place].as_py()}; it must be from {low} to {high:,}",
        )
    return values.cast(arrow.string())


def moment_texts(values: Any, name: str, reasons: Reasons) -> Any:
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    values = values.cast(arrow.timestamp("us", tz="UTC"))
    numbers = values.cast(arrow.int64())
    low, high = (_microseconds(moment) for moment in (TIME_MIN, TIME_MAX))
    wrong = compute.or_(compute.less(numbers, low), compute.greater(numbers, high))
    for place in places_of(wrong):
        reasons.setdefault(place, f"{name} must be in the years 1900 to 9000")
    # Of the moment in UTC; a wrong one may be of a year that has no text.
    numbers = compute.if_else(wrong, None, numbers)
    texts = numbers.cast(arrow.timestamp("us")).cast(arrow.string())
    return compute.binary_join_element_wise(texts, "+00", "")


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000


def _dedup_keys(values: Any, reasons: Reasons) -> Any:
    compute = extra("pyarrow.compute")
    json_texts(values, "dedup_key", reasons)
    # A character of UTF-8 is a byte that continues none.
    too_long = compute.greater(compute.binary_length(values), DEDUP_CHARACTERS_MAX)
    for place in places_of(too_long):
        key = values[place].as_py() if place not in reasons else ""
        if len(key) > DEDUP_CHARACTERS_MAX:
            reasons[place] = (
                f"dedup_key has {len(key)} characters; the limit is "
                f"{DEDUP_CHARACTERS_MAX}"
            )
    for place in places_of(compute.equal(compute.binary_length(values), 0)):
        reasons.setdefault(place, "dedup_key is empty; without one it is NULL")
    return values


def _spacings(values: Any, reasons: Reasons) -> Any:
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    values = values.cast(arrow.float64())
    is_long = compute.greater_equal(values, LANE_SPACING_MIN)
    # NaN is neither.
    fits = compute.and_(is_long, compute.less_equal(values, float(LANE_SPACING_MAX)))
    for place in places_of(compute.invert(fits)):
        reasons.setdefault(
            place,
            f"lane_spacing is {values[place].as_py()}; it must be seconds, "
            f"{LANE_SPACING_MIN:f} to {LANE_SPACING_MAX:,}",
        )
    return values.cast(arrow.string())


def _lanes(task: Any, key: list[tuple[str, Any]], reasons: Reasons) -> Any:
    """Return the lanes that a key makes, as tasks/lanes.py does; NULL: none."""
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    texts = []
    for name, values in key:
        known = values
        if is_text(values.type):
            fit = json_texts(values, f"lane: {name}", reasons)
            known = compute.if_else(fit.is_null(), None, values)
        texts.append(known.cast(arrow.string()))
    lanes = compute.binary_join_element_wise(task, *texts, LANE_SEPARATOR)
    lanes = lanes.cast(arrow.string())
    if not places_of(compute.greater(compute.utf8_length(lanes), LANE_CHARACTERS_MAX)):
        return lanes
    encoded = lanes.dictionary_encode()
    short = [shortened(name) for name in encoded.dictionary.to_pylist()]
    return arrow.array(short, arrow.string()).take(encoded.indices)


def _whole(values: Any, kind: type | None, path: str, reasons: Reasons) -> Any:
    """Return JSON of which a column holds all."""
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    texts = json_texts(values, path, reasons)
    if is_text(values.type):
        found = compute.if_else(texts.is_null(), None, values).to_pylist()
        stored, problems = check_texts(found, kind, path)
        for place, problem in problems.items():
            reasons.setdefault(place, problem)
        return arrow.array(stored, arrow.string())
    if values.null_count == 0:
        return texts
    return compute.if_else(values.is_null(), EMPTY[kind], texts)


def _copy_text(lead: str, parts: list[Any], rows: int) -> Any:
    """
    Return the rows of COPY's text format, as a buffer.

    Args:
        lead: Before each row, as COPY reads it.
        parts: For each column texts, NULL for NULL; or one text for all rows.
        rows: How many there are.
    """
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    if rows == 0:
        return memoryview(b"")
    pieces: list[Any] = [lead]
    for place, part in enumerate(parts):
        pieces += ["\t"] if place else []
        pieces.append(_escaped_text(part) if isinstance(part, str) else _escaped(part))
    if all(isinstance(piece, str) for piece in pieces):
        return memoryview(("".join(pieces) + "\n").encode() * rows)
    texts = compute.binary_join_element_wise(*pieces, "\n", "")
    texts = texts.cast(arrow.string())
    _, offsets, data = texts.buffers()
    whole = memoryview(offsets).cast("i")
    first, last = whole[texts.offset], whole[texts.offset + len(texts)]
    return memoryview(data)[first:last]


def _escaped_text(text: str) -> str:
    for character, escape in ESCAPES:
        text = text.replace(character, escape)
    return text


def _escaped(texts: Any) -> Any:
    compute = extra("pyarrow.compute")
    if compute.any(compute.match_substring_regex(texts, SPECIAL)).as_py():
        for character, escape in ESCAPES:
            texts = compute.replace_substring(texts, character, escape)
    return compute.fill_null(texts, "\\N") if texts.null_count else texts

"""
Sums: how many rows batches have, and a checksum over all of their columns.

The checksum is a sum over rows, modulo 2**64: neither the order of rows nor that of
columns matters, nor how rows are cut into files. A value that is NULL adds nothing, so
a day has the same checksum before and after a column was added. Each row's part is
mixed, so that a value that has got into another row is noticed.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.spark.tables import ARCHIVE

COLUMNS = tuple(column.name for column in ARCHIVE.columns)

# How `content` of a manifest begins that is such a checksum; it was another before.
PREFIX = "a1:"

MODULUS = 2**64

# A text is read as a polynomial over its bytes, at this point. An odd number has an
# inverse, by which all texts of a batch are read at once.
POINT = 0x9E3779B97F4A7C15
INVERSE = pow(POINT, -1, MODULUS)

# Bytes of texts that are read at once, so that their powers stay in the processor's
# cache; a longer text is hashed by itself.
BYTES_AT_ONCE = 65_536
TEXT_BYTES_MAX = 65_536


class Sums:
    """The sums of what add() was given."""

    def __init__(self) -> None:
        self.rows = 0
        self._total = 0

    @property
    def content(self) -> str:
        """The checksum, as a manifest has it."""
        return f"{PREFIX}{self._total:016x}"

    def add(self, batch: Any) -> None:
        """Add the rows of a pyarrow.RecordBatch, of any columns."""
        numpy = extra("numpy")
        self.rows += batch.num_rows
        rows = numpy.zeros(batch.num_rows, dtype=numpy.uint64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count < len(column):
                rows += _cells(column) * _factor(name)
        self._total = (self._total + int(_mixed(rows).sum())) % MODULUS

    def take_away(self, other: Sums) -> None:
        """Take away rows that were added."""
        self.rows -= other.rows
        self._total = (self._total - other._total) % MODULUS

    @classmethod
    def of(cls, rows: int, content: str) -> Sums:
        """Return the sums that a manifest has; *content* must begin with PREFIX."""
        found = cls()
        found.rows, found._total = rows, int(content.removeprefix(PREFIX), 16)
        return found


def _cells(column: Any) -> Any:
    """Return a number for each value of *column*; 0 where it is NULL."""
    numpy, arrow = extra("numpy"), extra("pyarrow")
    compute = extra("pyarrow.compute")
    kind = column.type
    values = None
    if arrow.types.is_floating(kind):
        values = column.cast(arrow.float64())
    elif arrow.types.is_boolean(kind) or arrow.types.is_integer(kind):
        values = column.cast(arrow.int64())
    elif arrow.types.is_timestamp(kind):
        values = column.cast(arrow.timestamp("us", tz="UTC")).cast(arrow.int64())
    if values is None:
        numbers = _texts(compute.fill_null(column.cast(arrow.string()), ""))
    else:
        values = compute.fill_null(values, 0).to_numpy(zero_copy_only=False)
        numbers = values.view(numpy.uint64)
    cells = _mixed(numbers + numpy.uint64(1))
    if column.null_count:
        cells = cells * column.is_valid().to_numpy(zero_copy_only=False)
    return cells


def _texts(texts: Any) -> Any:
    """Return a number for each text of a pyarrow.StringArray without NULL."""
    numpy, arrow = extra("numpy"), extra("pyarrow")
    compute = extra("pyarrow.compute")
    lengths = compute.binary_length(texts)
    long = compute.greater(lengths, TEXT_BYTES_MAX)
    if not compute.any(long).as_py():
        return _short_texts(texts)
    rest = compute.replace_with_mask(texts, long, arrow.scalar("", arrow.string()))
    numbers = _short_texts(rest)
    of_long = [
        int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
        for text in texts.filter(long).to_pylist()
    ]
    where = long.to_numpy(zero_copy_only=False)
    numbers[where] = numpy.array(of_long, dtype=numpy.uint64)
    return numbers


def _short_texts(texts: Any) -> Any:
    numpy = extra("numpy")
    _, offsets, data = texts.buffers()
    ends = numpy.frombuffer(
        offsets, dtype=numpy.int32, count=len(texts) + 1, offset=4 * texts.offset
    ).astype(numpy.int64)
    found = numpy.empty(len(texts), dtype=numpy.uint64)
    if data is None or ends[0] == ends[-1]:
        found[:] = 0
        return found
    letters = numpy.frombuffer(data, dtype=numpy.uint8)
    powers, inverses = _powers()
    room = numpy.zeros(len(powers) + 1, dtype=numpy.uint64)
    first = 0
    while first < len(texts):
        begin = ends[first]
        last = int(numpy.searchsorted(ends, begin + BYTES_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), len(texts))
        some = letters[begin : ends[last]]
        at = ends[first : last + 1] - begin
        summed = room[: len(some) + 1]
        numpy.cumsum(some * powers[: len(some)], out=summed[1:])
        part = (summed[at[1:]] - summed[at[:-1]]) * inverses[at[:-1]]
        # The length, since a text may end with zeros.
        found[first:last] = part + (at[1:] - at[:-1]).view(numpy.uint64)
        first = last
    return found


@cache
def _powers() -> tuple[Any, Any]:
    """Return the powers of POINT and of its inverse, for what is read at once."""
    numpy = extra("numpy")
    both = []
    for base in (POINT, INVERSE):
        powers = numpy.full(BYTES_AT_ONCE + TEXT_BYTES_MAX + 1, base, numpy.uint64)
        powers[0] = 1
        both.append(numpy.multiply.accumulate(powers))
    return both[0], both[1]


def _mixed(numbers: Any) -> Any:
    """Return numbers of which each bit depends on all of the given one."""
    numpy = extra("numpy")
    mixed = numbers
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> numpy.uint64(shift))) * numpy.uint64(factor)
    return mixed ^ (mixed >> numpy.uint64(31))


@cache
def _factor(name: str) -> Any:
    """Return the odd number by which the values of the column *name* are known."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    return extra("numpy").uint64(int.from_bytes(digest) | 1)

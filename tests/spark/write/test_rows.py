"""What a batch becomes, without Spark: the text for COPY, and who is refused."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_pgqueue.exceptions import SparkOptionError
from tests.spark.conftest import require

pytestmark = pytest.mark.spark

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def batch(**columns: Any) -> Any:
    """Return a batch; a column is a list, or a list and its Arrow type."""
    require("pyarrow")
    import pyarrow

    arrays = {
        name: pyarrow.array(*values) if isinstance(values, tuple) else values
        for name, values in columns.items()
    }
    return pyarrow.RecordBatch.from_pydict(arrays)


def rows_of(given_batch: Any, **options: Any) -> Any:
    """Return the Rows of a write of such batches."""
    from django_pgqueue.spark.write.options import parse
    from django_pgqueue.spark.write.parts import plan
    from django_pgqueue.spark.write.rows import Rows

    parsed = parse(options)
    return Rows(plan(given_batch.schema, parsed), parsed)


def check(given_batch: Any, **options: Any) -> tuple[list[dict[str, str]], Any]:
    """Return the rows for COPY, unescaped, and the reasons of the others."""
    rows = rows_of(given_batch, **options)
    made, reasons = [], {}
    for checked in rows.check(given_batch):
        lines = bytes(checked.text).decode().split("\n")[:-1]
        assert checked.rows == len(lines)
        made += [
            rows.constants
            | dict(zip(rows.varying, map(unescape, line.split("\t")), strict=True))
            for line in lines
        ]
        reasons |= checked.reasons
    return made, reasons


def unescape(text: str) -> str | None:
    """Read a field as COPY does."""
    if text == "\\N":
        return None
    written = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    return re.sub(r"\\(.)", lambda found: written[found[1]], text)


def stored(values: list[Any], kind: Any) -> list[Any]:
    """Return the arguments that a task gets of one column; None: refused."""
    from django_pgqueue.tasks.payload import decode

    made, reasons = check(batch(x=(values, kind)), task="a.b")
    found = iter(made)
    return [
        None if place in reasons else decode("[]", next(found)["kwargs"])[1]["x"]
        for place in range(len(values))
    ]


@given(st.lists(st.floats(), min_size=1))
@example([0.0, -0.0, 1e9, 1e-4, 9.999e15, 1e16, 1e300, 5e-324, 123456789.123])
def test_floats_come_back_as_they_were(values):
    """Every float, but for NaN and the infinities, which are refused."""
    import pyarrow

    expected = [value if math.isfinite(value) else None for value in values]

    assert list(map(repr, expected)) == list(
        map(repr, stored(values, pyarrow.float64()))
    )


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
@example(['"', "\\", "\n\t\r", "\x00", "\x1f\x7f", "é😀", "\\N", "__pgqueue__"])
def test_texts_come_back_as_they_were(values):
    """Every text, but for those with a NUL character."""
    import pyarrow

    expected = [None if "\0" in value else value for value in values]

    assert expected == stored(values, pyarrow.string())


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), min_size=1))
@example([{"a": "\x00"}, {"__pgqueue__": 1}, {"a": 1e400}, {"a": "\ud800"}])
@example([{"a": 1e16}, {"a": [[[1]]]}, {"\x00": 1}, {}])
def test_json_text_is_taken_as_delay_takes_its_values(values):
    """What delay() refuses is refused, and the rest reads the same."""
    from django_pgqueue.exceptions import InvalidArgument
    from django_pgqueue.tasks.payload import decode, encode

    texts = [json.dumps(value) for value in values]
    made, reasons = check(batch(kwargs=texts), task="a.b")
    rows = iter(made)
    for place, value in enumerate(values):
        try:
            _, kwargs = encode("a.b", [], value, payload_bytes_max=1_000_000)
        except InvalidArgument:
            assert place in reasons
        else:
            assert place not in reasons
            assert decode("[]", kwargs) == decode("[]", next(rows)["kwargs"])


def test_nested_values_are_objects_and_arrays():
    """Structs, maps and arrays, with NULLs at any level, also of a part of a batch."""
    import pyarrow

    inner = pyarrow.struct(
        [("a", pyarrow.list_(pyarrow.int64())), ("m", pyarrow.map_("string", "int32"))]
    )
    values = [
        {"a": [1, None], "m": [("x", 1), ("y", None)]},
        None,
        {"a": None, "m": None},
        {"a": [], "m": []},
        {"a": [7], "m": [("z", 2)]},
    ]
    expected = [
        {"a": [1, None], "m": {"x": 1, "y": None}},
        None,
        {"a": None, "m": None},
        {"a": [], "m": {}},
        {"a": [7], "m": {"z": 2}},
    ]

    made, _ = check(batch(x=(values, inner)).slice(1), task="a.b")

    assert expected[1:] == [json.loads(row["kwargs"])["x"] for row in made]


def moment(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "columns, problem",
    [
        ({"task": [""]}, "task has 0 characters"),
        ({"task": ([None], "string")}, "task is NULL"),
        ({"queue": ["a b"]}, "queue is 'a b'; a queue name has"),
        ({"priority": [101]}, "priority is 101; it must be from -100 to 100"),
        ({"run_at": [moment(1800)]}, "run_at must be in the years 1900 to 9000"),
        ({"dedup_key": ["k" * 256]}, "dedup_key has 256 characters; it has 1 to 255"),
        ({"dedup_key": ["a\0"]}, "dedup_key holds a NUL character"),
        ({"lane": [""]}, "lane has 0 characters; its name has 1 to 255"),
        ({"lane_spacing": [0.0]}, "lane_spacing is 0.0; it must be seconds, 0.000001"),
        ({"lane_policy": ["halt"]}, "lane_policy is 'halt'; it must be one of skip"),
        ({"tags": [["x" * 64]]}, "a tag is text of 1 to 63 printable characters"),
        ({"headers": ['{"trace": 1}']}, "headers has the key 'trace', which is"),
        ({"headers": ['{"pgqueue.x": 1}']}, "are reserved"),
        ({"kwargs": ["[]"]}, "kwargs must be a JSON object"),
        ({"args": ['{"a": 1}']}, "args must be a JSON array"),
        ({"args": ["[" * 101 + "]" * 101]}, "is nested deeper than 100 levels"),
        ({"text": ["x" * 200]}, "arguments take 213 bytes as JSON; the limit is 200"),
    ],
)
def test_a_row_is_refused_as_delay_refuses_it(columns, problem):
    """One bad row; the good one beside it is not."""
    good = {
        "task": "a.b",
        "queue": "q",
        "priority": 1,
        "run_at": moment(2030),
        "dedup_key": "k",
        "lane": "a",
        "lane_spacing": 0.5,
        "lane_policy": "skip",
        "tags": ["t"],
        "headers": "{}",
        "kwargs": "{}",
        "args": "[]",
        "text": "x",
    }
    ((name, bad),) = (
        (name, values[0] if isinstance(values, tuple) else values)
        for name, values in columns.items()
    )
    options = {} if name == "task" else {"task": "a.b"}
    if name.startswith("lane_"):
        options["lane"] = "a"

    made, reasons = check(
        batch(**{name: [good[name], *bad]}), payloadBytesMax="200", **options
    )

    assert 1 == len(made)
    assert problem in reasons[1]


def test_nulls_are_what_a_plain_enqueue_has():
    """No queue, priority or arguments: those of the table."""
    import pyarrow

    text, number = pyarrow.string(), pyarrow.int32()

    made, _ = check(
        batch(
            queue=([None], text),
            priority=([None], number),
            max_attempts=([None], number),
            dedup_key=([None], text),
            kwargs=([None], text),
            args=([None], text),
            run_at=([None], pyarrow.timestamp("us", tz="UTC")),
        ),
        task="a.b",
    )

    assert [
        {
            "task": "a.b",
            "queue": "default",
            "priority": "0",
            "max_attempts": "5",
            "dedup_key": None,
            "kwargs": "{}",
            "args": "[]",
            "run_after": None,
        }
    ] == made


def test_a_key_makes_the_lane_that_delay_makes():
    """Of the same values, also where its end is hashed; NULL waits for nobody."""
    import pyarrow

    from django_pgqueue import task
    from django_pgqueue.tasks.lanes import lane_of

    texts = ["c", "ü:", "x" * 300, "", None, "tab\t"]
    columns = {
        "text": texts,
        "number": [7, -1, 0, None, 5, 2**40],
        "day": [date(2026, 1, 2)] * 6,
        "flag": [True, False] * 3,
    }

    def step(text, number, day, flag): ...

    twin = task(name="a.b", group=[*columns])(step)
    kinds = {"text": pyarrow.large_string(), "day": pyarrow.date32()}
    arrays = {
        name: (values, kinds[name]) if name in kinds else (values,)
        for name, values in columns.items()
    }

    made, reasons = check(
        batch(**arrays), task="a.b", laneBy=", ".join(columns), laneCapacity="5"
    )

    items = [{name: columns[name][row] for name in columns} for row in range(6)]
    lane = twin.options.lane
    assert {} == reasons
    assert [lane_of(twin, lane, (), item) for item in items] == [
        row["lane"] for row in made
    ]
    assert {"5"} == {row["lane_capacity"] for row in made}
    assert {"text", "number", "day", "flag"} == set(json.loads(made[0]["kwargs"]))


def test_text_that_is_not_utf8_is_refused():
    """A string of Spark's may hold any bytes; PostgreSQL's may not."""
    import pyarrow

    offsets = pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0")
    data = pyarrow.py_buffer(b"ab\xff\xfe")
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, offsets, data])
    given_batch = pyarrow.RecordBatch.from_arrays([texts], ["name"])

    made, reasons = check(given_batch, task="a.b")

    assert ['{"name":"ab"}'] == [row["kwargs"] for row in made]
    assert {1: "kwargs.name is not UTF-8"} == reasons


@pytest.mark.parametrize(
    "columns, given_options, problem",
    [
        ({"id": [1]}, {}, "Which task?"),
        ({"task": ["a"]}, {"task": "b"}, "a column task, and an option for it"),
        ({"run_at": [1]}, {"task": "a"}, "run_at is of the type int64; it must be"),
        ({"kwargs": ["{}"], "id": [1]}, {"task": "a"}, "id would be left out"),
        ({"kw": ["{}"]}, {"task": "a", "kwargsColumn": "kws"}, "Did you mean 'kw'?"),
        ({"refused_reason": [1]}, {"task": "a", "refusedPath": "/x"}, "refusedPath"),
        ({"who": [1]}, {"task": "a", "laneBy": "whom"}, "Did you mean 'who'?"),
        ({"who": [1], "lane": ["x"]}, {"task": "a", "laneBy": "who"}, "has one lane"),
        ({"id": [1]}, {"task": "a", "laneCapacity": "5"}, "and no lane: give"),
        (
            {"dedup_key": ["k"]},
            {"task": "a", "lane": "x"},
            "dedup_key and the option lane cannot go together",
        ),
    ],
)
def test_columns_that_make_no_job_are_refused(columns, given_options, problem):
    """Before anything is written."""
    with pytest.raises(SparkOptionError) as refused:
        rows_of(batch(**columns), **given_options)

    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "given_options, problem",
    [
        ({"tsk": "a"}, "Unknown option 'tsk'. Did you mean 'task'?"),
        ({"priority": "101"}, "priority is '101'; it must be a whole number from -100"),
        ({"runAt": "2026-03-01"}, "with its offset, such as"),
        ({"laneBy": "a,a"}, "The option laneBy is 'a,a'; it must name 1 to 10"),
        ({"lanePolicy": "halt"}, "must be one of skip, dead-letter, fair"),
        ({"headers": '{"tags": []}'}, "reserved: give tags="),
        ({"refusedPath": "x/y"}, "it must be a whole path"),
        ({"refusedPath": "s3://k:secret@b/p"}, "has a password in it"),
        ({"url": "postgresql://u:secret@h/d"}, "PGQUEUE_DSN"),
    ],
)
def test_a_wrong_option_is_refused_with_the_way_out(given_options, problem):
    """The error names the option, the value and what is known; no secret."""
    from django_pgqueue.spark.write.options import parse

    with pytest.raises(SparkOptionError) as refused:
        parse(given_options)

    assert problem in str(refused.value)
    assert "secret" not in str(refused.value)

"""What comes of a measure: medians, ratios, goals, paces, and the table of them."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from django_pgqueue.management.bench.backlog import seconds_until
from django_pgqueue.management.bench.horizon import tenths
from django_pgqueue.management.bench.measure import (
    Goal,
    Measure,
    Pair,
    Pairs,
    Plan,
    Result,
    Run,
    at_least,
    at_most,
    run_measure,
)
from django_pgqueue.management.bench.measures import MEASURES, chosen
from django_pgqueue.management.bench.place import Place
from django_pgqueue.management.bench.table import table

REPOSITORY = Path(__file__).resolve().parents[3]

ALSO = {
    "backlog": ["claim_buffers"],
    "capture": ["one_us", "many_us"],
    "idle": ["cpu_percent", "rss_mb", "queries_per_second"],
    "lanes_parked": ["claim_buffers"],
    "lanes_snapshot": ["pages"],
    "latency_trickle": ["p99/p50", "p99/plain"],
    "start": ["adds", "adds_to_admin", "first_job_after"],
    "topics": ["published", "read"],
}

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def no_sides(*_: Any) -> Any: ...


def measure(**options: Any) -> Measure:
    told: dict[str, Any] = {"name": "drain", "what": "…", "unit": "u", "jobs": 1}
    return Measure(**{**told, "parts": {"": no_sides}, **options})


def pairs(ours: list[float], plain: list[float], **options: Any) -> Pairs:
    part = options.pop("part", "")
    made = [Pair(Run([a]), Run([b])) for a, b in zip(ours, plain, strict=True)]
    return Pairs(measure(**options), part, made)


def at(*settles: tuple[float, int]) -> list[tuple[datetime, int]]:
    return [(NOON + timedelta(seconds=second), jobs) for second, jobs in settles]


def test_the_ratio_is_the_median_of_the_pairs():
    """A pair that met a busy machine counts like any other: 1/2, 1/2 and 9/10."""
    measured = pairs([10, 1, 9], [20, 2, 10])

    assert measured.ratio == 0.5
    assert measured.as_json() == {
        "product": {"median": 9, "min": 1, "max": 10, "unit": "u"},
        "yardstick": {"median": 10, "min": 2, "max": 20, "unit": "u"},
        "ratio": 0.5,
    }


def test_percentiles_are_of_all_runs_together():
    """The latency of 200 jobs in two runs."""
    runs = [Run([float(n) for n in range(low, low + 100)]) for low in (1, 101)]
    measured = Pairs(measure(is_latency=True), "", [Pair(r, r) for r in runs])

    told = measured.product
    assert told["p50"] == told["median"] == 100.5
    assert (told["p95"], told["p99"]) == (190.1, 198.0)
    assert "198" in table([Result(measured.measure, 100, [measured])])


def test_a_measure_of_several_parts_is_its_worst():
    """Its sides are those of the worst part; other figures are the worst of any."""
    good = Pairs(measure(), "good", [Pair(Run([9], {"pages": 7}), Run([10]))])
    bad = Pairs(measure(), "bad", [Pair(Run([5], {"pages": 3}), Run([10]))])
    goals = (at_least(0.5), at_most("pages", 6))
    result = Result(measure(goals=goals), 1, [good, bad])

    told = result.as_json()
    assert told["ratio"] == 0.5
    assert told["product"]["median"] == 5
    assert list(told["parts"]) == ["good", "bad"]
    assert told["parts"]["good"]["product"]["pages"] == 7
    # The ratio is, the pages are not.
    assert told["met"] is False


def test_parts_that_do_not_count_are_shown():
    """The ratio is of the others; a figure that one part has is its own."""
    slow = Pairs(measure(), "slow", [Pair(Run([1]), Run([10]))])
    fast = Pairs(measure(), "fast", [Pair(Run([9], {"read": 7}), Run([10]))])
    goals = (at_least(0.5), at_least(7, "read"))
    result = Result(measure(goals=goals, counted=("fast",)), 1, [slow, fast])

    told = result.as_json()
    assert (0.9, True) == (told["ratio"], told["met"])
    assert ["slow", "fast"] == list(told["parts"])
    assert ["no" in line for line in table([result]).splitlines()].count(True) == 0
    assert Result(measure(goals=goals), 1, [slow, fast]).is_met is False


@pytest.mark.parametrize(
    "goal, figures, is_met",
    [
        (at_least(0.8), {"ratio": 0.8}, True),
        (at_least(0.8), {"ratio": 0.79}, False),
        (at_most("p99", 4, "ms"), {"p99": 4.0}, True),
        (at_most("p99", 4, "ms"), {"p99": 4.1}, False),
        (at_most("queries", 2), {"ratio": 9.0}, True),
    ],
)
def test_a_goal_is_a_limit_of_one_figure(goal: Goal, figures: Any, is_met: bool):
    """Its limit is inside; a figure that nobody could measure misses none."""
    assert goal.is_met(figures) is is_met


def test_tenths_compare_the_ends_of_a_drain():
    """A hundred jobs a second at first, ten a second at the end."""
    settles = [(0, 10), *((n / 10, 10) for n in range(1, 10)), (10.0, 100)]

    first, last = tenths(at(*settles))

    assert first == pytest.approx(100)
    assert last == pytest.approx(100 / 9.1)


def test_a_drain_of_one_settle_has_no_pace():
    """What cannot be timed is an error, and no figure."""
    with pytest.raises(ValueError, match="1 settles are too few"):
        tenths(at((0, 100)))


def test_a_drain_ends_with_the_settle_that_completes_it():
    """What comes after the last job that counts is not waited for."""
    finished = at((1, 10), (2, 10), (9, 1))

    assert seconds_until(finished, NOON, 20) == 2
    with pytest.raises(ValueError, match="21 jobs are finished, 22 were expected"):
        seconds_until(finished, NOON, 22)


def test_the_table_fits_a_terminal():
    """Of 80 columns, with the longest names and figures that there are."""
    results = []
    for m in MEASURES.values():
        run = Run([123_456.0, 123_456.0], dict.fromkeys(ALSO.get(m.name, ()), 123_456))
        parts = [Pairs(m, part, [Pair(run, run)]) for part in m.parts]
        results.append(Result(m, 1, parts))

    text = table(results)

    assert max(map(len, text.splitlines())) <= 80
    for name, found in MEASURES.items():
        assert f"{name}: {found.what}" in text


@pytest.mark.parametrize(
    "pattern, names",
    [
        ("all", list(MEASURES)),
        ("drain", ["drain"]),
        ("latency*", ["latency", "latency_mixed", "latency_trickle"]),
        ("drain_immediate_??", ["drain_immediate_16", "drain_immediate_64"]),
        ("lanes", [name for name in MEASURES if name.startswith("lanes_")]),
    ],
)
def test_a_pattern_means_all_measures_that_match(pattern: str, names: list[str]):
    """A name means itself alone, and a beginning all that begin so."""
    assert names == chosen(pattern)


def test_what_cannot_be_measured_is_left_out_until_it_is_named(monkeypatch):
    """Then the package that it needs is named, before anything is measured."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    others = [name for name in MEASURES if name != "drain_trace"]
    assert others == chosen("all")
    assert "drain_trace" not in chosen("drain_*")
    assert ["drain_trace"] == chosen("drain_trace")
    with pytest.raises(CommandError, match="drain_trace needs opentelemetry-sdk"):
        run_measure(MEASURES["drain_trace"], None, None, None)


def test_the_reference_tells_every_measure():
    """In the order in which they run, with the number of jobs."""
    page = (REPOSITORY / "docs/reference/commands.md").read_text(encoding="utf-8")
    table = page[page.index("### Measures") : page.index("### The JSON object")]
    told = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", table, re.MULTILINE))

    assert list(MEASURES) == list(told)
    for name in ("enqueue", "bulk", "contend", "drain", "async", "latency", "horizon"):
        assert f"{MEASURES[name].jobs:,}" in told[name]


def test_jobs_are_at_least_what_gives_a_figure():
    """Those of the command line, unless they are too few; else the measure's."""
    told = measure(jobs=500, jobs_min=100)

    assert [told.jobs_of(plan(jobs)) for jobs in (None, 20, 300)] == [500, 100, 300]
    assert measure(jobs=0).jobs_of(plan(20)) == 0


def plan(jobs: int | None) -> Plan:
    return Plan(runs=1, jobs=jobs, rows=1, seconds=1, say=print)


def test_a_schema_hides_all_others():
    """A table that is missing in it is missing, and not one of the project's."""
    schema = Place(name="pgqueue_bench_x", is_schema=True)
    told = {"NAME": "shop", "OPTIONS": {"options": "-c jit=off", "sslmode": "prefer"}}

    assert schema.settings(told) == {
        "NAME": "shop",
        "OPTIONS": {
            "options": "-c jit=off -c search_path=pgqueue_bench_x",
            "sslmode": "prefer",
        },
    }
    assert told["OPTIONS"] == {"options": "-c jit=off", "sslmode": "prefer"}
    assert Place.from_text(schema.as_text()) == schema

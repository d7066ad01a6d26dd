"""
What a killed process repeats, by settle strength: a few kills of each.

`make faults ARGS=--windows` does it with two hundred.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.build import REPOSITORY
from tests.faults.windows.measure import Bench, Book, Case, violations
from tests.harness import seeds

KILLS = 3


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.seed(seeds.FAULTS)
def test_a_killed_process_repeats_no_more_than_its_strength_allows(tmp_path):
    """Nothing is lost; each job ends once; an atomic one has written its row once."""
    bench = Bench(REPOSITORY / "django_pgqueue", tmp_path, seeds.seed(seeds.FAULTS))
    cases = [
        Case(strength=strength, threads=16)
        for strength in ("immediate", "batched", "atomic")
    ]
    # A measure mostly waits, so all of them run at once.
    with ThreadPoolExecutor(len(cases)) as pool:
        windows = list(pool.map(lambda case: bench.measure(case, KILLS), cases))

    assert [[]] * len(cases) == [window["violations"] for window in windows]
    assert {KILLS} == {window["kills"] for window in windows}


@pytest.mark.parametrize(
    "kind, changes",
    [
        ("twice", {"rows": [(1, "succeeded"), (1, "exhausted"), (2, "succeeded")]}),
        ("lost", {"rows": [(1, "succeeded")]}),
        ("failed", {"rows": [(1, "exhausted"), (2, "succeeded")]}),
        ("unexplained", {"killed": []}),
        ("over", {"starts": {1: [7, 8], 2: [7, 8]}}),
        ("effects", {"effects": Counter({1: 2, 2: 1})}),
    ],
)
def test_what_must_not_be_is_found(kind, changes):
    """A run with one violation, and the same run without it."""
    right = {
        "starts": {1: [7, 8], 2: [8]},
        "killed": [{7}],
        "rows": [(1, "succeeded"), (2, "succeeded")],
        "effects": Counter({1: 1, 2: 1}),
    }

    def find(starts, killed, rows, effects):
        book = Book(starts=starts, killed=killed)
        case = Case(strength="atomic", threads=1)
        return [text.split(":")[0] for text in violations(case, book, rows, effects)]

    assert [] == find(**right)
    assert kind in find(**{**right, **changes})

"""The check of what a killed process repeats, on made-up books."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.windows.measure import Book, Case, violations


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

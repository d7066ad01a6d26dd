"""Which ids each task reads."""

from __future__ import annotations

from django_pgqueue.spark.slices import Part, conditions, cuts


def part(first, last, bounds=(), rows=1_000.0, new_rows=0.0):
    return Part(first, last, bounds, rows, new_rows, bytes=8_192)


def test_conditions_leave_out_no_row():
    """Neither below the first id that is known, nor above the last one."""
    assert ["true"] == conditions([])
    assert ["id < 5", "id >= 5 AND id < 9", "id >= 9"] == conditions([5, 9])


def test_gaps_are_no_work():
    """A bucket of the histogram has as many rows as another, however wide it is."""
    bounds = [1, *range(1_000_000, 1_001_000, 10)]

    found = cuts([part(1, 1_000_999, bounds)], 4)

    assert 3 == len(found)
    assert all(1_000_200 <= cut <= 1_000_800 for cut in found[0:3])


def test_tables_count_by_their_rows():
    """Of two days, one with nine times the rows of the other."""
    found = cuts([part(0, 999, rows=9_000), part(1_000, 1_999, rows=1_000)], 10)

    assert 9 == len(found)
    assert 1 >= sum(cut > 1_000 for cut in found)

"""Charts: round numbers, and shapes within their bounds."""

from __future__ import annotations

import math

import pytest

from django_pgqueue.admin.chart import (
    Series,
    lines,
    scale,
    sparkline,
    stacked,
)


@pytest.mark.parametrize(
    "highest, ticks",
    [
        (0, [0, 1]),
        (-1, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1]),
        (7, [0, 2, 4, 6, 8]),
        (10, [0, 2.5, 5, 7.5, 10]),
        (101, [0, 50, 100, 150]),
        (1e-6, [0, 2.5e-7, 5e-7, 7.5e-7, 1e-6]),
        (1e12, [0, 2.5e11, 5e11, 7.5e11, 1e12]),
    ],
)
def test_scales_end_at_a_round_number(highest, ticks):
    """Not below the highest value, and with a few lines in between."""
    found = scale(highest)

    assert ticks == pytest.approx(list(found.ticks))
    assert found.top >= highest * 0.999
    assert 1.0 == found.share(found.top) == found.share(found.top * 2)


@pytest.mark.parametrize("values", [[], [None], [0, 0], [1], [5, math.pi, 0]])
def test_shapes_stay_within_their_picture(values):
    """For any values, none at all too."""
    series = [Series("a", "x", values)]
    axis = scale(max([v or 0 for v in values], default=0))

    for bar in [*stacked(series, axis), *sparkline(values)]:
        left, width = float(bar["x"][:-1]), float(bar["width"][:-1])
        assert left >= 0
        assert left + width <= 100
        assert float(bar["y"]) >= 0
    assert len(lines(series, axis)) <= len(values)

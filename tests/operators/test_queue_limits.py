"""Limits of queues, in words."""

from __future__ import annotations

import pytest

from django_pgqueue import Rate
from django_pgqueue.operators.lanes import rate_text


@pytest.mark.parametrize("text", ["100/m", "10/s", "20/h", "1/d", "5/7s", "1000000/s"])
def test_a_rate_is_told_as_people_write_it(text):
    """Exactly this one, so that a form that shows it changes nothing."""
    assert text == rate_text(Rate(text).spacing)


@pytest.mark.parametrize("spacing", [0.123456789123, 0.0, -1.0])
def test_what_nobody_can_write_has_no_text(spacing):
    """SQL may have written it."""
    assert "" == rate_text(spacing)

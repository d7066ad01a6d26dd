"""Definition: an error says which part of a schedule it is about."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.schedules.definition import define

GOOD = {"name": "x", "task": "tests.app.tasks.noop", "expression": "@daily"}


@pytest.mark.parametrize(
    "part,value",
    [
        ("name", " x"),
        ("task", "tests.app.tasks.nop"),
        ("expression", "0 0 30 2 *"),
        ("expression", None),
        ("expression", 5),
        ("tz", "Europe/Berln"),
        ("catch_up", "all(0)"),
        ("overlap", "maybe"),
        ("jitter", "2d"),
        ("jitter", "soon"),
        ("args", 5),
        ("args", {"when": object()}),
        ("queue", "a b"),
        ("priority", "high"),
    ],
)
def test_an_error_names_the_part(part: str, value: Any) -> None:
    """So that a form shows it at the right field."""
    with pytest.raises(ScheduleError, match=r".") as caught:
        define(**{**GOOD, part: value})

    assert part == caught.value.part


def test_a_period_is_a_part_of_its_own() -> None:
    """Beside the expression."""
    with pytest.raises(ScheduleError, match="366 days") as caught:
        define(name="x", task="tests.app.tasks.noop", every_seconds=0)

    assert "every_seconds" == caught.value.part

"""Declare: what @cron and @every take, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgqueue import DeclarationError, ScheduleError, cron, every
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.definition import define
from tests.app.tasks import add, noop

pytestmark = pytest.mark.usefixtures("declarations")


def test_the_zone_of_the_settings_is_the_default(settings: Any) -> None:
    """Without tz=, a schedule goes by TIME_ZONE; an old name there is refused."""
    cron("0 3 * * *")(noop)
    settings.TIME_ZONE = "America/New_York"
    assert declared()[0].values()["tz"] == "America/New_York"
    settings.TIME_ZONE = "EST5EDT"
    with pytest.raises(ScheduleError, match=r"TIME_ZONE.*'EST5EDT' is an old name"):
        declared()[0].values()


def test_a_bad_expression_is_refused() -> None:
    """It is refused when declared, and nothing is declared."""
    for expression in ("", "60 * * * *", "0 0 30 2 *", "@reboot", None, b"0 3 * * *"):
        with pytest.raises(ScheduleError):
            cron(expression)(noop)  # type: ignore[arg-type]
    assert declared() == []


# What is refused, the part of a schedule that the error is about, and what it says.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"tz": "Europe/Berln"}, "tz", "Did you mean 'Europe/Berlin'"),
    ({"tz": "EST5EDT"}, "tz", "an old name"),
    ({"catch_up": "two"}, "catch_up", "catch_up='two': it must be"),
    ({"catch_up": "all(0)"}, "catch_up", r"catch_up='all\(0\)': it must be"),
    ({"catch_up": "all(1001)"}, "catch_up", "N from 1 to 1,000"),
    ({"catch_up": "all(2)"}, "overlap", "contradict each other"),
    ({"overlap": "wait"}, "overlap", "overlap='wait': it must be"),
    ({"jitter": "2d"}, "jitter", "at most a day"),
    ({"jitter": 0.5}, "jitter", "whole seconds"),
    ({"jitter": float("nan")}, "jitter", "jitter"),
    ({"queue": "no such queue!"}, "queue", "a queue name has"),
    ({"priority": 101}, "priority", "from -100 to 100"),
    ({"name": ""}, "name", "the name of a schedule has 1 to 255"),
    ({"name": " x"}, "name", "no blank around it"),
    ({"name": "a\nb"}, "name", "printable"),
    ({"args": 5}, "args", "it must be a dict"),
    ({"args": {"when": object()}}, "args", "when"),
    ({"expression": None}, "expression", "either a cron expression or a period"),
    ({"expression": "0 0 30 2 *"}, "expression", "is never due"),
    ({"expression": None, "every_seconds": 0}, "every_seconds", "366 days"),
    ({"every_seconds": 5}, "expression", "either a cron expression or a period"),
    ({"task": "tests.app.tasks.nop"}, "task", r"Did you mean 'tests\.app\.tasks\.noop"),
]


def test_a_bad_option_is_refused() -> None:
    """With its value and what would do; forms show the error at the part it names."""
    good = {"name": "x", "task": "tests.app.tasks.noop", "expression": "@daily"}
    for said, part, why in REFUSED:
        with pytest.raises(ScheduleError, match=why) as caught:
            define(**{**good, **said})
        assert part == caught.value.part
    assert declared() == []


def test_bad_arguments_are_refused() -> None:
    """Arguments must fit the task, and travel as JSON."""
    for args, why in (
        ({"left": 1}, "do not fit"),
        ((1, 2, 3), "do not fit"),
        ({"left": "x" * 2_000_000, "right": 1}, "the limit is 1,048,576"),
    ):
        with pytest.raises(ScheduleError, match=why):
            cron("0 3 * * *", args=args)(add)
    assert declared() == []


def test_a_bad_period_is_refused() -> None:
    """A period is whole seconds, 1 to 366 days."""
    for said in (
        *({}, {"seconds": -5}, {"seconds": 0.5}, {"seconds": True}),
        *({"seconds": float("nan")}, {"hours": 24 * 366, "seconds": 1}),
        *({"period": "soon"}, {"period": "5s", "seconds": 5}),
    ):
        with pytest.raises(ScheduleError):
            every(**said)(noop)  # type: ignore[arg-type]
    assert declared() == []


def test_only_a_task_has_a_schedule() -> None:
    """A plain function is refused, with the order in which decorators stand."""

    def plain() -> None:
        """Be no task."""

    with pytest.raises(DeclarationError, match="@cron goes above @task"):
        cron("0 3 * * *")(plain)  # type: ignore[type-var]
    with pytest.raises(DeclarationError, match="@every goes above @task"):
        every(seconds=5)(plain)  # type: ignore[type-var]

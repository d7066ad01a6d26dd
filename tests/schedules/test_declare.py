"""Declare: what @cron and @every take, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue import DeclarationError, ScheduleError, cron, every
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.definition import define
from tests.app.tasks import add, make_order, noop

pytestmark = pytest.mark.usefixtures("declarations")


def test_several_entries_of_a_task() -> None:
    """Each entry has a name of its own; the first one's may be the task's."""
    assert cron("0 3 * * *", tz="Europe/Berlin")(noop) is noop
    every("90s", name="often", args={"left": 1, "right": 2}, overlap="queue")(add)
    cron("30 0 3 * * *", name="six", args=(1, 2), jitter="5m", catch_up="skip")(add)
    told = {each.name: each for each in declared()}
    assert list(told) == ["often", "six", "tests.app.tasks.noop"]
    assert told["often"].every_seconds == 90
    assert (told["often"].kwargs, told["often"].args) == ({"left": 1, "right": 2}, [])
    assert (told["six"].args, told["six"].jitter_seconds) == ([1, 2], 300)
    assert told["tests.app.tasks.noop"].values()["tz"] == "Europe/Berlin"


def test_the_zone_of_the_settings_is_the_default(settings: Any) -> None:
    """Without tz=, a schedule goes by TIME_ZONE; an old name there is refused."""
    cron("0 3 * * *")(noop)
    settings.TIME_ZONE = "America/New_York"
    assert declared()[0].values()["tz"] == "America/New_York"
    settings.TIME_ZONE = "EST5EDT"
    with pytest.raises(ScheduleError, match=r"TIME_ZONE.*'EST5EDT' is an old name"):
        declared()[0].values()


# Row 54 of the bad inputs, and what else nobody can have meant.
BAD_EXPRESSIONS = [
    "",
    " ",
    "* * * *",
    "* * * * * * *",
    "60 * * * *",
    "* 24 * * *",
    "*/0 * * * *",
    "*/60 * * * *",
    "5-1 * * * *",
    "* * 5-1 * *",
    "0 0 30 2 *",
    "0 0 31 4 *",
    "* * 30 2 *",
    "0 0 31 2,4,6,9,11 *",
    "@reboot",
    "@every 5m",
    "@dailyish",
    "TZ=Europe/Berlin 0 3 * * *",
    "CRON_TZ=UTC 0 3 * * *",
    "¹ * * * *",
    "٣ * * * *",
    "1-1_0 * * * *",
    "* * * * MONL",
    "R R * * *",
    "H * * * *",
    "0 3 * * * \x00",
    "0 3 * * mond",
    ",".join(["1"] * 5_000) + " * * * *",
    "-1 * * * *",
    "1,,2 * * * *",
    "? * * * *",
    None,
    5,
    b"0 3 * * *",
]


@pytest.mark.parametrize("expression", BAD_EXPRESSIONS, ids=lambda e: str(e)[:20])
def test_a_bad_expression_is_refused(expression: Any) -> None:
    """It is refused when declared, and nothing is declared."""
    with pytest.raises(ScheduleError):
        cron(expression)(noop)
    assert declared() == []


@pytest.mark.parametrize(
    "said,why",
    [
        ({"tz": "Mars/Olympus"}, "There is no time zone 'Mars/Olympus'"),
        ({"tz": "Europe/Berln"}, "Did you mean 'Europe/Berlin'"),
        ({"tz": "EST5EDT"}, "an old name"),
        ({"tz": "US/Pacific"}, "an old name"),
        ({"tz": ""}, "A time zone is a name like"),
        ({"tz": 1}, "A time zone is a name like"),
        ({"tz": "../etc/passwd"}, "There is no time zone"),
        ({"catch_up": "two"}, "catch_up='two': it must be"),
        ({"catch_up": "all"}, "catch_up='all': it must be"),
        ({"catch_up": "all(0)"}, r"catch_up='all\(0\)': it must be"),
        ({"catch_up": "all(1001)", "overlap": "queue"}, "N from 1 to 1,000"),
        ({"catch_up": "all(2)"}, "contradict each other"),
        ({"overlap": "wait"}, "overlap='wait': it must be"),
        ({"jitter": "2d"}, "at most a day"),
        ({"jitter": -1}, "jitter"),
        ({"jitter": 0.5}, "whole seconds"),
        ({"jitter": float("nan")}, "jitter"),
        ({"queue": "no such queue!"}, "a queue name has"),
        ({"priority": 101}, "from -100 to 100"),
        ({"name": ""}, "the name of a schedule has 1 to 255"),
        ({"name": "x" * 300}, "the name of a schedule has 1 to 255"),
        ({"name": " x"}, "no blank around it"),
        ({"name": "a\nb"}, "printable"),
        ({"name": 7}, "the name of a schedule"),
    ],
    ids=str,
)
def test_a_bad_option_is_refused(said: dict[str, Any], why: str) -> None:
    """The error names the option, its value and what would do."""
    with pytest.raises(ScheduleError, match=why):
        cron("0 3 * * *", **said)(noop)
    assert declared() == []


@pytest.mark.parametrize(
    "args,why",
    [
        ({"left": 1}, "do not fit"),
        ((1, 2, 3), "do not fit"),
        ("12", "it must be a dict"),
        ({"left": object(), "right": 1}, "left"),
        ({"left": "x" * 2_000_000, "right": 1}, "the limit is 1,048,576"),
    ],
    ids=["too few", "too many", "text", "no JSON", "too large"],
)
def test_bad_arguments_are_refused(args: Any, why: str) -> None:
    """Arguments must fit the task, and travel as JSON."""
    with pytest.raises(ScheduleError, match=why):
        cron("0 3 * * *", args=args)(add)
    assert declared() == []


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"seconds": 0},
        {"seconds": -5},
        {"seconds": 0.5},
        {"seconds": True},
        {"seconds": "5"},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"hours": 24 * 366, "seconds": 1},
        {"period": "1ms"},
        {"period": "soon"},
        {"period": "5s", "seconds": 5},
        {"period": timedelta(days=400)},
    ],
    ids=str,
)
def test_a_bad_period_is_refused(said: dict[str, Any]) -> None:
    """A period is whole seconds, 1 to 366 days."""
    with pytest.raises(ScheduleError):
        every(**said)(noop)
    assert declared() == []


def test_two_of_one_name_are_refused() -> None:
    """The error names both tasks, and the way out; the same again is no second one."""
    cron("0 3 * * *", name="nightly")(noop)
    cron("0 3 * * *", name="nightly")(noop)
    with pytest.raises(ScheduleError, match=r"noop and of tests\.app\.tasks\.make_or"):
        cron("0 3 * * *", name="nightly", args=("a",))(make_order)
    with pytest.raises(ScheduleError, match=r"Two schedules.*name=…"):
        cron("0 4 * * *", name="nightly")(noop)
    assert [each.expression for each in declared()] == ["0 3 * * *"]


def test_only_a_task_has_a_schedule() -> None:
    """A plain function is refused, with the order in which decorators stand."""

    def plain() -> None:
        """Be no task."""

    with pytest.raises(DeclarationError, match="@cron goes above @task"):
        cron("0 3 * * *")(plain)  # type: ignore[type-var]
    with pytest.raises(DeclarationError, match="@every goes above @task"):
        every(seconds=5)(plain)  # type: ignore[type-var]


def test_an_unknown_task_is_refused() -> None:
    """A user's schedule is of a declared task; a near miss gets a hint."""
    with pytest.raises(ScheduleError, match=r"Did you mean 'tests\.app\.tasks\.add"):
        define(name="x", task="tests.app.tasks.ad", expression="@daily")


def test_either_an_expression_or_a_period() -> None:
    """Neither, or both, is refused."""
    for said in ({}, {"expression": "@daily", "every_seconds": 5}):
        with pytest.raises(ScheduleError, match="either a cron expression or a period"):
            define(name="x", task="tests.app.tasks.noop", **said)  # type: ignore[arg-type]


def test_declaring_needs_no_settings() -> None:
    """A module with @cron can be imported before Django is set up."""
    code = (
        "from django_pgqueue import cron, task\n"
        "def nightly(): pass\n"
        "cron('0 3 * * *')(task(name='nightly')(nightly))\n"
        "from django_pgqueue.schedules.declare import declared\n"
        "print(declared()[0].name)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin"},
    )
    assert (ran.stdout, ran.stderr) == ("nightly\n", "")

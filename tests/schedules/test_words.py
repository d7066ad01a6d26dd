"""Words: what a timetable says, as a person would say it."""

from __future__ import annotations

import pytest
from django.utils import translation
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.schedules.words import in_words

IN = " in Europe/Berlin"

WORDS = {
    # Fixed times of a day.
    "0 3 * * *": "every day at 03:00" + IN,
    "@daily": "every day at 00:00" + IN,
    "0 0 3 * * *": "every day at 03:00" + IN,
    "30 0 3 * * *": "every day at 03:00:30" + IN,
    "30 9,17 * * *": "every day at 09:30 and 17:30" + IN,
    "0 8,12,18 * * mon-fri": "Monday to Friday at 08:00, 12:00 and 18:00" + IN,
    "0 0-23/6 * * *": "every day at 00:00, 06:00, 12:00 and 18:00" + IN,
    "0 */5 * * *": "every day at 00:00, 05:00, 10:00, 15:00 and 20:00" + IN,
    # Elapsed time. The zone is left out where no clock makes a difference.
    "* * * * *": "every minute",
    "*/5 * * * *": "every 5 minutes",
    "0-59/15 * * * *": "every 15 minutes",
    "0,30 * * * *": "every 30 minutes" + IN,
    "0 * * * *": "every hour" + IN,
    "5 * * * *": "every hour at minute 5" + IN,
    "5,35 * * * *": "every hour at minutes 5 and 35" + IN,
    "0-2,30 * * * *": "every hour at minutes 0 to 2 and 30" + IN,
    "0 */2 * * *": "every 2 hours" + IN,
    "15 */6 * * *": "every 6 hours at minute 15" + IN,
    "* * * * * *": "every second",
    "*/15 * * * * *": "every 15 seconds",
    "30 * * * * *": "every minute at second 30",
    "10 5 * * * *": "at second 10 of minute 5 of every hour" + IN,
    # A part of the day.
    "0 9-17 * * *": "every hour from 09:00 to 17:00" + IN,
    "30 9-17 * * 1-5": "every hour from 09:30 to 17:30, Monday to Friday" + IN,
    "*/10 9-17 * * *": "every 10 minutes from 09:00 to 17:50" + IN,
    "* 9-17 * * *": "every minute from 09:00 to 17:59" + IN,
    "0 1-23/2 * * *": "every 2 hours from 01:00 to 23:00" + IN,
    "* 1,5,7 * * *": "every minute of hours 1, 5 and 7" + IN,
    "10-20 4 * * *": "at minutes 10 to 20 past hour 4" + IN,
    "5,35 9-17 * * 1-5": (
        "at minutes 5 and 35 past hours 9 to 17, Monday to Friday" + IN
    ),
    "*/10 * 9-17 * * *": "every 10 seconds of every minute of hours 9 to 17" + IN,
    # Days.
    "0 0 1 * *": "on day 1 of the month at 00:00" + IN,
    "0 0 1,15 * *": "on days 1 and 15 of the month at 00:00" + IN,
    "0 0 */2 * *": "every 2 days from day 1 of the month at 00:00" + IN,
    "0 6 l * *": "on the last day of the month at 06:00" + IN,
    "0 6 1,L * *": "on day 1 and on the last day of the month at 06:00" + IN,
    "@yearly": "on day 1 of January at 00:00" + IN,
    "0 0 24,25 12 *": "on days 24 and 25 of December at 00:00" + IN,
    "@weekly": "every Sunday at 00:00" + IN,
    "0 3 * * 6,0": "every Saturday and Sunday at 03:00" + IN,
    "0 3 * * tue-7": "Tuesday to Sunday at 03:00" + IN,
    "0 3 * * 1,2,3,6": "every Monday to Wednesday and Saturday at 03:00" + IN,
    "0 0 * * 5#3": "on the third Friday of the month at 00:00" + IN,
    "0 0 * * l5": "on the last Friday of the month at 00:00" + IN,
    # Where both kinds of days stand, either is enough.
    "0 0 13 * 5": "on day 13 of the month and every Friday at 00:00" + IN,
    "0 0 1-31 * 1": "every day at 00:00" + IN,
    "0 0 1 * 0-6": "every day at 00:00" + IN,
    # Both, where one begins with a star.
    "0 0 1-7 * */7": "on days 1 to 7 of the month, of these every Sunday at 00:00" + IN,
    "0 0 */1 * mon": "every Monday at 00:00" + IN,
    "0 0 1 * */1": "on day 1 of the month at 00:00" + IN,
    # Months.
    "0 3 * 6-8 *": "every day in June to August at 03:00" + IN,
    "0 3 * jan,apr *": "every day in January and April at 03:00" + IN,
    "0 3 * 12 0": "every Sunday in December at 03:00" + IN,
}

PERIODS = {
    1: "every second",
    15: "every 15 seconds",
    60: "every minute",
    90: "every 90 seconds",
    5_400: "every 90 minutes",
    3_600: "every hour",
    86_400: "every 24 hours",
    604_800: "every 7 days",
}


@pytest.mark.parametrize("expression", WORDS)
def test_an_expression_is_said_as_a_person_would_say_it(expression: str) -> None:
    """Common forms as such, others field by field."""
    assert WORDS[expression] == in_words(expression, None, "Europe/Berlin")


@pytest.mark.parametrize("seconds", PERIODS)
def test_a_period_is_said_in_its_largest_unit(seconds: int) -> None:
    """Without a zone: no clock matters."""
    assert PERIODS[seconds] == in_words(None, seconds, "Europe/Berlin")


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_words_are_of_one_language(language: str) -> None:
    """Django's own words for days are not mixed with ours, which are not translated."""
    with translation.override(language):
        assert WORDS["0 3 * 12 0"] == in_words("0 3 * 12 0", None, "Europe/Berlin")


NUMBERS = st.tuples(st.integers(0, 59), st.integers(0, 23), st.integers(1, 28))
FORMS = st.sampled_from(["*", "*/{0}", "{0}", "{0},{1}", "{0}-{1}", "{0}-{1}/2"])


def field(least: int, most: int) -> st.SearchStrategy[str]:
    """Return texts that a field of *least* to *most* can have."""
    numbers = st.lists(st.integers(least, most), min_size=2, max_size=2, unique=True)
    return st.builds(
        lambda form, two: form.format(*sorted(two)),
        FORMS,
        numbers,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(field(0, 59), field(0, 59), field(0, 23), field(1, 28), field(1, 12)),
    field(0, 6),
)
def test_every_expression_has_words(five: tuple[str, ...], weekday: str) -> None:
    """Whatever its fields are, if it can be declared."""
    expression = " ".join([*five, weekday])
    try:
        said = in_words(expression, None, "UTC")
    except ScheduleError:
        return  # "*/0", or no such date.
    assert said.isprintable()
    assert "%" not in said

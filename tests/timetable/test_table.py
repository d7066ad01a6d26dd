"""The table of clock changes in the docs is what the code does."""

from __future__ import annotations

from tests.timetable.table import PAGE, page_with


def test_the_page_has_what_the_code_does():
    """After `python -m tests.timetable.table` nothing in the page is different."""
    text = PAGE.read_text()

    assert page_with(text) == text

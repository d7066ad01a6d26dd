"""pgqueue top: the numbers of the admin's first page, on a terminal."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import pytest
from django.utils import timezone

from django_pgqueue.management.cli.text import width
from django_pgqueue.models import Worker
from tests.acceptance.test_health import no_database
from tests.harness.factories import (
    make_dead_letter,
    make_group,
    make_job,
    make_leased_job,
    make_position,
    make_schedule,
    make_topic,
)
from tests.harness.terminal import Terminal
from tests.management.test_pgqueue import (
    DONE,
    UNUSABLE,
    USAGE,
    process_environment,
    run,
    told,
)

HOUR = timedelta(hours=1)

COMMAND = (sys.executable, "-m", "django", "pgqueue", "top")


@pytest.fixture(autouse=True)
def database(transactional_db):
    """The tables."""


@pytest.fixture
def full():
    """Something of everything; far more of it than a screen has lines."""
    Worker.objects.create(
        name="host-1-a",
        hostname="host",
        pid=1,
        queues=["mail"],
        threads=4,
        version="1",
        heartbeat_at=timezone.now(),
    )
    for number in range(12):
        make_job(queue=f"queue{number}")
        make_dead_letter(task=f"shop.tasks.charge{number}")
        make_leased_job(task=f"shop.tasks.import{number}", leased_by="host-1-a")
        make_position(make_group(make_topic(name=f"orders{number}")))
        make_schedule(name=f"nightly{number}", next_tick=HOUR)


@pytest.fixture
def start():
    """Start it on a terminal of its own."""
    terminals = []

    def start_on(columns, lines, *arguments):
        # By this name no_database() knows whose session to end.
        env = {**os.environ, **process_environment(), "PGAPPNAME": "pgqueue top"}
        terminal = Terminal([*COMMAND, *arguments], env, columns, lines)
        terminals.append(terminal)
        return terminal

    yield start_on
    for terminal in terminals:
        terminal.close()


def has(text):
    """Return what finds *text* in a frame."""
    return lambda frame: any(text in line for line in frame)


@pytest.mark.parametrize("columns,lines", [(80, 24), (160, 50)])
def test_all_of_it_fits_one_screen(full, start, columns, lines):
    """With every list, and no line that is too wide for it."""
    terminal = start(columns, lines)

    frame = terminal.wait_for(has("nightly"), "the last list")

    # rich cuts off what is too much; what is printed once, nothing does.
    once = start(columns, lines, "--once")
    assert DONE == once.wait_for_end()
    printed = once.frame()
    assert "" == printed.pop()
    for shown in (frame, printed):
        assert lines >= len(shown)
        assert columns >= max(map(width, shown))
    for text in (
        "every 2 s, q ends",
        "12 ready, oldest",
        "12 dead in 24 h, 12 in 1 h",
        "1 worker alive",
        "Needs attention",
        "Dead, by task",
        "Running for longest",
        "Groups, by lag",
        "Next schedules",
        "shop.tasks.charge0",
    ):
        assert has(text)(frame), (text, frame)


def test_it_is_renewed_until_q_is_pressed(start):
    """And the terminal is then as it was."""
    terminal = start(80, 24, "--every", "1")
    terminal.wait_for(has("0 ready"), "the first numbers")
    make_job()
    terminal.wait_for(has("1 ready"), "the next numbers")
    assert terminal.settings != terminal.settings_now()

    terminal.press("xq")

    assert DONE == terminal.wait_for_end()
    assert terminal.settings == terminal.settings_now()
    assert "\x1b[?1049l" in terminal.shown


def test_ctrl_c_ends_it_without_a_word(start):
    """As of any such screen."""
    terminal = start(80, 24)
    terminal.wait_for(has("0 ready"), "the first numbers")

    terminal.process.send_signal(2)

    assert DONE == terminal.wait_for_end()
    assert "Interrupted" not in terminal.shown
    assert terminal.settings == terminal.settings_now()


def test_a_database_that_goes_away_is_told_and_its_return_seen(start):
    """The numbers from before stay on the screen meanwhile."""
    make_job()
    terminal = start(120, 24, "--every", "1")
    terminal.wait_for(has("1 ready"), "the first numbers")
    with no_database():
        frame = terminal.wait_for(has("the database cannot be read"), "that it is away")
        assert has("1 ready")(frame)

    make_job()
    frame = terminal.wait_for(has("2 ready"), "the numbers after it is back")
    assert not has("cannot be read")(frame)


def test_where_there_is_no_terminal_it_is_shown_once():
    """At full width, without colours or escapes; data is shown as printable text."""
    make_dead_letter(task="evil\x1b[31m\u202e")
    status, out, err = run("top")

    assert (DONE, "") == (status, err)
    assert "1 dead in 24 h, 1 in 1 h" in out
    assert r"evil\x1b[31m\u202e" in out
    assert "\x1b" not in out
    assert "q ends" not in out


def test_a_terminal_has_it_once_on_demand(start):
    """In its colours, and its scrollback keeps it."""
    terminal = start(80, 24, "--once")

    assert DONE == terminal.wait_for_end()
    assert "\x1b[36m0\x1b[0m ready" in terminal.shown
    assert "\x1b[?1049h" not in terminal.shown


def test_all_of_it_as_json(full):
    """What was read, once; nothing is left out for want of room."""
    status, found = told("top")

    assert DONE == status
    assert {"alive": 1, "silent": 0} == found["workers"]
    assert 12 == sum(each["ready"] for each in found["queues"])
    assert 12 == sum(each["jobs"] for each in found["dead"])
    assert 10 == len(found["held"])
    assert 12 == len(found["groups"]) == len(found["schedules"])
    assert {"error", "warning"} >= {each["severity"] for each in found["findings"]}


@pytest.mark.parametrize("words", [["0"], ["0.5"], ["3601"], ["-1"], ["soon"]])
def test_a_time_that_cannot_be_is_refused(words):
    """From a second to an hour."""
    status, _, err = run("top", f"--every={words[0]}")

    assert USAGE == status
    assert "is not a whole number from 1 to 3,600" in err


def test_without_rich_the_extra_is_named(start, tmp_path):
    """Before the screen is cleared."""
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(name='rich')")
    env = {**os.environ, **process_environment()}
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    terminal = Terminal(COMMAND, env, 80, 24)
    try:
        assert UNUSABLE == terminal.wait_for_end()
        assert "It comes with the extra [cli]" in " ".join(terminal.shown.split())
        assert "\x1b[?1049h" not in terminal.shown
    finally:
        terminal.close()

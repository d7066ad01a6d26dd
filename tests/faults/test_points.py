"""Points: every death that is wanted is died, whoever ends in another way."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.faults.instrument import Points

WANTED = {"here": 3}


def drawn(folder):
    """Return which death this process has, and at which point; None: none is left."""
    points = Points(folder, 7, WANTED)
    points._draw()
    return None if points._point is None else points._life


def by_another(folder):
    """Let a process draw that ends without dying."""
    program = (
        "import pathlib, sys; from tests.faults.test_points import drawn; "
        "print(drawn(pathlib.Path(sys.argv[1])))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, folder],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(ended.stdout)


def test_each_death_is_taken_once(tmp_path):
    """By those who live; and then there is none left."""
    assert [0, 1, 2, None] == [drawn(tmp_path) for _ in range(4)]


def test_the_death_of_who_ended_otherwise_is_somebody_elses(tmp_path):
    """It is taken again, by one alone."""
    assert 0 == by_another(tmp_path)
    assert 0 == by_another(tmp_path)

    assert [0, 1] == [drawn(tmp_path), drawn(tmp_path)]


def test_a_death_that_was_died_is_nobodys(tmp_path):
    """However long its process has been gone."""
    assert 0 == by_another(tmp_path)
    Points(tmp_path, 7, WANTED)._died(0).touch()

    assert 1 == drawn(tmp_path)


def test_who_found_none_takes_what_another_leaves(tmp_path, monkeypatch):
    """Once that one has ended; it looks now and then, and not at each step."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    points = Points(tmp_path, 7, {"here": 1, "there": 0})
    taken = tmp_path / "life.0.0"
    taken.write_text(str(os.getpid()))
    points.reach("there")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    taken.write_text(str(ended.pid))

    points.reach("there")
    assert points._point is None
    clock[0] += 1
    points.reach("there")
    assert "here" == points._point

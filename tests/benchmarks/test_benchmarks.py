"""The benchmarks still run, notice what must not count, and are what the page shows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.benchmarks import page, table
from tests.benchmarks.database import server
from tests.benchmarks.environments import REPOSITORY, Environment, is_made
from tests.benchmarks.peer_runs import Ready, measure
from tests.benchmarks.peers import PEERS
from tests.benchmarks.results import Results
from tests.benchmarks.turn import Sizes
from tests.harness.waiting import patience

# The least of everything: it must run, and its figures mean nothing.
TINY = Sizes(share=0.001, rest_seconds=0.1, patience_seconds=20.0)
SMALL = ("--runs=1", "--jobs=20", "--rows=500", "--seconds=1", "--json")
# `python -m tests.benchmarks all` runs all of them.
MEASURES = ("enqueue", "drain", "capture")
SECONDS_MAX = 110.0

MADE = [name for name, peer in PEERS.items() if is_made(peer)]


@pytest.mark.slow
def test_a_measure_has_two_sides_and_a_ratio():
    """And a goal, but for the price of a capture."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *MEASURES, *SMALL],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        timeout=SECONDS_MAX * patience(),
        check=True,
    )

    measured = json.loads(told.stdout)
    assert {*MEASURES} == {*measured}
    for name, each in measured.items():
        assert (each["met"] is not None) is bool(each["goal"]) is (name != "capture")
        for figures in [each, *each.get("parts", {}).values()]:
            for side in (figures["product"], figures["yardstick"]):
                assert 0 < side["min"] <= side["median"] <= side["max"], name
            assert figures["ratio"] > 0
        assert f"| `{name}` |" in page.own(measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_a_peer_is_measured(name):
    """A peer whose environment is made is still driven as its version wants it."""
    only_last = {name: PEERS[name].configurations[-1:]}

    results = measure([PEERS[name]], 1, TINY, only_last)

    assert [] == results.invalid()
    (row,) = results.rows()
    assert min(row.enqueue, row.bulk, row.drain, row.drain_two) > 0
    assert 0 < row.percentiles[0] <= row.percentiles[1] <= row.percentiles[2]
    assert f"{row.peer.title}: {row.configuration.name}" in table.figures(results)


@pytest.mark.slow
def test_a_turn_in_which_a_job_ran_twice_does_not_count(tmp_path):
    """It is told, and in no median."""
    environment = Environment((sys.executable, "-m", "tests.benchmarks.wrong"), {})

    with server() as used:
        ready = Ready(PEERS["yardstick"], environment, used, tmp_path)
        turn = ready.take_turn(1, TINY)

    assert "jobs, 0 did not run and" in turn["invalid"]
    results = results_of({"yardstick": turn}, {"yardstick": turn_at(50)})
    assert [f"run 1, Yardstick (plain psycopg): {turn['invalid']}"] == results.invalid()
    assert [50.0] == [row.drain for row in results.rows()]


def turn_at(rate: float) -> dict[str, Any]:
    """Return figures of a turn in which everything ran at *rate*."""
    worker = {
        "latencies": [1.0, 2.0, 3.0],
        "drain": rate,
        "drain_two": 2 * rate,
        "worker_cpu": 0.1,
        "server_cpu": None,
    }
    names = [each.name for peer in PEERS.values() for each in peer.configurations]
    return {"enqueue": rate, "bulk": rate, "workers": dict.fromkeys(names, worker)}


def results_of(*runs: dict[str, dict[str, Any]]) -> Results:
    told = [{"at": "now", "load": 0.0, "turns": turns} for turns in runs]
    setting = {"machine": {}, "server": {}, "versions": {}, "share": 1.0}
    return Results(setting, {}, told)


def test_the_page_shows_what_was_measured():
    """The tables of the page are those that tests.benchmarks.page makes."""
    text = page.PAGE.read_text(encoding="utf-8")

    assert page.rendered(text) == text
    assert set(page.made()) == set(page.BLOCK.findall(text))

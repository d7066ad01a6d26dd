"""The benchmarks beside others still run, and notice what must not count."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from statistics import median
from typing import Any

import pytest

from tests.benchmarks import goals, page, table, wrong
from tests.benchmarks.__main__ import Ready, main, measure
from tests.benchmarks.database import server
from tests.benchmarks.environments import REPOSITORY, Environment, is_made
from tests.benchmarks.peers import PEERS
from tests.benchmarks.results import MismatchError, Results, Row, ratio
from tests.benchmarks.turn import Sizes
from tests.harness.waiting import patience, wait_for
from tests.harness.worker_process import is_alive

# The least of everything: it must run, and its figures mean nothing.
TINY = Sizes(share=0.001, rest_seconds=0.1, patience_seconds=20.0)

OTHERS = [
    name for name, peer in PEERS.items() if peer.runs_on != "project" and is_made(peer)
]


def one_configuration(*names: str) -> dict[str, Any]:
    return {name: PEERS[name].configurations[-1:] for name in names}


@pytest.mark.slow
def test_the_project_and_the_yardstick_are_measured():
    """Every figure of a row is there, and the row is in the table."""
    names = ("yardstick", "django_pgqueue")

    results = measure([PEERS[n] for n in names], 1, TINY, one_configuration(*names))

    assert [] == results.invalid()
    rows = results.rows()
    assert list(names) == [row.peer.name for row in rows]
    for row in rows:
        assert min(row.enqueue, row.bulk, row.drain, row.drain_two) > 0
        assert 0 < row.percentiles[0] <= row.percentiles[1] <= row.percentiles[2]
        assert f"{row.peer.title}: {row.configuration.name}" in table.text(results)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_peer_is_measured(name):
    """A peer whose environment is made is still driven as its version wants it."""
    results = measure([PEERS[name]], 1, TINY, one_configuration(name))

    assert [] == results.invalid()
    assert [name] == [row.peer.name for row in results.rows()]


@pytest.mark.parametrize(
    "fault,said",
    [
        ("losing", "hangs: of 100 jobs, 90 have run"),
        ("repeating", "jobs, 0 did not run and"),
        ("ending", "ended with 3"),
    ],
)
def test_a_turn_with_wrong_jobs_does_not_count(fault, said, tmp_path, monkeypatch):
    """Jobs that were lost, or ran twice, or a worker that ended, are found out."""
    monkeypatch.setenv(wrong.FAULT, fault)
    environment = Environment((sys.executable, "-m", "tests.benchmarks.wrong"), {})
    # Lost jobs are waited for until there is no patience left.
    seconds = 1.0 if fault == "losing" else TINY.patience_seconds
    sizes = dataclasses.replace(TINY, patience_seconds=seconds * patience())

    with server() as used:
        ready = Ready(PEERS["yardstick"], environment, used, tmp_path)
        turn = ready.take_turn(1, sizes)

    assert said in turn["invalid"]


def test_nothing_is_left_on_the_server():
    """The databases of a turn are dropped."""
    with server() as used:
        made = used.make("test")
        with made.connect() as connection:
            found = connection.execute("SELECT current_database()").fetchone()
    assert (made.name,) == found

    with server() as used, used.make("other").connect() as connection:
        query = "SELECT count(*) FROM pg_database WHERE datname = %s"
        assert (0,) == connection.execute(query, [made.name]).fetchone()


def test_a_program_ends_with_the_command(tmp_path):
    """A command that is killed with kill -9 leaves no worker behind."""
    code = (
        "import sys; from pathlib import Path; "
        "from tests.benchmarks.environments import Environment; "
        "from tests.benchmarks.processes import Program; "
        "program = Program(Environment(('sleep', '60'), {}), "
        "log=Path(sys.argv[1]), variables={}); "
        "print(program.process.pid, flush=True); program.process.wait()"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    with command:
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        assert is_alive(pid)
        command.kill()

    wait_for(lambda: not is_alive(pid), what="the program is gone")


# Figures -----------------------------------------------------------------------------


def turn(rate: float) -> dict[str, Any]:
    """Return figures of a turn in which everything ran at *rate*."""
    workers = {
        configuration.name: {
            "latencies": [1.0, 2.0, 3.0],
            "drain": rate,
            "drain_two": 2 * rate,
            "worker_cpu": 0.1,
            "server_cpu": None,
        }
        for peer in PEERS.values()
        for configuration in peer.configurations
    }
    return {"enqueue": rate, "bulk": rate, "workers": workers}


def results_of(*runs: dict[str, dict[str, Any]]) -> Results:
    told = [{"at": "now", "load": 0.0, "turns": turns} for turns in runs]
    setting = {"machine": {}, "server": {}, "versions": {}, "share": 1.0}
    return Results(setting, {}, told)


def row_of(results: Results, peer: str) -> Row:
    return next(row for row in results.rows() if row.peer.name == peer)


def test_figures_are_medians_over_the_runs():
    """One slow run does not show."""
    rates = [100.0, 7.0, 120.0]

    row = row_of(results_of(*({"pgqueuer": turn(r)} for r in rates)), "pgqueuer")

    assert median(rates) == row.enqueue == row.drain
    assert 2.0 == row.percentiles[0]
    assert row.server_cpu is None
    assert 3 == row.runs


def test_a_ratio_is_taken_run_by_run():
    """A run in which the machine was slow for both changes no ratio."""
    results = results_of(
        {"django_pgqueue": turn(300), "pgqueuer": turn(100)},
        {"django_pgqueue": turn(30), "pgqueuer": turn(10)},
        {"django_pgqueue": turn(330), "pgqueuer": turn(110)},
    )
    ours, theirs = (row_of(results, name) for name in ("django_pgqueue", "pgqueuer"))

    assert 3.0 == pytest.approx(ratio(results, "drain", ours, theirs))
    assert "| 3.00 | ≥ 2 | met |" in goals.table_of(results)


def test_an_invalid_turn_is_in_no_median_and_is_told():
    """What went wrong is listed with its run."""
    results = results_of({"pgqueuer": {"invalid": "it hung"}}, {"pgqueuer": turn(50)})

    assert ["run 1, PgQueuer: it hung"] == results.invalid()
    assert 50.0 == row_of(results, "pgqueuer").drain


def test_runs_are_put_together_only_if_they_measured_the_same(tmp_path):
    """Appending to runs of another server or version is refused."""
    path = tmp_path / "peers.json"
    results_of({"pgqueuer": turn(1)}).write(path)
    later = results_of({"pgqueuer": turn(3)})

    assert 2.0 == row_of(later.after(Results.read(path)), "pgqueuer").drain
    later.setting = {**later.setting, "versions": {"pgqueuer": {"pgqueuer": "9"}}}
    earlier = Results.read(path)
    earlier.setting["versions"] = {"pgqueuer": {"pgqueuer": "8"}}
    with pytest.raises(MismatchError, match="they differ in: pgqueuer"):
        later.after(earlier)


def test_a_run_may_be_taken_in_steps():
    """Peers that the last run lacks are put into it, and others into a new one."""
    first = results_of({"pgqueuer": turn(1)})

    both = results_of({"pg_boss": turn(2)}).after(first)
    again = results_of({"pgqueuer": turn(3)}).after(both)

    assert [["pgqueuer", "pg_boss"]] == [list(run["turns"]) for run in both.runs]
    assert 2 == len(again.runs)


def test_the_command_shows_what_was_measured(tmp_path, capsys):
    """--show measures nothing; a turn that does not count makes the status 1."""
    path = tmp_path / "peers.json"
    results_of({"pgqueuer": turn(123)}).write(path)
    assert 0 == main(["--show", str(path)])
    assert "PgQueuer: batch 100" in capsys.readouterr().out

    results_of({"pgqueuer": {"invalid": "it hung"}}).write(path)
    assert 1 == main(["--show", str(path)])
    assert "INVALID: run 1, PgQueuer: it hung" in capsys.readouterr().err


def test_the_page_shows_what_was_measured():
    """The tables of the page are those that tests.benchmarks.page makes."""
    text = page.PAGE.read_text(encoding="utf-8")

    assert page.rendered(text) == text
    assert set(page.made()) == set(page.BLOCK.findall(text))

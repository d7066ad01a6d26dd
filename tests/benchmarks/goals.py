"""Goals: what this project wants to reach, beside other products in the same run."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks import table
from tests.benchmarks.results import Results, Row, ratio

BATCHED = ("django_pgqueue", "batched, 8 threads")
IMMEDIATE = ("django_pgqueue", "immediate, 16 threads")
DEFAULT = ("django_pgqueue", "default")


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A ratio of a figure of two rows, each a peer's name and a configuration's."""

    what: str
    figure: str
    ours: tuple[str, str]
    theirs: tuple[str, str]
    at_least: float


GOALS = (
    Goal(
        what="drain, one process",
        figure="drain",
        ours=BATCHED,
        theirs=("graphile_worker", "local queue 500"),
        at_least=1.3,
    ),
    Goal(
        what="drain, one process",
        figure="drain",
        ours=IMMEDIATE,
        theirs=("pgqueuer", "default"),
        at_least=2.0,
    ),
    Goal(
        what="enqueue one by one",
        figure="enqueue",
        ours=DEFAULT,
        theirs=("pgqueuer", "default"),
        at_least=1.5,
    ),
    Goal(
        what="enqueue one by one",
        figure="enqueue",
        ours=DEFAULT,
        theirs=("procrastinate", "default"),
        at_least=4.0,
    ),
    Goal(
        what="enqueue one by one",
        figure="enqueue",
        ours=DEFAULT,
        theirs=("django_tasks_db", "default"),
        at_least=4.0,
    ),
)


def table_of(results: Results) -> str:
    """Return the goals as Markdown; those whose peers were measured."""
    rows = {(row.peer.name, row.configuration.name): row for row in results.rows()}
    cells = [
        _cells(results, goal, rows[goal.ours], rows[goal.theirs])
        for goal in GOALS
        if goal.ours in rows and goal.theirs in rows
    ]
    header = ("", "this project", "beside", "ratio", "goal", "")
    return table.table(header, cells)


def _cells(results: Results, goal: Goal, ours: Row, theirs: Row) -> tuple[str, ...]:
    reached = ratio(results, goal.figure, ours, theirs)
    return (
        goal.what,
        ours.configuration.name,
        f"{theirs.peer.title}: {theirs.configuration.name}",
        f"{reached:.2f}",
        f"≥ {goal.at_least:g}",
        "met" if reached >= goal.at_least else "**missed**",
    )

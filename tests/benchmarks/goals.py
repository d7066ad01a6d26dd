"""Goals: what this project wants to reach, beside other products in the same run."""

from __future__ import annotations

from tests.benchmarks import table
from tests.benchmarks.results import Results, ratio

# The figure, the configuration of ours, the peer and its configuration, and the ratio
# at least.
GOALS = (
    ("drain", "batched, 8 threads", "graphile_worker", "local queue 500", 1.3),
    ("drain", "immediate, 16 threads", "pgqueuer", "default", 2.0),
    ("enqueue", "default", "pgqueuer", "default", 1.5),
    ("enqueue", "default", "procrastinate", "default", 4.0),
    ("enqueue", "default", "django_tasks_db", "default", 4.0),
)

TITLES = {"drain": "drain, one process", "enqueue": "enqueue one by one"}


def table_of(results: Results) -> str:
    """Return the goals as Markdown; those whose peers were measured."""
    rows = {(row.peer.name, row.configuration.name): row for row in results.rows()}
    cells = []
    for figure, configuration, peer, other, at_least in GOALS:
        ours = rows.get(("django_pgqueue", configuration))
        theirs = rows.get((peer, other))
        if ours and theirs:
            reached = ratio(results, figure, ours, theirs)
            cells.append(
                (
                    TITLES[figure],
                    configuration,
                    f"{theirs.peer.title}: {other}",
                    f"{reached:.2f}",
                    f"≥ {at_least:g}",
                    "met" if reached >= at_least else "**missed**",
                )
            )
    header = ("", "this project", "beside", "ratio", "goal", "")
    return table.table(header, cells)

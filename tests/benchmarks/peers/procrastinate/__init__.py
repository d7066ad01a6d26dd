"""Procrastinate, with its asynchronous connector."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="procrastinate",
    title="Procrastinate",
    runs_on="python",
    packages=("procrastinate", "psycopg"),
    configurations=(
        Configuration(
            name="default",
            what="one job at a time",
            jobs=600,
            options={"concurrency": 1},
        ),
        Configuration(
            name="concurrency 30",
            what="30 jobs at a time in one event loop, as its documentation shows",
            jobs=1_000,
            options={"concurrency": 30},
        ),
    ),
    tables=("procrastinate_jobs", "procrastinate_events"),
    unsettled=(
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    ),
    keeps="kept in the table, with its events",
    holds="heartbeat of the worker; jobs of a dead one are retried by a task of yours",
)

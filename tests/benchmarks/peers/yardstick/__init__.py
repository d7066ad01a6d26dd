"""The yardstick: plain psycopg, as in pgqueue_bench."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="yardstick",
    title="Yardstick (plain psycopg)",
    runs_on="project",
    packages=("psycopg",),
    configurations=(
        Configuration(
            name="claim 100",
            what="one thread: claim 100, run them, delete them by array",
            jobs=40_000,
        ),
    ),
    tables=("pgqueue_yardstick",),
    unsettled="SELECT count(*) FROM pgqueue_yardstick",
    keeps="deleted",
    holds="a moment in the row; no fence, no heartbeat, no retry, no errors",
    enqueue_jobs=3_000,
)

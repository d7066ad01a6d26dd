"""Graphile Worker, on Node.js."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="graphile_worker",
    title="Graphile Worker",
    runs_on="node",
    packages=("graphile-worker", "pg"),
    configurations=(
        Configuration(
            name="default",
            what="one job at a time",
            jobs=1_500,
            options={"worker": {}},
        ),
        Configuration(
            name="local queue 500",
            what=(
                "the settings of its page on performance: 24 jobs at a time, "
                "`localQueue.size` 500, `completeJobBatchDelay` and "
                "`failJobBatchDelay` 0, no log line per job"
            ),
            jobs=40_000,
            options={
                "worker": {
                    "concurrentJobs": 24,
                    "maxPoolSize": 25,
                    "localQueue": {"size": 500},
                    "completeJobBatchDelay": 0,
                    "failJobBatchDelay": 0,
                },
            },
            environment={"NO_LOG_SUCCESS": "1"},
        ),
    ),
    tables=("graphile_worker._private_jobs",),
    unsettled="SELECT count(*) FROM graphile_worker._private_jobs",
    keeps="deleted",
    holds="locked by its worker's name, after a crash for 4 hours; 25 attempts",
)

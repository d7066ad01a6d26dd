"""pg-boss, on Node.js."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="pg_boss",
    title="pg-boss",
    runs_on="node",
    packages=("pg-boss", "pg"),
    configurations=(
        Configuration(
            name="batch 100, LISTEN",
            what=(
                "`batchSize` 100, `burstWhenBatchFull`, `useListenNotify` and a queue "
                "with `notify`; its default takes one job every two seconds"
            ),
            jobs=15_000,
            options={"batchSize": 100, "burstWhenBatchFull": True},
        ),
    ),
    tables=("pgboss.job",),
    unsettled="SELECT count(*) FROM pgboss.job WHERE state < 'completed'",
    keeps="kept in the table, for 7 days",
    holds="expires after 15 minutes; 2 retries; a batch succeeds or fails as one",
)

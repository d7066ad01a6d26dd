"""PgQueuer, on asyncpg and uvloop."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="pgqueuer",
    title="PgQueuer",
    runs_on="python",
    packages=("pgqueuer", "asyncpg", "uvloop"),
    configurations=(
        Configuration(
            name="default",
            what="batches of 10, one asyncpg connection, its autovacuum settings",
            jobs=6_000,
            options={"batch": 10},
        ),
        Configuration(
            name="batch 100",
            what="the same with batches of 100, as it advises for short jobs",
            jobs=8_000,
            options={"batch": 100},
        ),
    ),
    tables=("pgqueuer", "pgqueuer_log"),
    unsettled="SELECT count(*) FROM pgqueuer",
    keeps="moved to a log, without its payload",
    holds=(
        "heartbeat of each job, claimed again when it falls silent; no retry of an "
        "error unless the task asks for one"
    ),
)

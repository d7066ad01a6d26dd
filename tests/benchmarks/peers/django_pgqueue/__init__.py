"""This project."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="django_pgqueue",
    title="django_pgqueue",
    runs_on="project",
    packages=("dj-pgqueue", "Django", "psycopg"),
    configurations=(
        Configuration(
            name="default",
            what='8 threads, `settle="immediate"`, archive of 7 days',
            jobs=15_000,
            options={"task": "immediate", "threads": 8},
        ),
        Configuration(
            name="immediate, 16 threads",
            what='16 threads, `settle="immediate"`, archive of 7 days',
            jobs=20_000,
            options={"task": "immediate", "threads": 16},
        ),
        Configuration(
            name="batched, 8 threads",
            what='8 threads, `settle="batched"`, archive of 7 days',
            jobs=40_000,
            options={"task": "batched", "threads": 8},
        ),
    ),
    tables=("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter"),
    unsettled="SELECT count(*) FROM pgqueue_job",
    keeps="moved to an archive, partitioned by day",
    holds=(
        "lease with heartbeat and fence; retried, then a dead letter, with every error"
    ),
    enqueue_jobs=3_000,
)

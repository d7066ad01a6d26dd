"""django-tasks-db, the database backend of Django's tasks."""

from __future__ import annotations

from tests.benchmarks.peer import Configuration, Peer

PEER = Peer(
    name="django_tasks_db",
    title="django-tasks-db",
    runs_on="python",
    packages=("django-tasks-db", "Django", "psycopg"),
    configurations=(
        Configuration(
            name="default",
            what="`db_worker`: one job at a time, a poll every second, no wake",
            jobs=600,
            latencies=10,
            pause_seconds=(0.03, 1.03),
        ),
    ),
    tables=("django_tasks_database_dbtaskresult",),
    unsettled=(
        "SELECT count(*) FROM django_tasks_database_dbtaskresult "
        "WHERE status IN ('READY', 'RUNNING')"
    ),
    keeps="kept in the table, with its result",
    holds="nothing: a job whose worker died stays RUNNING; no retry",
    bulk_jobs=2_000,
)

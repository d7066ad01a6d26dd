"""
Figures: what the large queue costs, in milliseconds, pages and rows.

Each function measures one thing on the database that load() has filled, prints nothing
and yields what it found as it goes, a dict for a line of the table.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue.postgres.connect import connect
from django_pgqueue.postgres.limits import Plans
from tests.scale import backlogs
from tests.scale.plans import buffers, explain
from tests.scale.purging import purge

Line = dict[str, Any]
Figures = Callable[[], Iterator[Line]]

SAVEPOINT = re.compile("SAVEPOINT|RELEASE|BEGIN|COMMIT|ROLLBACK")

SIZES = """
SELECT 'archive', sum(c.reltuples)::bigint, sum(pg_table_size(c.oid))::bigint,
       sum(pg_indexes_size(c.oid))::bigint
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass
UNION ALL
SELECT relname, reltuples::bigint, pg_table_size(oid), pg_indexes_size(oid)
  FROM pg_class WHERE relname IN ('pgqueue_job', 'pgqueue_dead_letter')
"""

LIST_QUERIES = (
    "",
    "?oldest=1",
    "?q=77",
    "?q=no.such.task",
    "?q=no.such.task&oldest=1",
    "?queue=no-such-queue",
    "?queue=q1&q=t11",
    "?tag=often",
    "?tag=often&q=no.such.task",
    "?tag=rare",
    "?tag=no-such-tag",
)
PAGES = {
    "job": (*LIST_QUERIES, "?state=running", "?state=ready", "?state=parked"),
    "archivedjob": (*LIST_QUERIES, "?state=expired", "?state=cancelled&q=no.such"),
    "deadletter": (
        *LIST_QUERIES,
        "?reason=timeout",
        "?reason=rejected",
        "?age=1h",
        "?age=30d&reason=rejected",
        "groups/",
    ),
    "queue": ("", "q1/change/"),
    "worker": ("",),
}

COMMANDS = (
    "stats",
    "stats --queue q1",
    "doctor --quiet",
    "jobs",
    "jobs --state succeeded",
    "jobs --task no.such.task",
    "jobs --state succeeded --task no.such.task",
    "jobs --state succeeded --tag rare",
    "jobs --state expired --queue q1",
    "dead",
    "dead --reason rejected",
    "dead --task no.such.task",
    "show 77",
    "retry --yes --task no.such.task",
    "cancel --yes --tag rare --queue no-such-queue",
    "cancel --yes --task no.such.task",
    "redrive --yes --reason rejected",
    "redrive --yes --tag no-such-tag",
)


# Jobs that wait have higher ids than those that were loaded into today's table.


def sizes() -> Iterator[Line]:
    """Yield the bytes of each table, and of its indexes, for each row."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE pgqueue_job, pgqueue_archived_job, pgqueue_dead_letter")
        cursor.execute(SIZES)
        for name, rows, table, indexes in cursor.fetchall():
            yield {
                "what": name,
                "rows": rows,
                "bytes/row": round(table / max(rows, 1)),
                "index bytes/row": round(indexes / max(rows, 1)),
                "MB": round((table + indexes) / 2**20),
            }


def claims(backlog: str) -> Iterator[Line]:
    """Yield what claims of ten cost beside a million rows of *backlog*."""
    rows = int(os.environ.get("PGQUEUE_SCALE_ROWS", "1000000"))
    with connect("default", name="tests: claims") as raw:
        for analysed in backlogs.ANALYSED:
            cursor = raw.cursor()
            backlogs.fill(cursor, backlog, rows, analysed)
            found = backlogs.claims(cursor)
            yield {
                "what": f"{backlog}, analysed {analysed}",
                "rows": rows,
                "claims": found.claims,
                "jobs": found.jobs,
                "p50 ms": found.p50,
                "p99 ms": found.p99,
                "max ms": found.max,
                "buffers": found.buffers,
                "wrong": "; ".join(found.wrong),
            }
        backlogs.empty(raw.cursor())


def pages() -> Iterator[Line]:
    """Yield the time, the queries and the pages of memory of every list."""
    user, _ = User.objects.get_or_create(
        username="scale", is_superuser=True, is_staff=True
    )
    client = Client()
    client.force_login(user)
    for page, queries in PAGES.items():
        for query in queries:
            path = f"/admin/pgqueue/{page}/{query}"
            started = time.perf_counter()
            with CaptureQueriesContext(connection) as captured:
                answer = client.get(path)
            took = time.perf_counter() - started
            asked = [
                q["sql"] for q in captured.captured_queries if "pgqueue_" in q["sql"]
            ]
            pages, dearest = _pages_of(asked)
            yield {
                "what": path.removeprefix("/admin/pgqueue"),
                "status": answer.status_code,
                "ms": round(took * 1_000, 1),
                "queries": sum(
                    not SAVEPOINT.match(q["sql"]) for q in captured.captured_queries
                ),
                "buffers": pages,
                "dearest": dearest,
            }


def commands() -> Iterator[Line]:
    """Yield the time and the pages of each subcommand of pgqueue."""
    for command in COMMANDS:
        out = io.StringIO()
        started = time.perf_counter()
        with CaptureQueriesContext(connection) as captured:
            status = 0
            try:
                call_command("pgqueue", *command.split(), stdout=out, stderr=out)
            except SystemExit as error:
                status = int(error.code or 0)
            except Exception as error:
                status = getattr(error, "returncode", 1)
                out.write(str(error))
        took = time.perf_counter() - started
        asked = [
            q["sql"]
            for q in captured.captured_queries
            if q["sql"].lstrip().startswith(("SELECT", "WITH"))
        ]
        read, dearest = _pages_of(asked)
        yield {
            "what": command,
            "status": status,
            "ms": round(took * 1_000, 1),
            "queries": len(captured),
            "buffers": read,
            "dearest": dearest,
        }


def _pages_of(statements: list[str]) -> tuple[int, int]:
    """Return the pages of memory that all of them touch, and the dearest one."""
    found = []
    with connect("default", name="tests: pages") as raw, raw.cursor() as cursor:
        for statement in statements:
            if not statement.lstrip().startswith(("SELECT", "WITH")):
                continue
            with raw.transaction(force_rollback=True):
                # As the admin asks; see admin/acting.py.
                plans = Plans.BY_INDEX if "WITH tagged" in statement else Plans.IN_ORDER
                for name, value in zip(
                    ("enable_seqscan", "enable_bitmapscan"), plans.value, strict=True
                ):
                    cursor.execute(f"SET LOCAL {name} = {value}")
                found.append(buffers(explain(cursor, statement, None)))
    return sum(found), max(found, default=0)


FIGURES: dict[str, Figures] = {
    "sizes": sizes,
    "pages": pages,
    "commands": commands,
    "purge": purge,
    **{
        f"claims-{name}": (lambda name=name: claims(name)) for name in backlogs.BACKLOGS
    },
}

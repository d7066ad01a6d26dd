"""pgqueue_bench: what it prints, what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from django_pgqueue import signals
from django_pgqueue.management.bench import scratch
from django_pgqueue.management.bench.measures import MEASURES
from django_pgqueue.management.bench.place import Place, isolated
from tests.app.tasks import noop
from tests.harness.waiting import patience, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
# Of an idle machine; the second for every measure there is.
PATIENCE_SECONDS = 60.0
ALL_PATIENCE_SECONDS = 310.0

# What differs from `drain` in a setting alone, and what another test here runs.
VARIANTS = {"drain_immediate_16", "drain_immediate_64", "drain_no_archive", "drain_two"}

SMALL = ("--runs", "1", "--jobs", "20", "--rows", "500", "--seconds", "1")

ABOUT_ALL = {"product", "yardstick", "ratio", "baseline", "jobs", "runs", "goal", "met"}
ABOUT_A_SIDE = {"median", "min", "max", "unit"}
PERCENTILES = {"p50", "p95", "p99"}
ALSO = {
    "backlog": {"claim_buffers"},
    "idle": {"cpu_percent", "queries_per_second", "rss_mb"},
    "fair_latency": PERCENTILES,
    "lanes_latency": PERCENTILES,
    "lanes_parked": {"claim_buffers"},
    "latency": PERCENTILES,
    "latency_mixed": PERCENTILES,
    "latency_trickle": PERCENTILES,
    "results": PERCENTILES,
    "stream": PERCENTILES,
    "workflows_chain": PERCENTILES,
}
# What only some parts of a measure have.
PART_ALSO = {
    *("published", "read", "p99/p50", "p99/plain"),
    *("adds", "adds_to_admin", "first_job_after", "pages"),
    *("one_us", "many_us"),
    *("send/PGMQ", "receive/PGMQ", "ack/PGMQ"),
}
UNITS = {
    "capture": "rows/s",
    "contend": "tx/s",
    "fair_latency": "ms",
    "idle": "goals",
    "lanes_latency": "ms",
    "lanes_snapshot": "ms",
    "latency": "ms",
    "latency_mixed": "ms",
    "latency_trickle": "ms",
    "pull": "msg/s",
    "results": "ms",
    "stream": "ms",
    "start": "ms",
    "topics": "msg/s",
    "replay": "msg/s",
    "workflows_chain": "ms",
    "workflows_sagas": "steps/s",
}
SHAPES = ["ready", "other_queue", "scheduled", "parked", "archived"]

UNTOUCHED = """
SELECT count(*) FROM pgqueue_job
 WHERE deliveries = 0 AND leased_by IS NULL AND task = 'tests.app.tasks.noop'
"""

WORKERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = %s AND application_name LIKE 'pgqueue claimer%%'
"""

SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"

LIKE_IT = "SELECT count(*) FROM pg_database WHERE starts_with(datname, %s)"

SCHEMAS = "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, %s)"


def start(
    *arguments: str,
    databases: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    **pgqueue: Any,
) -> subprocess.Popen[str]:
    """Start the command; its project's database is the test database."""
    changes = {
        alias: {"NAME": connections[alias].settings_dict["NAME"]}
        for alias in connections
    }
    for alias, more in (databases or {}).items():
        changes[alias].update(more)
    told = json.dumps({"databases": changes, "pgqueue": pgqueue})
    return subprocess.Popen(
        [sys.executable, "-m", "django", "pgqueue_bench", *arguments],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.management.bench_settings",
            "PGQUEUE_TEST_BENCH": told,
            **(environment or {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    *arguments: str, seconds: float = PATIENCE_SECONDS, **options: Any
) -> tuple[int, str, str]:
    seconds *= patience()
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"still running after {seconds:g} s; it said {err!r}")
    return process.returncode, out, err


def name_in(text: str) -> str:
    match = re.search(rf"{scratch.PREFIX}\w+", text)
    assert match, text
    return match[0]


def count(cursor: Any, statement: str, *values: Any) -> int:
    cursor.execute(statement, values)
    return int(cursor.fetchone()[0])


@contextmanager
def measuring(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that has made its database, whose name comes with it."""
    process = start(*arguments)
    try:
        assert process.stderr is not None
        yield process, name_in(process.stderr.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def role(cursor) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    name = f"pgqueue_bench_test{os.environ.get('PGQUEUE_TEST_SUFFIX', '')}"
    cursor.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'none'")
    yield name
    cursor.execute(f"DROP OWNED BY {name}")
    cursor.execute(f"DROP ROLE {name}")


def as_role(role: str) -> dict[str, Any]:
    return {"default": {"USER": role, "PASSWORD": "none"}}


@pytest.mark.slow
@pytest.mark.timeout(ALL_PATIENCE_SECONDS + 20)
def test_every_measure_is_an_entry_of_one_json_object(cursor):
    """Both sides with median, limits and unit; what they are; the ratio; the goal."""
    names = [name for name in MEASURES if name not in VARIANTS]
    status, out, err = run(*names, "--json", *SMALL, seconds=ALL_PATIENCE_SECONDS)

    assert status == 0, err
    told = json.loads(out)
    assert names == list(told)
    for name, measured in told.items():
        assert ABOUT_ALL == set(measured) - {"parts"}
        assert measured["runs"] == 1
        has_goal = name != "capture"  # It tells a price.
        assert (measured["met"] is not None, bool(measured["goal"])) == (has_goal,) * 2
        assert (name in ("latency", "drain")) <= (
            measured["baseline"] == "plain psycopg"
        )
        for side in (measured["product"], measured["yardstick"]):
            assert ABOUT_A_SIDE | ALSO.get(name, set()) == set(side) - PART_ALSO
            assert 0 < side["min"] <= side["median"] <= side["max"]
            assert UNITS.get(name, "jobs/s") == side["unit"]
        medians = measured["product"]["median"], measured["yardstick"]["median"]
        assert medians[0] / medians[1] == pytest.approx(
            # It is rounded.
            measured["ratio"],
            rel=0.01,
            abs=0.001,
        )
        assert f"{name} 1/1: " in err or "parts" in measured
    shapes = told["backlog"]["parts"]
    assert list(shapes) == SHAPES
    assert min(shape["ratio"] for shape in shapes.values()) == told["backlog"]["ratio"]
    parts = told["topics"]["parts"]
    single, bulk = ["single", "single_django"], ["bulk", "bulk_1", "bulk_5"]
    assert [*single, *bulk, "read"] == list(parts)
    assert 0 < parts["bulk"]["product"]["published"]
    assert 0 < parts["read"]["product"]["read"]
    assert 10 < told["backlog"]["product"]["claim_buffers"] < 1_000
    assert 1 < told["idle"]["product"]["rss_mb"] < 1_000
    assert told["horizon"]["jobs"] > told["drain"]["jobs"] == 20
    assert not count(cursor, LIKE_IT, name_in(err))


def test_without_json_it_prints_a_table():
    """With a line per side, the goal, and what the measures mean."""
    status, out, err = run("bulk", "--runs", "2", "--jobs", "10")

    assert status == 0, err
    assert re.search(r"^ +median +min +max +unit +ratio +goal$", out, re.MULTILINE)
    assert re.search(
        r"^bulk( +[\d,]+){3} +jobs/s +\d+\.\d\d +>= 0.9 +(met|no)$",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^  yardstick( +[\d,]+){3} +jobs/s$", out, re.MULTILINE)
    assert f"bulk: {MEASURES['bulk'].what}" in out
    assert "latency" not in out
    assert "bulk 2/2: " in err


def test_jobs_of_the_project_are_left_alone(cursor):
    """Neither run, nor counted, nor claimed: they are in another database."""
    for n in range(3):
        noop.delay(n)

    status, out, err = run("drain", "bulk", "--json", "--runs", "1", "--jobs", "50")

    assert status == 0, err
    assert list(json.loads(out)) == ["drain", "bulk"]
    assert count(cursor, UNTOUCHED) == 3
    assert count(cursor, "SELECT count(*) FROM pgqueue_archived_job") == 0
    assert count(cursor, "SELECT count(*) FROM pgqueue_worker") == 0


def test_it_measures_the_database_that_the_queue_is_in(cursor):
    """Whichever alias that is; "default" could not even be connected to."""
    nowhere = {"default": {"HOST": "nowhere.invalid"}}
    status, out, err = run(
        "enqueue", "drain", "--json", "--runs", "1", "--jobs", "20",
        databases=nowhere, DATABASE="queue",
    )  # fmt: skip

    assert status == 0, err
    assert list(json.loads(out)) == ["enqueue", "drain"]
    assert not count(cursor, LIKE_IT, name_in(err))


@pytest.mark.slow
def test_a_role_without_databases_measures_in_a_schema(cursor, role):
    """Of the project's database, whose jobs are left alone; it is dropped, too."""
    noop.delay()
    cursor.execute("SELECT current_database()")
    (name,) = cursor.fetchone()
    cursor.execute(f'GRANT CREATE ON DATABASE "{name}" TO {role}')

    status, out, err = run(
        "contend", "drain_two", "idle", "--schema", "--json", *SMALL,
        databases=as_role(role),
    )  # fmt: skip

    assert status == 0, err
    told = json.loads(out)
    assert list(told) == ["contend", "drain_two", "idle"]
    # Other sessions of the database count there, too.
    assert "queries_per_second" not in told["idle"]["product"]
    assert count(cursor, UNTOUCHED) == 1
    assert count(cursor, "SELECT count(*) FROM pgqueue_archived_job") == 0
    assert f"Measuring in schema {name_in(err)}" in err
    assert not count(cursor, SCHEMAS, name_in(err))


def test_a_role_that_may_not_create_databases_is_told_so(role):
    """With the statement that would fix it, and the way around."""
    status, out, err = run("bulk", databases=as_role(role))

    assert status == 1
    assert out == ""
    assert f"ALTER ROLE {role} CREATEDB" in err
    assert "with --schema" in err
    assert "Traceback" not in err


def test_a_role_that_may_not_create_schemas_is_told_so(role):
    """With the statement that would fix it."""
    status, out, err = run("bulk", "--schema", databases=as_role(role))

    assert status == 1
    assert out == ""
    assert "GRANT CREATE ON DATABASE" in err
    assert "Traceback" not in err


def test_a_server_that_is_away_is_an_error_and_no_traceback(db):
    """With the alias that leads there."""
    nowhere = {"default": {"HOST": "127.0.0.1", "PORT": "1"}}
    status, _, err = run("bulk", databases=nowhere)

    assert status == 1
    assert "Database 'default' cannot be used" in err
    assert "Traceback" not in err


def test_another_database_than_postgresql_is_refused(db):
    """With its engine, and what would do."""
    sqlite = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    status, _, err = run("bulk", databases=sqlite)

    assert status == 1
    assert "has the engine 'django.db.backends.sqlite3'; jobs need PostgreSQL" in err
    assert "Traceback" not in err


@pytest.fixture
def project() -> Iterator[dict[str, str]]:
    """The environment of a project without a database, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
    folder.chmod(0o755)
    yield {
        "DJANGO_SETTINGS_MODULE": "tests.management.no_database_settings",
        "PGQUEUE_TEST_BASE_DIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "DATABASE_URL": "",
    }
    shutil.rmtree(folder)


@pytest.mark.slow
def test_without_a_database_it_starts_the_embedded_server(db, project):
    """And stops it at the end; its worker processes use it too."""
    status, out, err = run("bulk", "drain", "--json", *SMALL, environment=project)

    assert status == 0, err
    assert list(json.loads(out)) == ["bulk", "drain"]
    assert "No database is configured; using the embedded server in" in err
    home = Path(project["PGQUEUE_TEST_BASE_DIR"]) / ".pgqueue"
    assert (home / "data").is_dir()
    assert not (home / "data" / "postmaster.pid").exists()


def test_an_embedded_server_that_cannot_start_is_an_error(db, project):
    """With what to install or to set."""
    nowhere = {**project, "PGQUEUE_PG_BIN": "/nowhere"}
    status, out, err = run("bulk", *SMALL, environment=nowhere)

    assert status == 1
    assert out == ""
    assert "PGQUEUE_PG_BIN is /nowhere" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "number, measure",
    [
        (signal.SIGINT, "drain"),
        (signal.SIGTERM, "drain_two"),
        (signal.SIGHUP, "contend"),
    ],
)
def test_a_signal_ends_it_without_a_trace(cursor, number, measure):
    """Its databases are dropped and its processes have left, in the midst of a run."""
    with measuring(measure, "--runs", "1000") as (process, name):
        other = f"{name}_1" if measure == "drain_two" else name
        busy = SESSIONS if measure == "contend" else WORKERS
        enough = 16 if measure == "contend" else 1
        wait_for(lambda: count(cursor, busy, other) >= enough, PATIENCE_SECONDS)

        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS * patience())

    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert not count(cursor, LIKE_IT, name)


def test_processes_leave_when_it_was_killed(cursor):
    """kill -9 leaves the database behind, which nothing can help, but no process."""
    with measuring("drain", "--runs", "1000") as (process, name):
        wait_for(lambda: count(cursor, WORKERS, name), PATIENCE_SECONDS)
        process.kill()
        process.wait()
        try:
            wait_for(lambda: not count(cursor, SESSIONS, name), PATIENCE_SECONDS)
        finally:
            scratch.drop(cursor, Place(name=name))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["sorting"], "'sorting' is no measure; there are enqueue, bulk, contend, dr"),
        (["sort*"], r"'sort\*' is no measure"),
        (["bulk", "--runs", "0"], "'0' is not a whole number from 1 to 1,000"),
        (["bulk", "--jobs", "9"], "'9' is not a whole number from 10 to"),
        (["backlog", "--rows", "9"], "'9' is not a whole number from 100 to"),
        (["idle", "--seconds", "0"], "'0' is not a whole number from 1 to 3,600"),
    ],
)
def test_a_wrong_command_line_says_what_there_is(arguments, said):
    """Before anything is made."""
    with pytest.raises(CommandError, match=said):
        call_command("pgqueue_bench", *arguments)


def test_a_wrong_command_line_ends_with_2(db):
    """A measure that does not exist is none, whatever other versions have."""
    status, out, err = run("streams")

    assert status == 2
    assert out == ""
    assert "'streams' is no measure" in err


def test_isolation_ends_with_its_block(settings):
    """The name of the database, DEBUG and the receivers are what they were."""
    settings.DEBUG = True
    told = connections.settings["default"]
    name = told["NAME"]

    def receiver(**fields: Any) -> None: ...

    signals.job_enqueued.connect(receiver)
    try:
        with isolated(Place(name="pgqueue_bench_x")):
            assert told["NAME"] == "pgqueue_bench_x"
            assert not settings.DEBUG
            assert not signals.job_enqueued.has_listeners()
        assert name == told["NAME"]
        assert settings.DEBUG
        assert signals.job_enqueued.has_listeners()
    finally:
        signals.job_enqueued.disconnect(receiver)


def test_only_a_scratch_place_is_emptied(cursor):
    """A statement that lost its way to real tables removes nothing."""
    noop.delay()

    with pytest.raises(ValueError, match="is no scratch place"):
        scratch.empty(cursor, ["pgqueue_job"])
    with pytest.raises(ValueError, match="is no scratch place"):
        scratch.drop(cursor, Place(name="postgres"))
    with pytest.raises(ValueError, match="is no scratch place"):
        scratch.drop(cursor, Place(name="public", is_schema=True))
    assert count(cursor, UNTOUCHED) == 1

"""pgqueue_bench: what it prints, what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_pgqueue import signals
from django_pgqueue.management.bench.isolation import isolated
from django_pgqueue.management.bench.measure import Measure, Pairs
from django_pgqueue.management.bench.table import table
from django_pgqueue.management.commands.pgqueue_bench import MEASURES
from django_pgqueue.postgres import scratch
from tests.app.tasks import noop
from tests.waiting import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0

UNTOUCHED = """
SELECT count(*) FROM pgqueue_job
 WHERE deliveries = 0 AND leased_by IS NULL AND task = 'tests.app.tasks.noop'
"""

WORKERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = %s AND application_name LIKE 'pgqueue claimer%%'
"""

SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


def start(
    *arguments: str, databases: dict[str, Any] | None = None, **pgqueue: Any
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
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str, **options: Any) -> tuple[int, str, str]:
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"still running after {PATIENCE_SECONDS:g} s; it said {err!r}")
    return process.returncode, out, err


def name_in(text: str) -> str:
    match = re.search(rf"{scratch.PREFIX}\w+", text)
    assert match, text
    return match[0]


def exists(cursor: Any, name: str) -> bool:
    cursor.execute("SELECT FROM pg_database WHERE datname = %s", [name])
    return cursor.fetchone() is not None


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


def test_it_prints_one_json_object_with_a_key_per_measure(cursor):
    """Medians, limits and ratios; percentiles of the latency; nothing else."""
    status, out, err = run("all", "--json", "--runs", "1", "--jobs", "20")

    assert status == 0, err
    told = json.loads(out)
    assert list(MEASURES) == list(told)
    for name, measured in told.items():
        assert set(measured) == {"product", "yardstick", "ratio"}
        assert measured["ratio"] > 0
        percentiles = {"p50", "p95", "p99"} if name == "latency" else set()
        for side in ("product", "yardstick"):
            summary = measured[side]
            assert {"median", "min", "max", "unit"} | percentiles == set(summary)
            assert 0 < summary["min"] <= summary["median"] <= summary["max"]
            assert summary["unit"] == ("ms" if name == "latency" else "jobs/s")
        assert f"{name} 1/1: " in err
    assert not exists(cursor, name_in(err))


def test_without_json_it_prints_a_table():
    """With a line per side, and what the measures mean."""
    status, out, err = run("bulk", "--runs", "2", "--jobs", "10")

    assert status == 0, err
    assert re.search(r"^measure +median +min +max +unit +ratio$", out, re.MULTILINE)
    assert re.search(
        r"^bulk +product( +[\d,]+){3} +jobs/s +\d+\.\d\d$", out, re.MULTILINE
    )
    assert re.search(r"^ +yardstick( +[\d,]+){3} +jobs/s$", out, re.MULTILINE)
    assert MEASURES["bulk"].what in out
    assert "latency" not in out


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
    assert not exists(cursor, name_in(err))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_without_a_trace(cursor, number):
    """The database is dropped and its workers have left, while jobs were running."""
    with measuring("drain", "--runs", "1000") as (process, name):
        wait_for(lambda: count(cursor, WORKERS, name), PATIENCE_SECONDS)
        assert exists(cursor, name)

        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert not exists(cursor, name)


def test_workers_leave_when_it_was_killed(cursor):
    """kill -9 leaves the database behind, which nothing can help, but no process."""
    with measuring("drain", "--runs", "1000") as (process, name):
        wait_for(lambda: count(cursor, WORKERS, name), PATIENCE_SECONDS)
        process.kill()
        process.wait()
        try:
            wait_for(lambda: not count(cursor, SESSIONS, name), PATIENCE_SECONDS)
        finally:
            scratch.drop_database(cursor, name)


def test_a_role_that_may_not_create_databases_is_told_so(cursor):
    """With the role, and the statement that would mend it."""
    role = f"pgqueue_bench_test{os.environ.get('PGQUEUE_TEST_SUFFIX', '')}"
    cursor.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'none'")
    try:
        status, out, err = run(
            "bulk", databases={"default": {"USER": role, "PASSWORD": "none"}}
        )
    finally:
        cursor.execute(f"DROP ROLE {role}")

    assert status == 1
    assert out == ""
    assert f"ALTER ROLE {role} CREATEDB" in err
    assert "Traceback" not in err


def test_a_server_that_is_away_is_an_error_and_no_traceback(db):
    """With the alias that leads there."""
    nowhere = {"default": {"HOST": "127.0.0.1", "PORT": "1"}}
    status, _, err = run("bulk", databases=nowhere)

    assert status == 1
    assert "Database 'default' cannot be used" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["sorting"], "'sorting' is no measure; there are enqueue, bulk, drain"),
        (["bulk", "--runs", "0"], "'0' is not a whole number from 1 to 1,000"),
        (["bulk", "--jobs", "9"], "'9' is not a whole number from 10 to"),
    ],
)
def test_a_wrong_command_line_says_what_there_is(db, arguments, said):
    """And exits with 2, before anything was made."""
    status, _, err = run(*arguments)

    assert status == 2
    assert said in err


def test_isolation_ends_with_its_block(settings):
    """The name of the database, DEBUG and the receivers are what they were."""
    settings.DEBUG = True
    told = connections.settings["default"]
    name = told["NAME"]

    def receiver(**fields: Any) -> None: ...

    signals.job_enqueued.connect(receiver)
    try:
        with isolated("pgqueue_bench_x"):
            assert told["NAME"] == "pgqueue_bench_x"
            assert not settings.DEBUG
            assert not signals.job_enqueued.has_listeners()
        assert name == told["NAME"]
        assert settings.DEBUG
        assert signals.job_enqueued.has_listeners()
    finally:
        signals.job_enqueued.disconnect(receiver)


def test_only_a_scratch_database_is_emptied(cursor):
    """A statement that lost its way to a real database removes nothing."""
    noop.delay()

    with pytest.raises(ValueError, match="is no scratch database"):
        scratch.empty(cursor, ["pgqueue_job"])
    with pytest.raises(ValueError, match="is no scratch database"):
        scratch.drop_database(cursor, "postgres")
    assert count(cursor, UNTOUCHED) == 1


def measure(*, is_latency: bool = False) -> Measure:
    def no_sides(_: Any) -> Any: ...

    return Measure(
        name="drain", what="…", unit="u", jobs=1, open=no_sides, is_latency=is_latency
    )


def test_the_ratio_is_the_median_of_the_pairs():
    """A pair that met a busy machine counts like any other: 1/2, 1/2 and 9/10."""
    pairs = Pairs(measure(), [[10.0], [1.0], [9.0]], [[20.0], [2.0], [10.0]])

    assert pairs.ratio == 0.5
    assert pairs.as_json() == {
        "product": {"median": 9.0, "min": 1.0, "max": 10.0, "unit": "u"},
        "yardstick": {"median": 10.0, "min": 2.0, "max": 20.0, "unit": "u"},
        "ratio": 0.5,
    }


def test_percentiles_are_of_all_runs_together():
    """The latency of 200 jobs in two runs."""
    runs = [[float(n) for n in range(1, 101)], [float(n) for n in range(101, 201)]]
    pairs = Pairs(measure(is_latency=True), runs, runs)

    told = pairs.as_json()["product"]
    assert told["p50"] == told["median"] == 100.5
    assert (told["p95"], told["p99"]) == (190.1, 198.0)
    assert "198" in table([pairs])

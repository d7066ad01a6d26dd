"""pgqueue_bench: what it prints, what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from django_pgqueue.management import bench
from django_pgqueue.models import ArchivedJob, Job
from tests.app.tasks import noop
from tests.harness.waiting import patience, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0

SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
CLAIMERS = f"{SESSIONS} AND application_name LIKE 'pgqueue claimer%%'"
DATABASES = "SELECT count(*) FROM pg_database WHERE datname = %s"


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the command; the database of its project is the test database."""
    told = {
        alias: {"NAME": connections[alias].settings_dict["NAME"]}
        for alias in connections
    }
    return subprocess.Popen(
        [sys.executable, "-m", "django", "pgqueue_bench", *arguments],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.management.bench_settings",
            "PGQUEUE_TEST_BENCH": json.dumps(told),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def name_in(text: str) -> str:
    match = re.search(rf"{bench.PREFIX}\w+", text)
    assert match, text
    return match[0]


def count(cursor: Any, statement: str, *values: Any) -> int:
    cursor.execute(statement, values)
    return int(cursor.fetchone()[0])


@pytest.mark.slow
def test_each_measure_has_two_sides_and_a_ratio(cursor):
    """All of them by default; jobs of the project are left alone."""
    noop.delay()

    process = start("--json", "--runs", "1", "--jobs", "10")
    out, err = process.communicate(timeout=PATIENCE_SECONDS * patience())

    assert process.returncode == 0, err
    told = json.loads(out)
    units = {"enqueue": "jobs/s", "drain": "jobs/s", "latency": "ms"}
    assert list(units) == list(told)
    for name, measured in told.items():
        assert {"product", "yardstick", "ratio", "jobs", "runs"} == set(measured)
        assert (measured["jobs"], measured["runs"]) == (10, 1)
        product, yardstick = measured["product"], measured["yardstick"]
        for side in (product, yardstick):
            assert units[name] == side["unit"]
            assert 0 < side["min"] <= side["median"] <= side["max"]
            assert ("p99" in side) is (name == "latency")
        ratio = product["median"] / yardstick["median"]
        assert ratio == pytest.approx(measured["ratio"], rel=0.01, abs=0.001)
        assert f"{name} 1/1: " in err
    assert not count(cursor, DATABASES, name_in(err))
    assert Job.objects.get().deliveries == 0
    assert not ArchivedJob.objects.exists()


def test_a_table_of_one_measure(capsys, transactional_db):
    """The figures are for people unless --json asks for an object."""
    call_command("pgqueue_bench", "enqueue", "--runs", "1", "--jobs", "10")

    header, product, yardstick = capsys.readouterr().out.splitlines()
    assert header.split() == ["median", "min", "max", "p99", "unit", "ratio"]
    assert re.match(r" +enqueue +product( +[\d,.]+){3} +jobs/s +\d+\.\d\d$", product)
    assert re.match(r" +enqueue +yardstick( +[\d,.]+){3} +jobs/s *$", yardstick)


@pytest.mark.slow
def test_a_signal_ends_it_and_leaves_nothing(cursor):
    """The database is dropped and the worker has left, in the midst of a run."""
    process = start("drain", "--runs", "1000")
    try:
        assert process.stderr is not None
        name = name_in(process.stderr.readline())
        wait_for(lambda: count(cursor, CLAIMERS, name), PATIENCE_SECONDS)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS * patience())
    finally:
        process.kill()

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert not count(cursor, DATABASES, name)

"""The benchmark of Spark still runs, and its tables say what was measured."""

from __future__ import annotations

import os

import pytest

from tests.benchmarks.spark import ingest, table, work
from tests.benchmarks.spark.__main__ import main, read_sides, take_turns, write_sides
from tests.benchmarks.spark.server import Place

ROWS = 500


@pytest.fixture
def place(transactional_db, dsn):
    return Place(dsn=dsn, jdbc="", user="", password="", postmaster=os.getpid())


@pytest.mark.spark
def test_both_ways_of_ours_are_measured(spark, place):
    """Each turn has its seconds; rows that are missing stop it."""
    work.fill(place, ROWS)
    of_all = read_sides(spark, place, work.NARROW)
    reads = {name: of_all[name] for name in ("read", "pgqueue")}
    sides = write_sides(spark, place, ROWS)
    writes = {name: sides[name] for name in ("staged", "copy")}

    read = take_turns(reads, 1, ROWS, [os.getpid()], "read")
    written = take_turns(
        writes,
        1,
        ROWS,
        [os.getpid()],
        "write",
        before=lambda: work.empty(place),
        check=lambda: work.count(place),
    )

    for told in (read["read"], read["pgqueue"], written["staged"], written["copy"]):
        assert [1, 1] == [len(told["seconds"]), len(told["processor"])]
        assert told["seconds"][0] > 0
    with pytest.raises(AssertionError, match="500 rows, not 501"):
        take_turns(
            {"none": lambda: None}, 1, ROWS + 1, [os.getpid()], "x", check=lambda: ROWS
        )


@pytest.mark.spark
@pytest.mark.slow
def test_a_backlog_is_ingested(spark, place, tmp_path):
    """All of it, by the pipeline job; its seconds are told."""
    ingest.fill(place, "orders", ROWS)

    assert 0 < ingest.ingest(place, spark, "orders", tmp_path / "log")
    assert ROWS == ingest.written(tmp_path / "log")


def test_what_the_counting_jobs_cost_is_told(place, archive_days):
    """Of each run, what it and the server have used; none asks for Spark."""
    from tests.benchmarks.spark import counting

    counting.fill(place, ROWS)
    told = {name: counting.count(place, name) for name in counting.JOBS}

    assert 2 * ROWS == told["metrics"]["rows_in"]
    assert 70 == told["failures"]["rows_in"]
    assert 0 < told["conservation"]["rows_out"]
    assert 0 < told["metrics"]["seconds"]


def test_a_ratio_is_that_of_each_turn():
    """The median of the quotients, not the quotient of the medians."""
    told = {"a": {"seconds": [1, 2, 8]}, "b": {"seconds": [3, 4, 8]}}

    assert 2 == table.ratio(told, "a", "b")


def test_a_missing_driver_is_named(tmp_path, capsys):
    """With the package that has it."""
    assert 2 == main(["--jar", str(tmp_path / "no.jar")])
    assert "libpostgresql-jdbc-java" in capsys.readouterr().err

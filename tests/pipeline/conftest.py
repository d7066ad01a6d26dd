"""Pipeline jobs in the session that the tests of spark/ have too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from django_pgqueue.management.pipeline.plan import known_task
from django_pgqueue.management.spark_session import dsn_of
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.run import Plan
from django_pgqueue.spark.running import Ended, run_job
from tests.spark.conftest import _packages, dsn, spark, start_spark
from tests.spark.one_session import ONE

__all__ = ["_packages", "dsn", "spark", "start_spark"]


@pytest.fixture
def plan(start_spark: Callable[[], Any], transactional_db: None) -> Callable[..., Plan]:
    """``plan("metrics", lookback="3d")`` is what run_job() takes. Spark starts when a
    job asks for it."""

    @contextmanager
    def sessions() -> Iterator[Any]:
        yield ONE.get(start_spark)

    return partial(_plan, sessions)


def _plan(sessions: Callable[[], Any], name: str, /, **options: Any) -> Plan:
    job = find_job(name)
    return Plan(
        job=job,
        options=job.read_options(options),
        dsn=dsn_of("default", writes=True),
        sessions=sessions,
        by="tests",
        known_task=known_task,
        sign=lambda text: f"signed {len(text)}",
    )


@pytest.fixture
def run(plan: Callable[..., Plan]) -> Callable[..., Ended]:
    """``run("metrics")`` runs it, and fails with its error."""

    def run(name: str, /, **options: Any) -> Ended:
        return _succeeded(plan(name, **options))

    return run


@pytest.fixture
def by_sql(transactional_db: None) -> Callable[..., Ended]:
    """As ``run``, for a job that asks for no Spark: it fails where it does."""

    def run(name: str, /, **options: Any) -> Ended:
        return _succeeded(_plan(_no_spark, name, **options))

    return run


def _no_spark() -> Any:
    raise AssertionError("Spark was asked for.")


def _succeeded(plan: Plan) -> Ended:
    ended = run_job(plan)
    assert ended.error is None, ended.error
    assert ended.state == "succeeded"
    return ended

"""Rows of queries and files become jobs, spread over a window, once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_pgqueue.management.pipeline.known_task import known_task
from django_pgqueue.models import Job, PipelineRun
from django_pgqueue.spark.run import Plan, run_job
from tests.app.models import Order

pytestmark = pytest.mark.spark

TASK = "tests.app.tasks.make_order"
QUERY = "SELECT name FROM testapp_order"

# A day from now on, so that no window is over.
START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
START += timedelta(days=1)


def test_try(plan, tmp_path):
    Order.objects.bulk_create(Order(name=f"o{n}") for n in range(1000))
    import dataclasses, time

    p = plan(
        "fanout",
        task=TASK,
        query=QUERY,
        key="name",
        over="24h",
        start=START.isoformat(),
    )
    p = dataclasses.replace(p, known_task=known_task)
    t = time.time()
    print(run_job(p), time.time() - t)
    t = time.time()
    print(run_job(p), time.time() - t)
    print(
        Job.objects.count(),
        Job.objects.values(
            "run_after", "kwargs", "queue", "priority", "max_attempts"
        ).first(),
    )
    print(PipelineRun.objects.values())
    p = plan("fanout", task=TASK, query=QUERY + " UNION ALL SELECT 'o1'", key="name")
    print(run_job(p))

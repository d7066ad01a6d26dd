"""Reads, writes and pipeline jobs on several machines, and the loss of one."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.models import Job
from tests.harness.factories import make_jobs
from tests.harness.process_tree import waking
from tests.harness.waiting import wait_for
from tests.spark.conftest import PASSWORD
from tests.spark.log.conftest import backlog, publish

__all__ = ["backlog", "publish"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.django_db(transaction=True),
]

ROWS = 12_000


def fetched(statement):
    """Return the rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def test_a_write_survives_the_loss_of_a_worker(cluster, driver, tmp_path):
    """kill -9 of a worker, halfway, while its executor is frozen: the other one does
    its part, and the executor that wakes up adds nothing. A read is divided between
    the workers."""
    ids = make_jobs(2_000)
    assert [2_000, 2_000, sum(ids)] == driver.call("read", "jobs", {"partitions": "4"})
    assert [True, True] == [tasks > 0 for tasks in driver.call("executors")]
    Job.objects.all().delete()

    options = {"task": "a.b", "name": "lossy"}
    driver.start("write", ROWS, str(tmp_path), options)
    first = [tmp_path / "0-0", tmp_path / "1-0"]
    wait_for(lambda: all(map(has, first)), 60, "both tasks are halfway")
    workers = [cluster.of(int(path.read_text())) for path in first]
    assert workers[0] is not workers[1]
    wait_for(
        lambda: fetched("SELECT state FROM pgqueue_spark_write") == [("open",)],
        what="rows have come to the database",
    )

    with waking(workers[0].kill_beside_frozen()):
        try:
            (tmp_path / "go").touch()
            again = tmp_path / "0-1"
            wait_for(lambda: has(again), 60, "the lost task is tried again")
            assert workers[1] is cluster.of(int(again.read_text()))
            driver.answer()
        finally:
            cluster.complete()

    assert [(ROWS, ROWS)] == fetched(
        "SELECT count(*), count(DISTINCT kwargs ->> 'id') FROM pgqueue_job"
    )
    assert [("committed", ROWS)] == fetched(
        "SELECT state, written FROM pgqueue_spark_write"
    )
    assert [] == fetched(
        "SELECT relname FROM pg_class WHERE relname LIKE 'pgqueue_stage_%'"
    )


def has(path):
    """Return whether there is such a file."""
    return path.exists()


def test_no_password_is_told_when_tasks_fail(cluster, driver):
    """Neither to who asked, nor in the event log or in any log of the cluster."""
    make_jobs(1)
    failures = {
        "UNREACHABLE": "Connection refused",
        "UNREADABLE": "it is no connection string that PostgreSQL can read",
    }
    said = ""
    for call, problem in (
        (["read", "jobs", {"dsnEnv": "UNREADABLE"}], failures["UNREADABLE"]),
        (
            ["write_few", {"dsnEnv": "UNREACHABLE", "task": "a.b"}],
            failures["UNREACHABLE"],
        ),
    ):
        driver.start(*call)
        error = driver.error()
        assert problem in error
        said += error
    driver.call("close")

    events = "".join(texts(cluster.folder, "events_*"))
    logs = "".join(texts(cluster.folder, "*.log") + texts(cluster.folder, "std*"))
    for problem in failures.values():
        assert problem in events
        assert problem in logs
    assert PASSWORD not in said + events + logs


def texts(folder, pattern):
    """Return what is in the files of that name, however deep."""
    found = [path for path in folder.rglob(pattern) if path.is_file()]
    return [path.read_text(errors="replace") for path in found]

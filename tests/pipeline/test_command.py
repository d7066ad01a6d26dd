"""manage.py pgqueue_pipeline, and the task that runs it; as processes of their own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.pipeline.plan import plan_of
from django_pgqueue.management.pipeline.run import _say
from django_pgqueue.models import ArchivedJob, DeadLetter, PipelineRun, TaskHour
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.pipelines import run_pipeline
from django_pgqueue.spark.running import Ended, run_job
from django_pgqueue.tasks.raised import Reject
from tests.harness.factories import make_archived_job
from tests.harness.ledger import PATH
from tests.harness.waiting import patience, wait_for
from tests.harness.worker_process import (
    REPOSITORY,
    _databases,
    start_worker,
    the_ledger,
    wait_until_final,
)
from tests.log.rows import make_topic

pytestmark = pytest.mark.spark

__all__ = ["start_worker", "the_ledger"]

# Each of these starts a Java of its own, which has little to do.
QUICK = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


def call(*arguments):
    """Return the exit status, and what it printed."""
    out, status = io.StringIO(), 0
    try:
        call_command("pgqueue_pipeline", *arguments, stdout=out, stderr=out)
    except SystemExit as ended:
        status = ended.code
    return status, out.getvalue()


WAITS = """
SELECT EXISTS (SELECT 1 FROM pg_locks
                WHERE relation = %s::regclass AND NOT granted)
"""


@contextmanager
def locked(cursor, table):
    """Hold a lock that whoever reads *table* waits for; lend what tells of them."""

    def is_met():
        with connection.cursor() as other:
            other.execute(WAITS, [table])
            return other.fetchone()[0]

    with cursor.connection.transaction():
        cursor.execute(f"LOCK TABLE {table}")
        yield is_met


@pytest.fixture
def environment(transactional_db, tmp_path):
    """What a process needs to share the test's database."""
    return environment_of(tmp_path)


def environment_of(folder):
    """Return the same, with a ledger in *folder*."""
    told = {"databases": _databases({}), "pgqueue": {}}
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
        "PYTHONPATH": os.pathsep.join(
            [str(REPOSITORY), str(REPOSITORY / "django_pgqueue/spark/toplevel")]
        ),
        "PGQUEUE_TEST_WORKER": json.dumps(told),
        PATH: str(folder / "ledger"),
        **QUICK,
    }


def start(cursor, job="metrics", **changes):
    values = {"options": {}, "by": "anna", "queue_job": None, "hostname": "h", "pid": 1}
    return pipelines.start(cursor, job, **{**values, **changes}).id


def test_list_and_status_show_jobs_and_runs(transactional_db, cursor):
    """Options and the last run of each job; progress of each run; also as JSON."""
    assert (1, "There is no such run.\n") == call("status")
    failed, live = start(cursor), start(cursor, "failures")
    pipelines.finish(
        cursor,
        failed,
        state="failed",
        rows_in=0,
        rows_out=0,
        progress={},
        error="no",
        ui_url=None,
    )
    progress = {"phase": "reading", "tasks_done": 1, "tasks": 4, "rows_per_second": 9}
    reached = {"rows_in": 1_234, "rows_out": 0, "ui_url": "http://u"}
    pipelines.beat(cursor, live, progress=progress, **reached)

    status, text = call("list")
    assert 0 == status
    assert "lookback=2d" in text
    jobs = {job["name"]: job for job in json.loads(call("list", "--json")[1])["jobs"]}
    assert ("failed", []) == (
        jobs["metrics"]["last_state"],
        jobs["metrics"]["takes_out"],
    )
    assert (["path"], ["archive"]) == (
        jobs["export"]["chooses"],
        jobs["export"]["takes_out"],
    )
    status, text = call("status", "failures")
    assert 0 == status
    assert "1,234" in text
    assert "reading, 1/4 tasks, 9 rows/s, http://u" in text
    runs = json.loads(call("status", "--json")[1])["runs"]
    assert {"running", "failed"} == {run["state"] for run in runs}


def test_stop_needs_one_live_run(transactional_db, cursor):
    """Of several one must be named; a run whose process died is lost."""
    assert (1, "No run of metrics is live.\n") == call("stop", "metrics")
    dead = start(cursor, lease_seconds=-1)
    assert (0, f"Run {dead} of metrics: lost.\n") == call("stop", "metrics")

    first, second = (start(cursor, "ingest", places=(place,)) for place in "ab")
    with pytest.raises(CommandError, match=f"live: {first}, {second}. Say which"):
        call("stop", "ingest", "--no-wait")
    status, text = call("stop", "ingest", "--no-wait", "--run", str(second))

    assert (0, f"Run {second} of ingest was asked to stop.\n") == (status, text)
    assert [second] == list(
        PipelineRun.objects.filter(job="ingest", state="running")
        .exclude(cancel_requested_at=None)
        .values_list("id", flat=True)
    )


def test_a_wrong_command_line_has_status_2(transactional_db):
    """No run begins."""
    for arguments, problem in (
        (["metrcs"], "Did you mean 'metrics'"),
        (["metrics", "-o", "look=1d"], "no option 'look'"),
    ):
        with pytest.raises(CommandError, match=problem) as refused:
            call("run", *arguments)
        assert 2 == refused.value.returncode
    assert not PipelineRun.objects.exists()


def test_what_a_run_tells_is_shown_as_data():
    """Names of tasks stand in it, which whoever enqueues chooses: an escape sequence
    of a terminal is shown, and does nothing."""
    out = io.StringIO()
    note = "shop.\x1b[2Jsend 2026-11-22: 3"
    ended = Ended(7, "succeeded", 3, 0, 1.0, None, [note])

    _say(ended, "replay", Output(out, out, as_json=False, color=False))

    first, last = out.getvalue().splitlines()
    assert r"shop.\x1b[2Jsend 2026-11-22: 3" == first
    assert "replay: succeeded in 1 s, 3 rows in, 0 out (run 7)." == last


@pytest.mark.slow
def test_sigterm_stops_a_run(environment, cursor):
    """Also while a statement waits; its row says so, and the status is 130."""
    make_archived_job()
    with locked(cursor, "pgqueue_task_hour") as is_met:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "pgqueue_pipeline", "run", "metrics"],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_for(is_met, 30, "the run waits for the lock")
        process.send_signal(signal.SIGTERM)
        # A run that does not end is left behind after 40 s.
        text, _ = process.communicate(timeout=30 * patience())

    assert 130 == process.returncode, text
    assert "metrics: cancelled" in text
    assert ["cancelled"] == list(PipelineRun.objects.values_list("state", flat=True))
    assert not TaskHour.objects.exists()


def test_a_run_ends_with_the_worker_that_has_started_it(environment):
    """Whose job comes again by then; else it would meet a run that nobody watches."""
    run = f"{sys.executable} -m django pgqueue_pipeline run wait_to_be_stopped"
    worker = subprocess.Popen(
        ["sh", "-c", f"{run} --queue-job 7 & wait"], cwd=REPOSITORY, env=environment
    )
    runs = PipelineRun.objects.filter(queue_job_id=7)
    wait_for(runs.exists, 30, "the run has its row")

    worker.kill()
    worker.wait(30)

    wait_for(runs.exclude(state="running").exists, 30, "the run ends")
    assert ["cancelled"] == list(runs.values_list("state", flat=True))


def test_the_queue_runs_a_pipeline_job(start_worker, cursor):
    """As a task: run, shown with its progress, and done when the run is."""
    make_archived_job(task="tests.seen")
    top = REPOSITORY / "django_pgqueue/spark/toplevel"
    start_worker(
        "--queues",
        "pgqueue_pipeline",
        threads=1,
        pgqueue={"EXPORT": {"path": "/srv/export"}, "POLL_INTERVAL_SECONDS": 1},
        environment={"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{top}", **QUICK},
    )

    result = run_pipeline.delay("metrics", lookback="3d")
    wait_until_final([result.id], timeout=90)

    job = ArchivedJob.objects.get(id=result.id)
    assert "succeeded" == job.state
    assert job.result.startswith("metrics: succeeded in ")
    run = PipelineRun.objects.get()
    assert (result.id, f"job {result.id}") == (run.queue_job_id, run.asked_by)
    assert "3d" == run.options["lookback"]
    assert "tests.seen" in TaskHour.objects.values_list("task", flat=True)

    # Whoever stops the run, and not the job, does not want the next attempt either.
    with locked(cursor, "pgqueue_failure_hour") as is_met:
        result = run_pipeline.delay("failures")
        later = PipelineRun.objects.filter(queue_job_id=result.id)
        wait_for(is_met, 60, "the second run waits for the lock")
        with connection.cursor() as other:
            pipelines.request_stop(other, "failures", by="anna", run=later.get().id)
        wait_until_final([result.id], timeout=90)

    assert "cancelled" == ArchivedJob.objects.get(id=result.id).state
    assert ["cancelled"] == list(later.values_list("state", flat=True))

    # A retry of what the run itself refuses would be refused again.
    result = run_pipeline.delay("ingest", topic="ordres", path="/srv/export")
    wait_until_final([result.id], timeout=90)
    dead = DeadLetter.objects.get(id=result.id)
    assert ("rejected", 1) == (dead.reason, dead.attempt)
    assert "There is no topic 'ordres'" in str(dead.errors)


def test_a_job_that_can_never_run_is_rejected():
    """Before a process is started for it."""
    with pytest.raises(Reject, match=r"'metrcs'\. Did you mean 'metrics'"):
        run_pipeline("metrcs")
    with pytest.raises(Reject, match="no option 'look'"):
        run_pipeline("metrics", look="1d")
    # Users who may edit jobs would otherwise choose a query for the role's rights.
    with pytest.raises(Reject, match=r"fanout is not for the queue: .*Declare one of"):
        run_pipeline("fanout", task="tests.app.tasks.noop", query="SELECT 1 AS id")


def test_a_topic_that_does_not_exist_is_refused_before_spark_starts(
    transactional_db, monkeypatch
):
    """With the nearest name, in the database that Spark would read; the run has failed
    with that. One that cannot be asked is left to Spark."""
    monkeypatch.delenv("PGQUEUE_DSN", raising=False)
    make_topic("orders")
    told = r"There is no topic 'ordres'\. Did you mean 'orders'\? A topic is made by"
    given = {"topic": "ordres,orders", "path": "/x"}
    plan = plan_of("ingest", given)
    arguments = [f"-o{name}={value}" for name, value in given.items()]
    with pytest.raises(CommandError, match=told) as refused:
        call("run", "ingest", *arguments)
    assert 2 == refused.value.returncode
    (run,) = PipelineRun.objects.all()
    assert "failed" == run.state
    assert "There is no topic 'ordres'" in run.error

    monkeypatch.setenv("LOG_DSN", plan.dsn)
    elsewhere = {"read_options": {"dsnEnv": "LOG_DSN"}, "sessions": no_spark}
    with pytest.raises(SparkOptionError, match=told):
        run_job(replace(plan, **elsewhere))
    monkeypatch.setenv("LOG_DSN", "host=/nowhere password=hunter2")
    left = run_job(replace(plan, **elsewhere))
    assert left.error.endswith("Spark was asked for.")


def no_spark():
    raise SparkError("Spark was asked for.")


@pytest.mark.slow
def test_spark_submit_runs_a_job_without_django(environment, dsn, tmp_path):
    """By the DSN of its environment alone."""
    make_archived_job(task="tests.seen")
    (tmp_path / "django").mkdir()
    (tmp_path / "django" / "__init__.py").write_text("raise ImportError('Django')\n")
    path = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])

    done = subprocess.run(
        [sys.executable, "-m", "django_pgqueue.spark.submit", "metrics"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": path, "PGQUEUE_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=90 * patience(),
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert "metrics: succeeded, 2 rows in, 1 out" in done.stderr
    assert ["tests.seen"] == list(TaskHour.objects.values_list("task", flat=True))
    assert "spark-submit" == PipelineRun.objects.get().asked_by


def test_an_export_goes_where_the_settings_say(settings):
    """Unless the call names another path."""
    settings.PGQUEUE = {"EXPORT": {"path": "/srv/jobs/"}}

    assert "/srv/jobs" == plan_of("export", {"since": "2026-11-21"}).options["path"]
    assert "/srv/else" == plan_of("export", {"path": "/srv/else"}).options["path"]
    assert "2d" == plan_of("metrics", {}).options["lookback"]

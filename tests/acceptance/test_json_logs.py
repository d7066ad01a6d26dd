"""Log lines as JSON: of jobs, and of what their tasks write."""

from __future__ import annotations

import json

import pytest

from django_pgqueue.models import Job
from tests.app import report_tasks
from tests.harness.worker_process import wait_until_final

pytestmark = [
    pytest.mark.slow,
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True),
]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"

# As in docs/howto/trace-and-report.md, but for the file.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"job": {"()": "django_pgqueue.logs.JobFields"}},
    "formatters": {
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "fmt": "{asctime}{levelname}{name}{message}",
            "style": "{",
        }
    },
    "handlers": {
        "json": {
            "class": "logging.FileHandler",
            "filters": ["job"],
            "formatter": "json",
        }
    },
    "root": {"handlers": ["json"], "level": "INFO"},
    "loggers": {"django_pgqueue": {"level": "DEBUG"}},
}


def test_each_line_about_a_job_has_its_fields(start_worker, tmp_path):
    """Ours and those of its task, in a thread, a process and an event loop."""
    path = tmp_path / "lines"
    handler = {**LOGGING["handlers"]["json"], "filename": str(path)}
    jobs = [
        each.using(queue="mail").delay("x").id
        for each in (report_tasks.says, report_tasks.says_async)
    ]
    Job.objects.update(headers={"trace": {"traceparent": PARENT}})
    worker = start_worker(
        pgqueue={"TASK_MODULES": ["tasks", "report_tasks"]},
        settings={"LOGGING": {**LOGGING, "handlers": {"json": handler}}},
        wait=False,  # For a line on standard output.
    )
    wait_until_final(jobs)
    assert 0 == worker.stop()

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    words = {"started", "succeeded", "said"}
    for job, task in zip(jobs, ("says", "says_async"), strict=True):
        told = [line for line in lines if line.get("job_id") == job]
        assert words == {line["message"].split()[0] for line in told}
        for line in told:
            assert f"tests.app.report_tasks.{task}" == line["task"]
            assert ("mail", 1, TRACE) == tuple(
                line[name] for name in ("queue", "attempt", "trace_id")
            )

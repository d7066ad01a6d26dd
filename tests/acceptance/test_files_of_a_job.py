"""The life of one job: how many files somebody opens who follows it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connections

import django_pgqueue
from tests.harness.waiting import wait_for
from tests.harness.worker_process import REPOSITORY, wait_until_final

HOME = f"{Path(django_pgqueue.__file__).parent}/"
PAGE = REPOSITORY / "docs" / "explanation" / "life-of-a-job.md"

# Others only look now and then whether there is something to do for them.
THREADS = {"pgqueue-claimer", "pgqueue-task-0", "pgqueue-task-1", "pgqueue-settler"}


# A caller in a process of its own: what else runs in that of the tests, a JVM and its
# threads among it, is not to be profiled. The first job brings in what is imported.
CALLER = """
import json, sys
import django

django.setup()
from django.db import transaction
from tests.app.tasks import nothing

found = set()

def note(frame, event, argument):
    if event == "call":
        found.add(frame.f_code.co_filename)

def enqueue():
    with transaction.atomic():
        return nothing.delay().id

print(json.dumps([enqueue(), []]), flush=True)
for line in sys.stdin:
    found.clear()
    sys.setprofile(note)
    job = enqueue()
    sys.setprofile(None)
    print(json.dumps([job, sorted(found)]), flush=True)
"""


@pytest.fixture
def caller(transactional_db):
    """A process that stores a job, and after each line another one."""
    databases = {
        each: {"NAME": connections[each].settings_dict["NAME"]} for each in connections
    }
    told = {"databases": databases, "pgqueue": {}}
    with subprocess.Popen(
        [sys.executable, "-c", CALLER],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PGQUEUE_TEST_WORKER": json.dumps(told),
            "PYTHONPATH": str(REPOSITORY),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def visited_since(worker, visits):
    """Return the files that the worker has visited since it was asked last."""
    visits.unlink(missing_ok=True)
    (pid,) = worker.children()
    os.kill(pid, signal.SIGUSR2)
    wait_for(visits.exists, what="the worker says what it has visited")
    pairs = [line.split() for line in visits.read_text().splitlines()]
    return {file for thread, file in pairs if thread in THREADS}


def test_a_job_visits_no_more_files_than_its_page_says(start_worker, tmp_path, caller):
    """
    From the call to the ack, on a worker that has nothing else to do.

    Every job does: beside other tests, one may meet a look that takes long, say.
    """
    visits = tmp_path / "visits"
    worker = start_worker(
        # One would be all that a claim asks for, as long as jobs are slow to start. And
        # a claim that is full asks who else has something.
        threads=2,
        environment={
            "DJANGO_SETTINGS_MODULE": "tests.acceptance.visit_settings",
            "PGQUEUE_TEST_VISITS": str(visits),
        },
    )
    first, _ = json.loads(caller.stdout.readline())
    wait_until_final([first])
    visited_since(worker, visits)

    each = []
    for _ in range(3):
        caller.stdin.write("\n")
        caller.stdin.flush()
        job, files = json.loads(caller.stdout.readline())
        wait_until_final([job])
        ours = {file.removeprefix(HOME) for file in files if file.startswith(HOME)}
        each.append((ours, visited_since(worker, visits)))
    enqueued = set.intersection(*(ours for ours, _ in each))
    ran = set.intersection(*(visited for _, visited in each))

    told = re.search(r"visits (\d+) files", PAGE.read_text("utf-8"))
    assert told, "the page names no number"
    assert "queues/enqueue.py" in enqueued
    assert {"queues/claim.py", "tasks/perform.py", "queues/settle.py"} <= ran
    assert len(enqueued | ran) <= int(told[1]), "\n".join(sorted(enqueued | ran))

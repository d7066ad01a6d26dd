"""The life of one job: how many files somebody opens who follows it."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from django.db import transaction

import django_pgqueue
from tests.app.tasks import noop
from tests.waiting import wait_for
from tests.worker_process import REPOSITORY, wait_until_final

HOME = f"{Path(django_pgqueue.__file__).parent}/"
PAGE = REPOSITORY / "docs" / "explanation" / "life-of-a-job.md"

# Others only look now and then whether there is something to do for them.
THREADS = {"pgqueue-claimer", "pgqueue-task-0", "pgqueue-settler"}


def enqueue():
    with transaction.atomic():
        return noop.delay().id


def visited_by(call):
    """Return what *call* returns, and which of our files it visits."""
    found = set()

    def note(frame, event, argument):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(HOME):
            found.add(file.removeprefix(HOME))

    sys.setprofile(note)
    try:
        return call(), found
    finally:
        sys.setprofile(None)


def visited_since(worker, visits):
    """Return the files that the worker has visited since it was asked last."""
    visits.unlink(missing_ok=True)
    (pid,) = worker.children()
    os.kill(pid, signal.SIGUSR2)
    wait_for(visits.exists, what="the worker says what it has visited")
    pairs = [line.split() for line in visits.read_text().splitlines()]
    return {file for thread, file in pairs if thread in THREADS}


def test_a_job_visits_no_more_files_than_its_page_says(start_worker, tmp_path):
    """From the call to the ack, on a worker that has nothing else to do."""
    visits = tmp_path / "visits"
    worker = start_worker(
        threads=1,
        environment={
            "DJANGO_SETTINGS_MODULE": "tests.acceptance.visit_settings",
            "PGQUEUE_TEST_VISITS": str(visits),
        },
    )
    wait_until_final([enqueue()])
    visited_since(worker, visits)

    job, enqueued = visited_by(enqueue)
    wait_until_final([job])
    ran = visited_since(worker, visits)

    told = re.search(r"visits (\d+) files", PAGE.read_text("utf-8"))
    assert told, "the page names no number"
    assert "queues/enqueue.py" in enqueued
    assert {"queues/claim.py", "tasks/attempt.py", "queues/settle.py"} <= ran
    assert len(enqueued | ran) <= int(told[1]), sorted(enqueued | ran)

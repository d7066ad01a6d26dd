"""What Prometheus reads from a worker, of all of its processes and of the database."""

from __future__ import annotations

import http.client
import os
import re
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.app import crash_tasks, tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.slow


@pytest.fixture
def start_watched(start_worker):
    """Start a worker with numbers; return it, and what reads them."""

    def start(*arguments, **options):
        worker = start_worker("--health-port=0", "--metrics", *arguments, **options)
        (line,) = worker.wait_for_lines(r"^  health .*/metrics$")
        port = int(re.search(r":(\d+)/", line)[1])
        return worker, lambda: scrape(port)

    return start


class Numbers:
    """What one scrape has told."""

    def __init__(self, text):
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def get(self, name, **labels):
        """Return the sum of the numbers of a name that have these labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"pgqueue_{name}"
            and labels.items() <= sample.labels.items()
        )


def scrape(port):
    """Ask a worker for its numbers."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.request("GET", "/metrics")
    answer = client.getresponse()
    body = answer.read().decode()
    client.close()
    assert 200 == answer.status, body
    return Numbers(body)


ATTEMPTS = "worker_attempts_total"
RECORD = {"queue": "default", "task": crash_tasks.record.name}


def counted(numbers, attempts, **labels):
    """Return what is told once so many attempts are counted."""
    return wait_for(
        lambda: (found := numbers()).get(ATTEMPTS, **labels) == attempts and found,
        what=f"{attempts} attempts are counted",
    )


def test_a_scrape_has_the_sum_of_all_processes(start_watched, the_ledger):
    """Of two, each of which has run some; with how long each attempt ran and waited."""
    _, numbers = start_watched(processes=2, threads=1)
    ids = enqueue(crash_tasks.record, 200) + enqueue(tasks.fails_once, 3)
    wait_until_final(ids)
    assert 2 == len({entry.pid for entry in the_ledger.entries("start")})

    found = counted(numbers, 203)
    assert 200 == found.get(ATTEMPTS, **RECORD, outcome="succeeded")
    assert 3 == found.get(ATTEMPTS, task=tasks.fails_once.name, outcome="dead")
    for name in ("worker_run_seconds", "worker_wait_seconds"):
        assert 200 == found.get(f"{name}_count", **RECORD)
        assert 200 == found.get(f"{name}_bucket", **RECORD, le="+Inf")
        assert 0 < found.get(f"{name}_sum", **RECORD)
    assert 203 <= found.get("worker_claimed_jobs_total")
    assert 2 == found.get("worker_processes", state="running")
    assert 0 == found.get("worker_stale_settles_total")


def test_no_counter_goes_back_when_a_process_is_killed(start_watched):
    """The one that takes its place goes on, and tells that a job was repeated."""
    worker, numbers = start_watched()
    wait_until_final(enqueue(crash_tasks.record, 20))
    counted(numbers, 20)

    (child,) = [
        int(line.rpartition("pid=")[2]) for line in worker.lines("started    worker=")
    ]
    os.kill(child, signal.SIGKILL)
    worker.wait_for_lines("started    worker=", 2)
    assert 20 == numbers().get(ATTEMPTS)

    wait_until_final(enqueue(tasks.kills_its_process, 1))
    wait_until_final(enqueue(crash_tasks.record, 5))
    counted(numbers, 25, **RECORD)
    found = counted(numbers, 1, task=tasks.kills_its_process.name, outcome="dead")
    assert 1 == found.get("worker_repeats_total", task=tasks.kills_its_process.name)


def test_the_database_tells_of_all_queues(start_watched, cursor):
    """Also of those that this worker does not serve, and of what is wrong."""
    enqueue(crash_tasks.record.using(queue="nobodys"), 7)
    _, numbers = start_watched("--queues=default")

    found = numbers()
    assert 1 == found.get("up")
    assert 7 == found.get("jobs", queue="nobodys", state="ready")
    assert 0 < found.get("oldest_ready_seconds", queue="nobodys")
    assert 1 == found.get("workers", state="alive")
    assert 4 == found.get("slots", kind="threads")
    assert 1 == found.get("findings", check="unserved", severity="error")

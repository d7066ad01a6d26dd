"""The dashboard for Grafana and the alerts, asked of a Prometheus and a real worker."""

from __future__ import annotations

import re
import subprocess

import pytest

from django_pgqueue import topic
from django_pgqueue.pipeline import ingest
from tests.app import crash_tasks, tasks
from tests.harness.prometheus import RULES, Prometheus, alerts, as_asked, panels
from tests.harness.system import require_system
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

# What an alert holds a number against.
COMPARED = re.compile(r" (?:==|>) [\d.]+")
ABSENT = re.compile(r"absent\((.*)\)")

OPTIONS = {
    "TASK_MODULES": ["consume_tasks", "crash_tasks"],
    "QUEUES": {"default": {"depth_max": 100_000}},
}


@pytest.fixture
def watched(start_worker, tmp_path, cursor):
    """A Prometheus that has looked a few times at a worker that has done of all."""
    worker = start_worker(
        "--health-port=0", "--metrics", "--queues=default,shares", pgqueue=OPTIONS
    )
    (line,) = worker.wait_for_lines(r"^  health .*/metrics$")
    port = int(re.search(r":(\d+)/", line)[1])
    topic("shares").publish_many([{"do": "note"}] * 5)
    ingest.note(cursor, "/srv/log", {"shares": 1}, run=1)
    enqueue(crash_tasks.record.using(queue="nobodys"), 2)
    wait_until_final(enqueue(crash_tasks.record, 20) + enqueue(tasks.fails_once, 2))
    with Prometheus(tmp_path, port, RULES) as prometheus:
        wait_for(
            lambda: any(
                int(series["value"][1]) >= 3
                for series in prometheus.query(
                    'count_over_time(pgqueue_worker_messages_total{outcome="consumed"}'
                    "[1m])"
                )
            ),
            what="it has looked three times",
        )
        yield prometheus


@pytest.mark.slow
def test_every_panel_shows_something_and_every_alert_compares_something(watched):
    """What each of their queries selects is told by such a worker."""
    for title, queries in panels().items():
        for query in queries:
            wait_for(
                lambda query=query: watched.query(as_asked(query)),
                what=f"{title}: {query}",
            )
    assert_alerts_compare(watched)


def assert_alerts_compare(prometheus):
    """Prometheus has read all of them, and what they hold against limits is told."""
    found = {rule["name"]: rule for rule in prometheus.rules()}
    assert alerts().keys() == found.keys()
    wait_for(
        lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"},
        what="each was evaluated",
    )
    for name, expression in alerts().items():
        number = COMPARED.sub("", ABSENT.sub(r"\1", expression)).partition(" unless ")[
            0
        ]
        wait_for(lambda query=number: prometheus.query(query), what=f"{name}: {number}")

    # A queue with jobs, and without a worker, is an error that may pass by itself.
    wait_for(
        lambda: "pending" == states(prometheus)["PgqueueFinding"], what="it is noticed"
    )
    assert "inactive" == states(prometheus)["PgqueueUnseen"]
    assert "inactive" == states(prometheus)["PgqueueNoWorker"]


def states(prometheus):
    """Return the state of each alert, by its name."""
    return {rule["name"]: rule["state"] for rule in prometheus.rules()}


def test_the_alerts_are_as_promtool_has_them():
    """Which also reads their texts."""
    promtool = require_system("promtool", reason="checks the file of alerts")

    subprocess.run([promtool, "check", "rules", RULES], check=True, timeout=60)
